//! Runs a plan: cell by cell, round by round, every lock once per round.

use super::interleave::{Placed, Rounds, Turn};
use super::plan::Plan;
use super::rng::Rng;
use super::runner::Sample;
use super::team::Team;
use super::workloads::{self, WorkloadName};
use crate::locks::LockName;

/// All rounds of one lock in one cell.
#[derive(Clone, Debug)]
pub struct Measured {
    /// The lock.
    pub lock: LockName,
    /// The workload of the cell.
    pub workload: WorkloadName,
    /// The threads of the cell.
    pub threads: usize,
    /// One sample per round, in the order of rounds, each with the lock's place in the order of its round, from 0.
    pub samples: Vec<Placed<Sample>>,
}

impl Measured {
    /// The samples alone.
    pub fn samples(&self) -> impl Iterator<Item = &Sample> {
        self.samples.iter().map(|(_, sample)| sample)
    }
}

/// Runs everything, or as much as there is time for; `progress(what)` is called before each round of each lock. Cells without a complete round are left out.
///
/// # Errors
/// If a workload cannot be prepared, or the threads cannot be started.
pub fn run(
    plan: &Plan,
    rounds: &mut Rounds,
    mut progress: impl FnMut(&str),
) -> anyhow::Result<Vec<Measured>> {
    // All workloads before the first measurement: whatever is missing is missed now.
    let mut prepared = Vec::with_capacity(plan.workloads.len());
    for &name in &plan.workloads {
        let work = workloads::prepare(name, plan.db.as_deref());
        if !rounds.go_on() {
            // An error may come from just that.
            return Ok(Vec::new());
        }
        prepared.push((name, work?));
    }
    let timing = plan.timing();
    let mut order_rng = Rng::new(plan.seed, u64::MAX);
    let mut results = Vec::new();

    for (workload, mut work) in prepared {
        for threads in plan.threads_of(workload) {
            if !rounds.go_on() {
                return Ok(results);
            }
            let team = Team::start(threads, plan.cpus(threads))?;
            let locks: Vec<_> = plan.locks_in(workload, threads).collect();
            let sample = |Turn { subject, round }| {
                let lock = locks[subject];
                progress(&format!("{workload}, {threads} threads, {lock}"));
                // The same stream of random numbers for every lock of the round.
                let seed = plan.seed.wrapping_add(round as u64);
                Ok(work.round(lock, &team, &timing, seed))
            };
            let samples = rounds.run(plan.rounds, locks.len(), &mut order_rng, sample)?;
            let cell = locks.iter().zip(samples).map(|(&lock, samples)| Measured {
                lock,
                workload,
                threads,
                samples,
            });
            results.extend(cell.filter(|measured| !measured.samples.is_empty()));
        }
    }
    Ok(results)
}
