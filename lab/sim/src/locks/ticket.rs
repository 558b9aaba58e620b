//! The ticket lock: first in first out, all waiters spin on one word.

use super::Lock;
use crate::platform::{Sim, SimU16};
use kinlock_core::platform::{Atomic, Ordering::*, Platform};

/// Both counters share a cache line, as usual.
pub(super) struct Ticket {
    next: SimU16,
    serving: SimU16,
}

pub(super) fn place(_: usize) -> &'static dyn Lock {
    crate::place(Ticket::new())
}

impl Ticket {
    pub(super) fn new() -> Self {
        Ticket {
            next: SimU16::new(0),
            serving: SimU16::new(0),
        }
    }
}

impl Lock for Ticket {
    fn lock(&self, _: usize) {
        let mine = self.next.fetch_add(1, Relaxed);
        Sim::wait(&self.serving, Acquire, |now| now == mine);
    }

    fn unlock(&self, _: usize) {
        // Only the holder writes this counter.
        let mine = self.serving.load(Relaxed);
        self.serving.store(mine.wrapping_add(1), Release);
    }
}
