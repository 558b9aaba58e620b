//! Runs a plan: cell by cell, round by round, every lock once per round.

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
    /// One sample per round, in the order of rounds.
    pub samples: Vec<Sample>,
    /// The lock's place in the order of each round, from 0.
    pub places: Vec<usize>,
}

/// Runs everything; `progress(what)` is called before each round of each lock.
///
/// # Errors
/// If a workload cannot be prepared, or the threads cannot be started.
pub fn run(plan: &Plan, mut progress: impl FnMut(&str)) -> anyhow::Result<Vec<Measured>> {
    // All workloads before the first measurement: whatever is missing is missed now.
    let prepared: Vec<_> = plan
        .workloads
        .iter()
        .map(|&name| Ok((name, workloads::prepare(name, plan.db.as_deref())?)))
        .collect::<anyhow::Result<_>>()?;
    let timing = plan.timing();
    let mut order_rng = Rng::new(plan.seed, u64::MAX);
    let mut results = Vec::new();

    for (workload, mut work) in prepared {
        for threads in plan.threads_of(workload) {
            let team = Team::start(threads, plan.cpus(threads))?;
            let mut cell: Vec<_> = plan
                .locks_in(workload, threads)
                .map(|lock| Measured {
                    lock,
                    workload,
                    threads,
                    samples: Vec::new(),
                    places: Vec::new(),
                })
                .collect();
            let mut order: Vec<usize> = (0..cell.len()).collect();
            for round in 0..plan.rounds {
                order_rng.shuffle(&mut order);
                for (place, &index) in order.iter().enumerate() {
                    let measured = &mut cell[index];
                    progress(&format!("{workload}, {threads} threads, {}", measured.lock));
                    // The same stream of random numbers for every lock of the round.
                    let seed = plan.seed.wrapping_add(round as u64);
                    let sample = work.round(measured.lock, &team, &timing, seed);
                    measured.samples.push(sample);
                    measured.places.push(place);
                }
            }
            results.extend(cell);
        }
    }
    Ok(results)
}
