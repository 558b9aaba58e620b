//! Flags for results that stand out, and warnings about doubtful ones.

use std::collections::BTreeSet;

use kinlock_cli::args::Named;
use kinlock_measure::stats::Summary;

use super::{Locks, work_loop, workloads};
use crate::harness::suite::{Entry, Plan, cpus};

/// The slowest thread did less than this share of the mean: the lock is `unfair`.
const UNFAIR: f64 = 0.25;
/// The 99.9 % wait is more than this factor longer than the median over the locks of the cell: the
/// lock has a `long_tail`.
const LONG_TAIL: f64 = 10.0;
/// The rounds disagree on whether the lock is faster or slower than the baseline.
pub const NOISY: &str = "noisy";

/// How long a cell has to run, in seconds per thread on each CPU, before starved threads can be
/// told from threads that were not scheduled. This is a few time slices.
const SECONDS_PER_THREAD: f64 = 0.02;

/// Sets the flags of all entries.
pub fn raise(results: &mut [Entry<Locks>]) {
    for cell in results.chunk_by_mut(|a, b| (a.workload, a.threads) == (b.workload, b.threads)) {
        let tails = cell.iter().map(|entry| entry.detail.acquire_ns.p999 as f64);
        let middle_tail = Summary::of(tails).median;
        for entry in cell {
            let is_judged = can_judge_fairness(entry);
            let unfair = entry.fairness.min_over_mean < UNFAIR && is_judged;
            let tail = entry.detail.acquire_ns.p999 as f64;
            let long_tail = entry.threads > 1 && tail > LONG_TAIL * middle_tail;
            let all = [
                (unfair, "unfair"),
                (long_tail, "long_tail"),
                (entry.noisy, NOISY),
            ];
            let raised = all.into_iter().filter(|(raised, _)| *raised);
            entry.detail.flags = raised.map(|(_, flag)| flag).collect();
        }
    }
}

/// What to keep in mind when reading the results, in sentences.
pub fn warnings(suite: &Locks, plan: &Plan<Locks>, results: &[Entry<Locks>]) -> Vec<String> {
    let condvar = without_condvar(suite, plan);
    let all = [
        drift(),
        strict_order(suite, plan),
        condvar,
        not_judged(plan, results),
    ];
    all.into_iter().flatten().collect()
}

fn drift() -> Option<String> {
    let drift = work_loop::measure_again() / work_loop::ns_per_iteration();
    (!(0.9..1.1).contains(&drift)).then(|| {
        format!(
            "the same work takes {drift:.2} times as long after the run as before: frequency \
            or neighbours have changed"
        )
    })
}

/// A warning about locks in strict order of arrival.
fn strict_order(suite: &Locks, plan: &Plan<Locks>) -> Option<String> {
    let mut fifo = suite.locks.clone();
    fifo.retain(|lock| lock.is_strict_fifo());
    let most = left_to_users(plan).map(|(_, threads)| threads).max();
    let most = most.unwrap_or(1);
    let names: Vec<_> = fifo.iter().map(|lock| lock.name()).collect();
    let left_out = match fifo.iter().any(|&lock| suite.leaves_out(lock, most)) {
        true => "; left out with very many threads, unless named by --locks",
        false => "",
    };
    (most > cpus() && !fifo.is_empty()).then(|| {
        format!(
            "{}: strict order collapses with more threads than CPUs, as the next in line is seldom \
             running{left_out}",
            names.join(", ")
        )
    })
}

/// A warning about locks that cannot run all workloads that were asked for.
fn without_condvar(suite: &Locks, plan: &Plan<Locks>) -> Option<String> {
    let workloads = plan.workloads.iter();
    let workloads = workloads.filter(|&&workload| workloads::own_threads(workload).is_some());
    let workloads: Vec<_> = workloads.map(|workload| workload.name()).collect();
    let locks = suite.locks.iter().filter(|lock| !lock.has_condvar());
    let locks: Vec<_> = locks.map(|lock| lock.name()).collect();
    let asked = suite.leaves_none_out && !workloads.is_empty() && !locks.is_empty();
    asked.then(|| {
        format!(
            "not measured in {}, for want of a condition variable: {}",
            enumerated(&workloads),
            locks.join(", ")
        )
    })
}

/// `a, b and c`.
fn enumerated(names: &[&str]) -> String {
    match names {
        [others @ .., last] if !others.is_empty() => format!("{} and {last}", others.join(", ")),
        _ => names.concat(),
    }
}

/// A warning about cells that were too short to tell whether a lock is fair.
fn not_judged(plan: &Plan<Locks>, results: &[Entry<Locks>]) -> Option<String> {
    let asked: Vec<_> = left_to_users(plan).collect();
    let asked = results
        .iter()
        .filter(|entry| asked.contains(&(entry.workload, entry.threads)));
    let too_short = asked.filter(|entry| !can_judge_fairness(entry));
    let threads: BTreeSet<_> = too_short.map(|entry| entry.threads).collect();
    let threads: Vec<_> = threads.iter().map(usize::to_string).collect();
    (!threads.is_empty()).then(|| {
        let threads = threads.join(", ");
        format!("the run is too short to judge how fair locks are at {threads} threads")
    })
}

/// The workloads without a fixed number of threads, with their numbers of threads.
fn left_to_users(plan: &Plan<Locks>) -> impl Iterator<Item = (&'static str, usize)> {
    let workloads = plan.workloads.iter().copied();
    let workloads = workloads.filter(|&workload| workloads::own_threads(workload).is_none());
    workloads.flat_map(|workload| {
        let threads = plan.threads_in(workload).into_iter();
        threads.map(move |threads| (workload.name(), threads))
    })
}

/// Whether the rounds are long enough to judge fairness.
fn can_judge_fairness(entry: &Entry<Locks>) -> bool {
    let needs = match entry.threads {
        1 => 0.0,
        threads => SECONDS_PER_THREAD * threads.div_ceil(cpus()) as f64,
    };
    needs <= entry.rounds.iter().map(|round| round.seconds).sum()
}
