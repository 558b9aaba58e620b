//! The `kinlock-lab` command, which is how we convince ourselves of kinlock's locks. It simulates
//! them on machines that we do not own, explores their schedules and tortures them.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use kinlock_cli::command;

mod checks;
mod explore;
mod reproduce;
mod sim;
mod simulation;
mod torture;
mod validate;

/// The laboratory of kinlock's locks: simulate them on machines that you do not own, explore their
/// schedules, torture them.
///
/// Exit status: 0 done, 1 a check failed, 2 bad input (with one line on stderr that says what is
/// wrong), 3 something broken on purpose was not caught by the check meant for it (`torture`,
/// `explore`).
#[derive(Parser)]
#[command(name = "kinlock-lab", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    Explore(explore::Args),
    Reproduce(reproduce::Args),
    Sim(sim::Args),
    Torture(torture::Args),
    Validate(validate::Args),
}

/// Runs the verb that the command line names, and turns its result into the exit status.
fn main() -> ExitCode {
    command::run(|cli: Cli| match cli.verb {
        Verb::Explore(args) => explore::run(&args),
        Verb::Reproduce(args) => reproduce::run(&args),
        Verb::Sim(args) => sim::run(&args),
        Verb::Torture(args) => torture::run(&args),
        Verb::Validate(args) => validate::run(&args),
    })
}
