//! The `kinlock-lab` command: what convinces us of kinlock's locks. It simulates them on machines
//! that we do not own, explores their schedules and tortures them.

use std::process::ExitCode;

mod checks;
mod cli;
mod explore;
mod reproduce;
mod sim;
mod simulation;
mod torture;
mod validate;

fn main() -> ExitCode {
    cli::run()
}
