//! What a run of the suite `locks` is to measure.

use std::time::Duration;

use super::runner::Timing;
use super::threads::ThreadCounts;
use super::workloads::WorkloadName;
use crate::locks::LockName;

/// Everything that decides what runs and in which order.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The locks, the baseline among them.
    pub locks: Vec<LockName>,
    /// The lock that the others are compared with.
    pub baseline: LockName,
    /// The workloads.
    pub workloads: Vec<WorkloadName>,
    /// The thread counts.
    pub threads: ThreadCounts,
    /// The timed slice of one lock in one round.
    pub seconds: f64,
    /// Rounds per cell (a workload with a number of threads).
    pub rounds: usize,
    /// Start of all random numbers.
    pub seed: u64,
}

/// What a whole run should take unless the length of a slice is given.
const BUDGET: f64 = 70.0;

impl Plan {
    /// The length of the timed slice that makes `slices` of them fit into the usual time, in seconds.
    pub fn seconds_for(slices: usize) -> f64 {
        (BUDGET / slices as f64 / Self::COST).clamp(0.01, 0.5)
    }

    /// How many timed slices there will be.
    pub fn slices(&self) -> usize {
        self.locks.len() * self.workloads.len() * self.threads.0.len() * self.rounds
    }

    /// The parts of one round of one lock.
    pub fn timing(&self) -> Timing {
        let timed = Duration::from_secs_f64(self.seconds);
        Timing {
            warm_up: (timed / 10).min(Duration::from_millis(100)),
            timed,
            instrumented: timed / 2,
        }
    }

    /// A round over its timed slice: the instrumented slice, two warm-ups, and stopping.
    const COST: f64 = 1.9;
}
