//! `kinlock bench`: our primitives against the peers, on this machine.

mod ids;
mod invalidation;
mod locks;

use crate::bench::interleave::Extent;
use crate::outcome::Outcome;
use crate::outcome::tell;
use crate::report::write::Outputs;

/// Measure our primitives against the peers on this machine.
///
/// Without the name of a primitive: locks, with the options below.
///
/// SIGINT (Ctrl-C) and SIGTERM end a run early, with a report of its complete rounds: one under way has a second to come to its end; stopping its threads comes on top of that. Another signal ends the process at once, unless it comes within 0.3 s. Exit status: 0 done, 2 bad input, 130 SIGINT, 143 SIGTERM.
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
///
/// A `verdict` that something is wrong is worse news than an interruption, which the report has too.
fn finish<R>(
    outputs: Outputs<R>,
    extent: Extent,
    verdict: Outcome,
    report: impl FnOnce() -> R,
) -> anyhow::Result<Outcome> {
    let written = match extent.rounds_done {
        0 => Ok(()),
        _ => outputs.write(&report()),
    };
    // Also where that failed, which is one more thing to know.
    if let Some(what) = extent.interruption() {
        let rest = match extent.rounds_done {
            0 => ": nothing to report",
            _ => "",
        };
        tell(&format!("kinlock: {what}{rest}"));
    }
    written?;
    Ok(match extent.interrupted_by {
        Some(signal) if verdict == Outcome::Done => Outcome::Interrupted(signal),
        _ => verdict,
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use anyhow::bail;

    use super::*;
    use crate::outcome::Signal;

    fn extent(rounds_done: usize, interrupted_by: Option<Signal>) -> Extent {
        Extent {
            rounds_asked: 2,
            rounds_done,
            interrupted_by,
        }
    }

    #[test]
    fn what_is_wrong_is_worse_than_an_interruption() {
        use Outcome::{CheckFailed, Done, Interrupted};
        let signal = Some(Signal::Terminate);
        let cases = [
            (None, Done, Done),
            (None, CheckFailed, CheckFailed),
            (signal, Done, Interrupted(Signal::Terminate)),
            (signal, CheckFailed, CheckFailed),
        ];
        for (signal, verdict, outcome) in cases {
            for done in [0, 1] {
                let finished = finish(Outputs::new(), extent(done, signal), verdict, || ());
                assert_eq!(finished.unwrap(), outcome);
            }
        }
    }

    #[test]
    fn what_cannot_be_written_is_an_error_if_there_is_something_to_write() {
        let folder = tempfile::tempdir().unwrap();
        let outputs = || {
            let mut outputs = Outputs::new();
            let path = folder.path().join("r.json");
            let fails = |_: &(), _: &mut dyn std::io::Write| bail!("no");
            let path: &Path = &path;
            outputs.add(Some(path), fails).unwrap();
            outputs
        };
        let signal = Some(Signal::Interrupt);
        assert!(finish(outputs(), extent(1, signal), Outcome::Done, || ()).is_err());
        assert!(finish(outputs(), extent(0, signal), Outcome::Done, || ()).is_ok());
    }
}
