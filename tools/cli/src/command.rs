//! Parses a command line, runs its verb, and turns an error into one line and an exit status.

use std::ffi::OsString;
use std::io;
use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;

use crate::outcome::{Failure, Outcome, tell};

/// Parses the command line of this process and runs what it asks for. An error becomes one line on
/// stderr that begins with the name of the command.
pub fn run<C: Parser>(verb: impl FnOnce(C) -> anyhow::Result<Outcome>) -> ExitCode {
    let cli = match C::try_parse() {
        Ok(cli) => cli,
        Err(error) => return report_usage::<C>(&error),
    };
    let name = C::command().get_name().to_owned();
    match verb(cli) {
        Ok(outcome) => ExitCode::from(outcome.exit_status()),
        // The reader of our output has closed the pipe: that is no error.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            tell(&format!("{name}: {}", one_line(&format!("{error:#}"))));
            let failure: Option<&Failure> = error.downcast_ref();
            ExitCode::from(failure.map_or(2, |failure| failure.status))
        }
    }
}

/// Help and version go out as clap writes them; an error becomes one line.
fn report_usage<C: Parser>(error: &clap::Error) -> ExitCode {
    match error.kind() {
        ErrorKind::DisplayHelp
        | ErrorKind::DisplayVersion
        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = error.print();
            ExitCode::from(if error.use_stderr() { 2 } else { 0 })
        }
        kind => {
            let text = error.to_string();
            // clap's first paragraph says what is wrong; the others are usage and advice.
            let wrong = text.split("\n\n").next().unwrap_or(&text);
            let wrong = wrong.strip_prefix("error: ").unwrap_or(wrong);
            let known = C::command();
            let name = known.get_name().to_owned();
            let (words, command) = known_part(known, std::env::args_os().skip(1));
            let known = match kind {
                ErrorKind::InvalidSubcommand => format!("; known: {}", subcommands(&command)),
                _ => String::new(),
            };
            let wrong = one_line(wrong);
            tell(&format!("{name}: {wrong}{known} (see `{words} --help`)"));
            ExitCode::from(2)
        }
    }
}

/// The leading words of a command line that name known subcommands, as text, and the last of these
/// subcommands.
fn known_part(
    mut known: clap::Command,
    asked: impl Iterator<Item = OsString>,
) -> (String, clap::Command) {
    let mut words = known.get_name().to_owned();
    for word in asked {
        let Some(verb) = known.find_subcommand(&word).cloned() else {
            break;
        };
        words = format!("{words} {}", verb.get_name());
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
