//! The `kinlock` command: measure, torture and inspect locks on this machine.

use std::process::ExitCode;

mod args;
mod bench;
mod checks;
mod cli;
mod compare;
mod explore;
mod inherited;
mod machine;
mod outcome;
mod parameters;
mod record;
mod report;
mod reproduce;
mod run;
mod sim;
mod simulation;
mod stats;
mod topology;
mod torture;
mod validate;

fn main() -> ExitCode {
    inherited::keep_statuses();
    cli::run()
}
