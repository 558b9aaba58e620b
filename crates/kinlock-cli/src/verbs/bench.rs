//! `kinlock bench`: our primitives against the peers, on this machine.

mod ids;
mod invalidation;
mod locks;

use crate::bench::interleave::Extent;
use crate::cli::Outcome;
use crate::output::files::Outputs;

/// Measure our primitives against the peers on this machine.
///
/// Without the name of a primitive: locks, with the options below.
///
/// SIGINT (Ctrl-C) and SIGTERM end a run early, with a report of its complete rounds: one under way has a second to come to its end. A second signal ends the process at once. Exit status: 0 done, 2 bad input, 130 SIGINT, 143 SIGTERM.
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true, after_long_help = locks::AFTER_HELP)]
// The flattened options bring a group of the same name.
#[group(skip)]
pub struct Args {
    #[command(subcommand)]
    what: Option<What>,
    #[command(flatten)]
    locks: locks::Args,
}

/// What can be measured.
#[derive(clap::Subcommand)]
enum What {
    Invalidation(invalidation::Args),
    Locks(locks::Args),
    Ids(ids::Args),
}

/// Runs the verb.
///
/// # Errors
/// If the input is bad or the results cannot be written.
pub fn run(args: &Args) -> anyhow::Result<Outcome> {
    match &args.what {
        None => locks::run(&args.locks),
        Some(What::Invalidation(args)) => invalidation::run(args),
        Some(What::Locks(args)) => locks::run(args),
        Some(What::Ids(args)) => ids::run(args),
    }
}

/// Writes the report of what was measured. After an interruption a line on stderr says so; without a complete round that is all.
fn finish<R>(
    outputs: Outputs<R>,
    extent: Extent,
    report: impl FnOnce(Extent) -> R,
) -> anyhow::Result<Outcome> {
    if extent.rounds_done > 0 {
        outputs.write(&report(extent))?;
    }
    let Some((signal, what)) = extent.interrupted_by.zip(extent.interruption()) else {
        return Ok(Outcome::Done);
    };
    let rest = match extent.rounds_done {
        0 => ": nothing to report",
        _ => "",
    };
    eprintln!("kinlock: {what}{rest}");
    Ok(Outcome::Interrupted(signal))
}
