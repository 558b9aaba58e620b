//! The command line: which verb, and what the process's exit status says about how it went.

use std::io;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, Subcommand};

use crate::bench::hogs;
use crate::outcome::{Failure, tell};
use crate::{bench, compare, explore, record, reproduce, run, sim, topology, torture, validate};

/// Locks that stay fast on big machines: measure them, torture them, see what they see of your
/// machine.
///
/// Exit status: 0 done, 1 a check failed, 2 bad input (with one line on stderr that says what is
/// wrong), 3 something broken on purpose was not caught by the check meant for it (`torture`,
/// `explore`), 126 and 127 `run` or `compare` cannot run the program or find it, 130 and 143
/// `bench` or `compare` was interrupted by SIGINT (Ctrl-C) or SIGTERM, and has reported the rounds
/// that were complete. After `run` the status is the program's.
#[derive(Parser)]
#[command(name = "kinlock", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    Bench(bench::Args),
    Compare(compare::Args),
    Explore(explore::Args),
    Record(record::Args),
    Reproduce(reproduce::Args),
    Run(run::Args),
    Sim(sim::Args),
    Topology(topology::Args),
    Torture(torture::Args),
    Validate(validate::Args),
    #[command(hide = true)]
    Hog(hogs::Args),
}

/// Parses the command line, runs the verb, and turns the result into the exit status.
pub fn run() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return report_usage(&error),
    };
    let outcome = match cli.verb {
        Verb::Bench(args) => bench::run(&args),
        Verb::Compare(args) => compare::run(&args),
        Verb::Explore(args) => explore::run(&args),
        Verb::Record(args) => record::run(&args),
        Verb::Reproduce(args) => reproduce::run(&args),
        Verb::Run(args) => run::run(&args),
        Verb::Sim(args) => sim::run(&args),
        Verb::Topology(args) => topology::run(args),
        Verb::Torture(args) => torture::run(&args),
        Verb::Validate(args) => validate::run(&args),
        Verb::Hog(args) => hogs::run(&args),
    };
    match outcome {
        Ok(outcome) => ExitCode::from(outcome.exit_status()),
        // The reader of our output has seen enough.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            tell(&format!("kinlock: {}", one_line(&format!("{error:#}"))));
            let failure: Option<&Failure> = error.downcast_ref();
            ExitCode::from(failure.map_or(2, |failure| failure.status))
        }
    }
}

/// Help and version go out as clap writes them; an error becomes one line.
fn report_usage(error: &clap::Error) -> ExitCode {
    match error.kind() {
        ErrorKind::DisplayHelp
        | ErrorKind::DisplayVersion
        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = error.print();
            ExitCode::from(if error.use_stderr() { 2 } else { 0 })
        }
        kind => {
            let text = error.to_string();
            // clap puts what is wrong into the first paragraph, usage and advice into the others.
            let wrong = text.split("\n\n").next().unwrap_or(&text);
            let wrong = wrong.strip_prefix("error: ").unwrap_or(wrong);
            let (words, command) = known_part();
            let known = match kind {
                ErrorKind::InvalidSubcommand => format!("; known: {}", subcommands(&command)),
                _ => String::new(),
            };
            let wrong = one_line(wrong);
            tell(&format!("kinlock: {wrong}{known} (see `{words} --help`)"));
            ExitCode::from(2)
        }
    }
}

/// What was asked for, as far as it is known, in words and as clap knows it.
fn known_part() -> (String, clap::Command) {
    let mut known = Cli::command();
    let mut words = "kinlock".to_owned();
    for word in std::env::args().skip(1) {
        let Some(verb) = known.find_subcommand(&word).cloned() else {
            break;
        };
        words = format!("{words} {word}");
        known = verb;
    }
    (words, known)
}

fn subcommands(command: &clap::Command) -> String {
    let names: Vec<_> = command
        .get_subcommands()
        .filter(|command| !command.is_hide_set())
        .map(clap::Command::get_name)
        .collect();
    names.join(", ")
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        let own = cause.downcast_ref().map(io::Error::kind);
        let json = cause
            .downcast_ref()
            .and_then(serde_json::Error::io_error_kind);
        own.or(json) == Some(io::ErrorKind::BrokenPipe)
    })
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
