//! Waiting in a queue of the chosen kind, for locks that have a queue and a policy for its front.

use super::{Queue, cna_queue};
use crate::platform::Platform;
use crate::raw::osq::Osq;
use crate::raw::waiter::Waiter;
use crate::tuning::Tuning;

/// When a waiter in the queue stops spinning, and when it gives up.
#[derive(Clone, Copy, Debug)]
pub(in crate::raw) struct Limits {
    /// It spins for at most so many nanoseconds, then sleeps in its place.
    pub(in crate::raw) patience: u64,
    pub(in crate::raw) deadline: u64,
}

/// Queues, runs `at_front` at the front, and leaves. `false` also if the deadline comes first.
pub(in crate::raw) fn wait<P: Platform>(
    queue: Queue,
    waiters: &Osq<P>,
    place: Waiter<P>,
    tuning: Tuning,
    limits: Limits,
    at_front: impl FnOnce() -> bool,
) -> bool {
    match queue {
        Queue::Unqueued => at_front(),
        Queue::Osq => {
            if !waiters.join(&place, limits.patience, limits.deadline) {
                return false;
            }
            let taken = at_front();
            waiters.leave(&place);
            taken
        }
        Queue::Cna => cna_queue::wait(waiters.tail(), place, tuning, limits, at_front),
    }
}
