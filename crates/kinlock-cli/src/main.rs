//! The `kinlock` command: measure, torture and inspect locks on this machine.

use std::process::ExitCode;

mod args;
mod bench;
mod cli;
mod machine;
mod outcome;
mod report;
mod reproduce;
mod sim;
mod stats;
mod topology;
mod verbs;

fn main() -> ExitCode {
    cli::run()
}
