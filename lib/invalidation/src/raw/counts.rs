//! Counters of rare events, for statistics.

use kinlock_core::platform::{Atomic, Ordering::*, Platform};

/// The statistics of a domain.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Tally {
    /// How many waits were for a generation that had not passed.
    pub waits: u64,
    /// How many of these waits slept.
    pub slow_waits: u64,
    /// How many times sleeping waiters were woken.
    pub wakes: u64,
    /// The peak number of open sections that was observed: by begins with `Locked`, by waiters with
    /// `Slots`.
    pub longest_queue: u64,
}

/// Counters of rare events, in cache lines of their own.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct Counts<P: Platform> {
    pub(super) waits: P::AtomicU64,
    pub(super) slow_waits: P::AtomicU64,
    pub(super) wakes: P::AtomicU64,
    pub(super) longest_queue: P::AtomicU64,
}

impl<P: Platform> Counts<P> {
    pub(super) fn new() -> Self {
        Counts {
            waits: Atomic::new(0),
            slow_waits: Atomic::new(0),
            wakes: Atomic::new(0),
            longest_queue: Atomic::new(0),
        }
    }

    pub(super) fn read(&self) -> Tally {
        Tally {
            waits: self.waits.load(Relaxed),
            slow_waits: self.slow_waits.load(Relaxed),
            wakes: self.wakes.load(Relaxed),
            longest_queue: self.longest_queue.load(Relaxed),
        }
    }

    /// Notes the length of a queue. A concurrent longer one may be lost: it is a statistic.
    #[inline]
    pub(super) fn saw_queue(&self, length: u64) {
        if self.longest_queue.load(Relaxed) < length {
            self.longest_queue.store(length, Relaxed);
        }
    }
}
