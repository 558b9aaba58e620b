//! The `kinlock` command: measure locks on this machine and in your programs.

use std::process::ExitCode;

mod cli;
mod compare;
mod inherited;
mod laboratory;
#[cfg(feature = "manual")]
mod manual;
mod record;
mod run;
mod topology;

fn main() -> ExitCode {
    inherited::keep_statuses();
    run::outer::forget();
    cli::run()
}
