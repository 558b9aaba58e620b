//! Rounds of which only operations and time are known, and what they say together.

use std::time::Duration;

use serde::Serialize;

use crate::machine::Machine;
use crate::stats::{Fairness, Summary, is_noisy};

/// One round of one contender.
#[derive(Debug, Serialize)]
pub struct Round {
    /// Its place in the order of the round, from 0.
    pub place: usize,
    /// Length of the slice; for `intermittent`, the time inside bursts.
    pub seconds: f64,
    /// Throughput.
    pub ops_per_s: f64,
    /// Over the baseline's throughput in this round.
    pub ratio: f64,
    /// Operations of each thread.
    pub ops_per_thread: Vec<u64>,
}

impl Round {
    /// Of a slice and the baseline's throughput.
    pub fn new(place: usize, ops: &[u64], elapsed: Duration, baseline: f64) -> Self {
        let ops_per_s = ops_per_s(ops, elapsed);
        Self {
            place,
            seconds: elapsed.as_secs_f64(),
            ops_per_s,
            ratio: ops_per_s / baseline,
            ops_per_thread: ops.to_vec(),
        }
    }
}

/// Operations of all threads per second, taken to be at least one in all.
pub fn ops_per_s(ops: &[u64], elapsed: Duration) -> f64 {
    ops.iter().sum::<u64>().max(1) as f64 / elapsed.as_secs_f64()
}

/// What all rounds of one contender say.
#[derive(Clone, Copy, Debug)]
pub struct Conclusions {
    /// Throughput.
    pub ops_per_s: Summary,
    /// Nanoseconds from one operation to the next, of whichever thread.
    pub ns_per_op: Summary,
    /// Throughput over the baseline's.
    pub ratio: Summary,
    /// Whether the rounds disagree on which is faster.
    pub noisy: bool,
    /// Over the operations of all rounds together.
    pub fairness: Fairness,
}

impl Conclusions {
    /// Of at least one round.
    pub fn of(rounds: &[Round]) -> Self {
        Self {
            ops_per_s: Summary::of(rounds.iter().map(|round| round.ops_per_s)),
            ns_per_op: Summary::of(rounds.iter().map(|round| 1e9 / round.ops_per_s)),
            ratio: Summary::of(rounds.iter().map(|round| round.ratio)),
            noisy: is_noisy(rounds.iter().map(|round| round.ratio)),
            fairness: Fairness::over(rounds.iter().map(|round| &round.ops_per_thread[..])),
        }
    }
}

/// What to keep in mind where the machine was busy.
pub fn busy(machine: &Machine) -> Option<String> {
    let (load, cpus) = (machine.load_average, machine.usable_cpus);
    (load > 0.3 * cpus as f64).then(|| {
        format!(
            "the machine was busy before the run (load average {load:.1} on {cpus} CPUs): trust ratios, not absolute numbers"
        )
    })
}

/// What to keep in mind where some of the ratios are noisy.
pub fn noisy(ratios: impl ExactSizeIterator<Item = bool>) -> Option<String> {
    let all = ratios.len();
    let noisy = ratios.filter(|&noisy| noisy).count();
    (noisy > 0).then(|| {
        format!(
            "{noisy} of {all} ratios mean nothing (marked ~): their rounds disagree on which is faster; more --rounds or --seconds help"
        )
    })
}
