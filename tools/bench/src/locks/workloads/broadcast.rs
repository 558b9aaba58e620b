//! One thread publishes a generation to sixteen that wait for it, and waits until all have reported
//! back.

use crate::locks::contenders::Monitor;
use crate::locks::meeting::Meeting;

#[derive(Clone, Copy)]
pub struct Broadcast;

/// One thread that publishes and sixteen that wait.
pub const THREADS: usize = 17;

/// The condition variable on which the others wait for a generation.
const PUBLISHED: usize = 0;
/// The condition variable on which the leader waits for their reports.
const REPORTED: usize = 1;

pub struct State {
    generation: u64,
    /// How many threads have not seen the generation yet.
    missing: usize,
    followers: usize,
    over: bool,
}

impl Meeting for Broadcast {
    type State = State;

    fn state(self, threads: usize) -> State {
        State {
            generation: 0,
            missing: 0,
            followers: threads - 1,
            over: false,
        }
    }

    fn lead<M: Monitor<State>>(self, monitor: &M, stop: bool) {
        monitor.when(
            REPORTED,
            |state| state.missing == 0,
            |state| {
                state.generation += 1;
                state.missing = state.followers;
                state.over = stop;
            },
        );
        monitor.notify_all(PUBLISHED);
    }

    fn follow<M: Monitor<State>>(self, monitor: &M, n: u64) -> bool {
        let (last, over) = monitor.when(
            PUBLISHED,
            |state| state.generation == n,
            |state| {
                state.missing -= 1;
                (state.missing == 0, state.over)
            },
        );
        if last {
            monitor.notify_one(REPORTED);
        }
        !over
    }
}
