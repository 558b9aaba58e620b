//! The command line of `kinlock`.

use std::ffi::OsString;
use std::process::ExitCode;

#[cfg(feature = "manual")]
use clap::CommandFactory;
use clap::{Parser, Subcommand};
use kinlock_cli::command;
use kinlock_cli::outcome::Outcome;
use kinlock_measure::background;

use crate::{compare, laboratory, record, run, topology};

/// Says whether a lock slows a program down, runs programs on other locks, and measures locks on
/// this machine.
///
/// The verbs of the laboratory (explore, reproduce, sim, torture, validate) are those of
/// `kinlock-lab`, which is executed if it lies beside this command.
///
/// Exit status: 0 done, 1 a check failed, 2 bad input (with one line on stderr that says what is
/// wrong), 126 and 127 `run` or `compare` cannot run the program or find it, 128 and the signal's
/// number (130 Ctrl-C) `bench` or `compare` was interrupted, and has reported the rounds that were
/// complete. After `run` the status is the program's, but 1 if a limit of --fail-if is exceeded.
#[derive(Parser)]
#[command(name = "kinlock", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
// A process has one value of this type, so its size does not matter.
#[allow(clippy::large_enum_variant)]
enum Verb {
    #[cfg(feature = "bench")]
    Bench(kinlock_bench::Args),
    Compare(compare::Args),
    Record(record::Args),
    Report(run::report::window::Args),
    Run(run::Args),
    Topology(topology::Args),
    /// Be busy until the process that started it ends.
    #[command(hide = true)]
    Hog {
        /// The number of that process.
        parent: u32,
    },
    /// Write the man pages and completions.
    #[cfg(feature = "manual")]
    #[command(hide = true)]
    Manual {
        /// Where to.
        folder: std::path::PathBuf,
    },
}

/// Runs the verb that the command line names, and turns its result into the exit status.
pub fn run() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    if let Some(verb) = laboratory::verb(&words) {
        return laboratory::become_it(verb, &words);
    }
    #[cfg(not(feature = "bench"))]
    if laboratory::named(&words).is_some_and(|word| word == "bench") {
        kinlock_cli::outcome::tell(
            "kinlock: this build has no bench, which compares locks on this machine with their \
             rivals: in a checkout, cargo run --release -- bench",
        );
        return ExitCode::from(2);
    }
    command::run(|cli: Cli| match cli.verb {
        #[cfg(feature = "bench")]
        Verb::Bench(args) => {
            run::outer::leave();
            kinlock_bench::run(&args)
        }
        Verb::Compare(args) => compare::run(&args),
        Verb::Record(args) => record::run(&args),
        Verb::Report(args) => run::report::window::run(&args),
        Verb::Run(args) => run::run(&args),
        Verb::Topology(args) => topology::run(args),
        Verb::Hog { parent } => background::be_busy(parent).map(|()| Outcome::Done),
        #[cfg(feature = "manual")]
        Verb::Manual { folder } => crate::manual::write(&Cli::command(), &folder),
    })
}
