//! One thread puts jobs into a bounded queue, and four take them out and do them. At times the
//! queue is empty, and some of the four wait for the one; at times it is full, and the one waits
//! for any of them.

use std::collections::VecDeque;

use kinlock_measure::random::Random;

use crate::locks::contenders::Monitor;
use crate::locks::meeting::Meeting;
use crate::locks::work_loop;

#[derive(Clone, Copy)]
pub struct Queue {
    /// Iterations of the work loop in a job.
    job: u64,
}

/// One thread that puts jobs in and four that take them out.
pub const THREADS: usize = 5;

/// The time of a job, in nanoseconds.
const JOB: f64 = 1000.0;
/// Jobs that the queue has room for.
const ROOM: usize = 16;

/// The condition variable on which the four wait for a job.
const FILLED: usize = 0;
/// The condition variable on which the one waits for room.
const EMPTIED: usize = 1;

pub struct State {
    jobs: VecDeque<u64>,
    /// How many jobs there have been.
    count: u64,
    over: bool,
}

impl Queue {
    pub fn new() -> Self {
        Self {
            job: work_loop::iterations(JOB),
        }
    }
}

impl Meeting for Queue {
    type State = State;

    fn state(self, _: usize) -> State {
        State {
            jobs: VecDeque::with_capacity(ROOM),
            count: 0,
            over: false,
        }
    }

    fn lead<M: Monitor<State>>(self, monitor: &M, stop: bool) {
        monitor.when(
            EMPTIED,
            |state| state.jobs.len() < ROOM,
            |state| {
                state.jobs.push_back(state.count);
                state.count += 1;
                state.over = stop;
            },
        );
        match stop {
            true => monitor.notify_all(FILLED),
            false => monitor.notify_one(FILLED),
        }
    }

    fn follow<M: Monitor<State>>(self, monitor: &M, _: u64) -> bool {
        let taken = monitor.when(
            FILLED,
            |state| state.over || !state.jobs.is_empty(),
            |state| state.jobs.pop_front(),
        );
        if let Some(job) = taken {
            monitor.notify_one(EMPTIED);
            work_loop::spin(self.job, &mut Random::new(job));
        }
        taken.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_are_done_in_order_and_the_last_one_sends_everybody_home() {
        let queue = Queue::new();
        type Std = (std::sync::Mutex<State>, [std::sync::Condvar; 2]);
        let monitor = <Std as Monitor<State>>::new(queue.state(THREADS));
        for stop in [false, false, true] {
            queue.lead(&monitor, stop);
        }
        let left = || monitor.when(FILLED, |_| true, |state| state.jobs.clone());
        assert_eq!(left(), [0, 1, 2]);
        assert!(queue.follow(&monitor, 1));
        assert_eq!(left(), [1, 2]);
        // All jobs are done, and no thread waits for another one.
        assert!(queue.follow(&monitor, 2) && queue.follow(&monitor, 3));
        assert!((0..THREADS).all(|_| !queue.follow(&monitor, 4)));
    }
}
