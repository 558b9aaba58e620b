//! The `kinlock` command: measure, torture and inspect locks on this machine.

use std::process::ExitCode;

mod bench;
mod cli;
mod locks;
mod machine;
mod output;
mod reproduce;
mod sim;
mod verbs;

fn main() -> ExitCode {
    cli::run()
}
