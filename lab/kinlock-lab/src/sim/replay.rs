//! How long a recorded program would wait for its locks.

use std::io::Write;

use kinlock_cli::report::cells::Cells;
use kinlock_measure::stats::Summary;

use super::results::{Entry, Report, Simulated};
use crate::simulation::band::{band_of_pairs, over, scaled};
use crate::simulation::provenance::WorkloadEntry;

/// The number of locks of a program with a sentence of their own.
const SHOWN: usize = 3;

/// A note on the limits of replays.
const UNKNOWN: &str = "A replay knows how long and how often locks were held, not why. It assumes \
    that more threads do the same work each, as fast as on the machine of the recording, and that \
    holds take as long with more threads. It knows no nesting of locks, no conditions that threads \
    wait for, no input or output, and no data that the threads share outside their locks.";

/// Writes how fast each recorded program would be, and how long it would wait for which lock.
pub fn write(report: &Report, out: &mut dyn Write) -> anyhow::Result<()> {
    let workloads = &report.setup.parameters.workloads;
    for workload in workloads.iter().filter(|w| !w.program_locks.is_empty()) {
        for cell in report
            .cells()
            .filter(|cell| cell[0].workload == workload.name)
        {
            sentences(report, workload, cell, out)?;
        }
        writeln!(out, "\n{UNKNOWN}\n")?;
    }
    Ok(())
}

/// A sentence about the speed with one number of threads, and one for each of the locks that are
/// waited for most.
fn sentences(
    report: &Report,
    workload: &WorkloadEntry,
    cell: &[Entry],
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let baseline = &report.setup.parameters.baseline;
    let (base, others): (Vec<_>, Vec<_>) = cell.iter().partition(|entry| entry.lock == *baseline);
    let Some(base) = base.first() else {
        return Ok(());
    };
    let under = |of_lock: &dyn Fn(&Entry) -> String| {
        let others = others.iter();
        let others = others.map(|other| format!("; under {} {}", other.lock, of_lock(other)));
        others.collect::<String>()
    };
    let program = format!(
        "on {} with {} {} your program would",
        report.setup.machine.name,
        base.threads,
        if base.threads == 1 {
            "thread"
        } else {
            "threads"
        },
    );
    if let Some(recorded) = workload.recorded_per_second.filter(|&rate| rate > 0.0) {
        let speed = |entry: &Entry| {
            let Summary { median, min, max } = scaled(entry.ops_per_us, 1e6 / recorded);
            format!("{median:.2}x [{min:.2}, {max:.2}]")
        };
        writeln!(
            out,
            "{program} have {} of the recorded speed under {baseline}{}",
            speed(base),
            under(&speed),
        )?;
    }
    let names = &workload.program_locks;
    let mut locks: Vec<_> = (0..names.len()).map(|n| (n, share(base, n))).collect();
    locks.sort_by(|(_, a), (_, b)| b.median.total_cmp(&a.median));
    for (number, of_base) in locks.into_iter().take(SHOWN) {
        writeln!(
            out,
            "{program} spend {} of its time waiting for lock {} under {baseline}{}",
            percent(of_base),
            names[number],
            under(&|other| percent(share(other, number))),
        )?;
    }
    Ok(())
}

/// The share of the threads' time between asking for a lock and having it.
fn share(entry: &Entry, lock: usize) -> Summary {
    let of_run = |run: &Simulated| {
        let outcome = &run.sample.outcome;
        let waited = outcome
            .waited
            .get(lock)
            .map_or(0.0, |waited| waited.wait_ns);
        over(waited, entry.threads as f64 * outcome.seconds * 1e9)
    };
    band_of_pairs(entry.runs.iter().map(|run| (&run.sample, of_run(run))))
}

/// `12.3 % [11.9, 12.8]`.
fn percent(share: Summary) -> String {
    let Summary { median, min, max } = scaled(share, 100.0);
    format!("{median:.1} % [{min:.1}, {max:.1}]")
}
