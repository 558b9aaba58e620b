//! What a run of the suite `locks` is to measure.

use std::path::PathBuf;
use std::time::Duration;

use super::placement::{self, Pin};
use super::runner::Timing;
use super::workloads::WorkloadName;
use crate::args::ThreadCounts;
use crate::locks::LockName;

/// Everything that decides what runs and in which order.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The locks, the baseline among them.
    pub locks: Vec<LockName>,
    /// The lock that the others are compared with.
    pub baseline: LockName,
    /// Whether to measure locks also where they collapse.
    pub leaves_none_out: bool,
    /// The workloads.
    pub workloads: Vec<WorkloadName>,
    /// The thread counts.
    pub threads: ThreadCounts,
    /// The timed slice of one lock in one round.
    pub seconds: f64,
    /// Rounds per cell (a workload with a number of threads).
    pub rounds: usize,
    /// How threads are bound to CPUs; `None`: as is usual for their number.
    pub pin: Option<Pin>,
    /// The database of `readrandom`, if it is not the command's own.
    pub db: Option<PathBuf>,
    /// Start of all random numbers.
    pub seed: u64,
}

/// What a whole run should take unless the length of a slice is given, in seconds.
const BUDGET: f64 = 60.0;
/// A lock's turn in a round, over its timed slice: the instrumented slice and two warm-ups come to it.
const TURN: f64 = 1.0 + 0.5 + 2.0 * 0.1;
/// What starting and stopping the threads adds to a turn, in seconds.
const START_AND_STOP: f64 = 0.005;

/// From how many threads per CPU locks in strict order are left out, unless they are asked for. A hand-off then takes
/// some milliseconds for every thread in the queue, and to stop, every thread has to get the lock once more.
const CROWD: usize = 16;

impl Plan {
    /// The length of the timed slice that makes the whole run fit into the usual time, in seconds.
    pub fn usual_seconds(&self) -> f64 {
        let turn = BUDGET / self.slices() as f64 - START_AND_STOP;
        (turn / TURN).clamp(0.01, 0.5)
    }

    /// What the whole run is going to take, roughly, in seconds.
    pub fn expected_seconds(&self) -> f64 {
        self.slices() as f64 * (self.seconds * TURN + START_AND_STOP)
    }

    /// How many rounds there will be, over all cells.
    pub fn all_rounds(&self) -> usize {
        let workloads = self.workloads.iter();
        let cells = workloads.map(|&workload| self.threads_of(workload).len());
        cells.sum::<usize>() * self.rounds
    }

    /// How many timed slices there will be.
    pub fn slices(&self) -> usize {
        let turns = self.workloads.iter().map(|&workload| {
            let cells = self.threads_of(workload).into_iter();
            let turns = cells.map(|threads| self.locks_in(workload, threads).count());
            turns.sum::<usize>()
        });
        turns.sum::<usize>() * self.rounds
    }

    /// The thread counts of a workload.
    pub fn threads_of(&self, workload: WorkloadName) -> Vec<usize> {
        let own = workload.own_threads();
        own.map_or_else(|| self.threads.0.clone(), |threads| vec![threads])
    }

    /// The locks to be measured in a cell.
    pub fn locks_in(
        &self,
        workload: WorkloadName,
        threads: usize,
    ) -> impl Iterator<Item = LockName> {
        let needs_condvar = workload.own_threads().is_some();
        self.locks.iter().copied().filter(move |&lock| {
            !self.leaves_out(lock, threads) && (lock.has_condvar() || !needs_condvar)
        })
    }

    /// Whether a lock is left out because it would take minutes only to stop.
    pub fn leaves_out(&self, lock: LockName, threads: usize) -> bool {
        let cpus = kinlock_verify::allowed_cpus().len().max(1);
        let wanted = self.leaves_none_out || lock == self.baseline;
        !wanted && lock.is_strict_fifo() && threads > CROWD * cpus
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

    /// The CPUs that `threads` threads are bound to; empty if they are not bound.
    pub fn cpus(&self, threads: usize) -> Vec<usize> {
        let usual = || Pin::usual(threads, kinlock_verify::allowed_cpus().len());
        placement::assign(self.pin.unwrap_or_else(usual), threads)
    }
}
