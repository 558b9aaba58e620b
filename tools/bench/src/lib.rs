//! The verb `kinlock bench`: our primitives against their peers, on this machine.
//!
//! A primitive is a suite; [`harness`] is what the suites share.

mod harness;
mod ids;
mod invalidation;
mod locks;

use kinlock_cli::outcome::Outcome;

/// Measure our primitives against their peers on this machine.
///
/// Without the name of a primitive, measures locks, with the options below. The report fits on a
/// screen: the throughput of each lock, and what it means. --details, --markdown and --json say
/// more.
///
/// SIGINT (Ctrl-C), SIGTERM, SIGHUP and SIGQUIT end a run early, with a report of its complete
/// rounds: one under way has a second to complete. A second signal ends the process at once, unless
/// it comes within 0.3 s. Exit status: 0 done, 2 bad input, 128 and the signal's number (130
/// SIGINT).
///
/// Example: kinlock bench --workload counter,long --threads 1,4,16
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true, after_long_help = locks::AFTER_HELP)]
// The flattened options have a group of the same name.
#[group(skip)]
pub struct Args {
    #[command(subcommand)]
    what: Option<What>,
    #[command(flatten)]
    locks: locks::Args,
}

#[derive(clap::Subcommand)]
enum What {
    Invalidation(invalidation::Args),
    Locks(locks::Args),
    Ids(ids::Args),
}

/// Measures, and reports.
///
/// # Errors
/// If the arguments contradict each other or do not suit this machine, or if a report cannot be
/// written.
pub fn run(args: &Args) -> anyhow::Result<Outcome> {
    match &args.what {
        None => locks::run(&args.locks),
        Some(What::Invalidation(args)) => invalidation::run(args),
        Some(What::Locks(args)) => locks::run(args),
        Some(What::Ids(args)) => ids::run(args),
    }
}
