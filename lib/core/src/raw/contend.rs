//! Waiting for a contended lock: what the [mutex](super::mutex) and the [reader-writer
//! lock](super::rwlock) share.
//!
//! A wait has three parts. Each is a function that the lock calls:
//!
//! 1. [`barge`]: the newcomer tries to take the lock past the queue, for some microseconds.
//! 2. [`queue_up`]: the thread queues, and sleeps in its place. The result is a guard, a
//!    [`Headship`]: its owner is at the front of the queue, and dropping it brings the next waiter
//!    to the front.
//! 3. [`wait_at_front`]: a loop looks at the lock, asks the [policy] what to do next, and does
//!    that.
//!
//! A lock implements [`Target`]: how to look at it, to take it, to sleep, and to request a
//! hand-off.
//!
//! | file | contents |
//! | --- | --- |
//! | `wait.rs` | the three parts, and `Target` |
//! | `policy.rs` | what a waiter does next, from what it has seen; reads neither clock nor lock |
//! | `queue.rs`, `cna_queue.rs` | queueing: first in, first out, or local waiters first |
//! | `spin.rs` | how long a thread spins |
//! | `constants.rs` | how long each step lasts |

use crate::platform::Platform;
use crate::tuning::Tuning;

mod cna_queue;
pub(in crate::raw) mod constants;
mod policy;
mod queue;
pub(in crate::raw) mod spin;
mod wait;

pub(in crate::raw) use queue::Headship;
pub use queue::QueueKind;
pub(in crate::raw) use wait::{Next, Sight, Target, barge, queue_up, wait_at_front};

/// What stays the same during one wait.
#[derive(Clone, Copy, Debug)]
pub(in crate::raw) struct Wait {
    pub(in crate::raw) deadline: u64,
    pub(in crate::raw) tuning: Tuning,
    /// This wait is a trial: it finds out whether the lock should be kept.
    pub(in crate::raw) trial: bool,
    /// How long the waiter spins before it sleeps, in nanoseconds.
    pub(in crate::raw) spin: u64,
}

impl Wait {
    /// One wait in `waits_per_trial` is a trial; 0: none is.
    pub(in crate::raw) fn begin<P: Platform>(
        tuning: Tuning,
        deadline: u64,
        waits_per_trial: u32,
    ) -> Self {
        let tries = waits_per_trial > 0 && tuning.quantum.nanos() > 0;
        // Compared with the largest remainder, not with 0: a platform without randomness returns 0,
        // and each of its waits would be a trial.
        let trial = tries && P::random() % waits_per_trial == waits_per_trial - 1;
        Wait {
            deadline,
            tuning,
            trial,
            spin: spin::limit::<P>(),
        }
    }
}

#[cfg(all(test, not(loom)))]
pub(in crate::raw) mod tests;
