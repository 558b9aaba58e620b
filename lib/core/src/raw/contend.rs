//! How a contended lock is waited for: what the [mutex](super::mutex) and the
//! [reader-writer lock](super::rwlock) share.
//!
//! A wait has three parts, each a function that the lock calls:
//!
//! 1. [`barge`]: the newcomer tries to take the lock past the queue, for some microseconds.
//! 2. [`queue_up`]: it queues, and sleeps in its place. The result is a guard, a [`Headship`]: its
//!    owner is at the front of the queue, and hands that on by dropping it.
//! 3. [`wait_at_front`]: one loop looks at the lock, asks the [policy] what to do next, and does
//!    it.
//!
//! A lock says what a look, taking it, sleeping and requesting a hand-off are by implementing
//! [`Target`].
//!
//! | file | contents |
//! | --- | --- |
//! | `wait.rs` | the three parts, and `Target` |
//! | `policy.rs` | from what was seen to what is done next: a pure function |
//! | `queue.rs`, `cna_queue.rs` | queueing: first in, first out, or local waiters first |
//! | `spin.rs` | how long a thread spins |
//! | `constants.rs` | how long each step lasts |

mod cna_queue;
pub(in crate::raw) mod constants;
mod policy;
mod queue;
pub(in crate::raw) mod spin;
mod wait;

pub(in crate::raw) use queue::Headship;
pub use queue::QueueKind;
pub(in crate::raw) use wait::{Next, Sight, Target, Wait, barge, queue_up, wait_at_front};

#[cfg(all(test, not(loom)))]
mod tests;
