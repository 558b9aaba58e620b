//! Two threads that alternate, through one mutex and one condition variable.

use crate::locks::contenders::Monitor;
use crate::locks::meeting::Meeting;

#[derive(Clone, Copy)]
pub struct PingPong;

pub const THREADS: usize = 2;

pub struct State {
    /// If even, the leader is next.
    count: u64,
    over: bool,
}

impl Meeting for PingPong {
    type State = State;

    fn state(self, _: usize) -> State {
        State {
            count: 0,
            over: false,
        }
    }

    fn lead<M: Monitor<State>>(self, monitor: &M, stop: bool) {
        monitor.when(
            0,
            |state| state.count % 2 == 0,
            |state| {
                state.count += 1;
                state.over = stop;
            },
        );
        monitor.notify_one(0);
    }

    fn follow<M: Monitor<State>>(self, monitor: &M, _: u64) -> bool {
        let over = monitor.when(
            0,
            |state| state.count % 2 == 1,
            |state| {
                state.count += 1;
                state.over
            },
        );
        monitor.notify_one(0);
        !over
    }
}
