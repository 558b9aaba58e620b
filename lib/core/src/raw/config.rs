//! What is fixed about a lock at compile time, and where it finds its knobs.

use super::contend::{QueueKind, constants::WAITS_PER_TRIAL};
use crate::tuning::Tuning;

/// What is fixed about a lock or a condition variable at compile time, and where it finds its
/// knobs. Each kind of lock reads the items that concern it.
pub trait LockConfig: Copy + core::fmt::Debug + Send + Sync + 'static {
    /// Whether waiters may sleep, if the platform can park.
    const PARK: bool = true;
    /// Whether the first waiter for a spinlock waits without a node. Model checks switch this off,
    /// so that two threads are enough to reach the queue.
    const PENDING_BIT: bool = true;
    /// Whether readers of a reader-writer lock may announce themselves in the visible readers
    /// table, if the platform has one.
    const BIAS: bool = true;
    /// One wait in `TRIALS` for a mutex or a reader-writer lock is a trial: it finds out whether
    /// the lock should be kept. 0: none is.
    #[doc(hidden)]
    const TRIALS: u32 = WAITS_PER_TRIAL;
    /// How many sleepers a broadcast wakes at once, before it wakes one more and requeues the
    /// others.
    const AT_ONCE: u32 = 256;

    /// The run-time knobs. Called in slow paths only.
    fn tuning() -> Tuning {
        Tuning::DEFAULT
    }

    /// The knobs of a spinlock, which may have to keep the order of arrival when a mutex need not.
    fn tuning_of_spinlock() -> Tuning {
        Self::tuning()
    }

    /// How waiters for a mutex queue, and writers. All waiters in the queue of a lock must use the
    /// same kind.
    fn queue() -> QueueKind {
        QueueKind::Osq
    }
}

/// The usual configuration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Usual;

impl LockConfig for Usual {}
