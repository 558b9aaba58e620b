//! What stands out in the results, and what makes them doubtful.

use std::fmt;

use serde::Serialize;

use super::interleave::Extent;
use super::plan::Plan;
use super::results::Entry;
use super::stats::{Summary, is_noisy};
use super::{rounds, work_loop};
use crate::locks::LockName;
use crate::machine::Machine;

/// Something to notice about a lock in a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Flag {
    /// The slowest thread did less than a quarter of the mean.
    Unfair,
    /// The 99.9 % wait is more than ten times that of the middle lock of the cell.
    LongTail,
    /// The rounds disagree on whether the lock is faster or slower than the baseline: the middle half of their ratios
    /// includes 1 and spans more than 10 %.
    Noisy,
}

impl fmt::Display for Flag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Unfair => "unfair",
            Self::LongTail => "long tail",
            Self::Noisy => "noisy",
        })
    }
}

const UNFAIR: f64 = 0.25;
const LONG_TAIL: f64 = 10.0;

/// How long a cell has to run, in seconds per thread on each CPU, before starved threads can be told from threads that
/// were not scheduled: some time slices.
const SECONDS_PER_THREAD: f64 = 0.02;

/// Marks what stands out.
pub fn raise(results: &mut [Entry], plan: &Plan) {
    for cell in results.chunk_by_mut(|a, b| (a.workload, a.threads) == (b.workload, b.threads)) {
        let middle_tail = Summary::of(cell.iter().map(|entry| entry.acquire_ns.p999 as f64)).median;
        for entry in cell {
            let unfair = entry.fairness.min_over_mean < UNFAIR && can_judge_fairness(entry, plan);
            let long_tail =
                entry.threads > 1 && entry.acquire_ns.p999 as f64 > LONG_TAIL * middle_tail;
            let noisy = is_noisy(entry.rounds.iter().map(|round| round.ratio));
            entry.flags.extend(unfair.then_some(Flag::Unfair));
            entry.flags.extend(long_tail.then_some(Flag::LongTail));
            entry.flags.extend(noisy.then_some(Flag::Noisy));
        }
    }
}

/// What to keep in mind when reading the results, in sentences.
pub fn warnings(results: &[Entry], plan: &Plan, machine: &Machine, extent: &Extent) -> Vec<String> {
    let first = [extent.warning(), rounds::busy(machine)];
    let mut warnings: Vec<_> = first.into_iter().flatten().collect();
    let cpus = machine.usable_cpus;
    let governor = machine.governor.as_deref();
    if let Some(governor) = governor.filter(|&governor| governor != "performance") {
        warnings.push(format!(
            "the CPU frequency governor is {governor:?}: frequencies change during the run"
        ));
    }
    let drift = work_loop::measure_again() / work_loop::ns_per_iteration();
    if !(0.9..1.1).contains(&drift) {
        warnings.push(format!(
            "the same work takes {drift:.2} times as long after the run as before: frequency or neighbours have changed"
        ));
    }
    let noisy = results
        .iter()
        .filter(|e| e.flags.contains(&Flag::Noisy))
        .count();
    if noisy > 0 {
        warnings.push(format!(
            "{noisy} of {} ratios mean nothing (marked ~, flagged noisy): their rounds disagree on which lock is faster; more --rounds or --seconds help",
            results.len()
        ));
    }
    warnings.extend(strict_order(plan, cpus));
    warnings.extend(without_condvar(plan));
    let is_not_judged = |threads| {
        let mut cells = results.iter().filter(|entry| entry.threads == threads);
        cells.any(|entry| !can_judge_fairness(entry, plan))
    };
    let not_judged: Vec<_> = plan
        .threads
        .0
        .iter()
        .filter(|_| plan.workloads.iter().any(|w| w.own_threads().is_none()))
        .filter(|&&threads| is_not_judged(threads))
        .map(|threads| threads.to_string())
        .collect();
    if !not_judged.is_empty() {
        warnings.push(format!(
            "the run is too short to call a lock unfair at {} threads: not every thread gets a CPU in that time",
            not_judged.join(", ")
        ));
    }
    for lock in LockName::ALL {
        if let Some(remedy) = lock.unavailable() {
            warnings.push(format!("{lock} was not measured: {remedy}"));
        }
    }
    warnings
}

/// What to expect of locks in strict order of arrival.
fn strict_order(plan: &Plan, cpus: usize) -> Vec<String> {
    let fifo = plan
        .locks
        .iter()
        .copied()
        .filter(|lock| lock.is_strict_fifo());
    let most = plan.threads.0.iter().copied().max().unwrap_or(1);
    fifo.filter(|_| most > cpus)
        .map(|lock| {
            let left_out = if plan.leaves_out(lock, most) {
                "; it is left out with very many threads, unless named by --locks"
            } else {
                ""
            };
            format!(
                "{lock} collapses with more threads than CPUs, as spinning in strict order must: the next in line is seldom running{left_out}"
            )
        })
        .collect()
}

/// Which locks that were asked for cannot do all that was asked for.
fn without_condvar(plan: &Plan) -> Option<String> {
    let workloads = plan.workloads.iter().filter(|w| w.own_threads().is_some());
    let workloads: Vec<_> = workloads.map(|w| w.name()).collect();
    let locks = plan.locks.iter().filter(|lock| !lock.has_condvar());
    let locks: Vec<_> = locks.map(|lock| lock.name()).collect();
    let asked = plan.leaves_none_out && !workloads.is_empty() && !locks.is_empty();
    asked.then(|| {
        format!(
            "not measured in {}, for want of a condition variable: {}",
            workloads.join(" and "),
            locks.join(", ")
        )
    })
}

/// Whether the rounds that there are suffice for that.
fn can_judge_fairness(entry: &Entry, plan: &Plan) -> bool {
    fairness_needs(entry.threads) <= plan.seconds * entry.rounds.len() as f64
}

/// How long a cell with so many threads has to run before fairness can be judged, in seconds.
fn fairness_needs(threads: usize) -> f64 {
    let cpus = kinlock_verify::allowed_cpus().len().max(1);
    if threads == 1 {
        return 0.0;
    }
    SECONDS_PER_THREAD * threads.div_ceil(cpus) as f64
}
