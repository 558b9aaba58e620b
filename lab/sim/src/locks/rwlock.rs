//! Reader-writer locks: the library's, and one with a central count.

use super::futex::spin_ns;
use super::own::{self, AsConfigured, Compact};
use super::{Kind, Lock};
use crate::platform::{Sim, SimU32};
use kinlock_core::platform::{Atomic, NEVER, Ordering::*, Platform};

/// All reader-writer locks.
pub static ALL: &[Kind] = &[
    Kind::new(
        "rwlock-central",
        |_| crate::place(Central(SimU32::new(0))),
        "a reader-writer lock as the standard library's on Linux: one word counts the readers; \
         spins shortly, then sleeps",
    ),
    Kind::new(
        "rwlock-compact",
        own::rwlock::<Compact>,
        "our reader-writer lock without the read-biased state: readers count in the word",
    ),
    Kind::new(
        "rwlock",
        own::rwlock::<AsConfigured>,
        "our reader-writer lock as configured: readers that get into each other's way announce \
         themselves in a table",
    ),
];

/// A count of readers, [`WRITTEN`], and [`WAITING`].
struct Central(SimU32);

/// A thread sleeps. New readers wait, so that a writer gets in.
const WAITING: u32 = 1 << 31;
/// Held by a writer, in place of the count.
const WRITTEN: u32 = WAITING - 1;

fn with_reader(seen: u32) -> Option<u32> {
    (seen < WRITTEN - 1).then(|| seen + 1)
}

fn with_writer(seen: u32) -> Option<u32> {
    (seen & WRITTEN == 0).then_some(seen | WRITTEN)
}

impl Central {
    fn take(&self, taken: fn(u32) -> Option<u32>) {
        while let Err(seen) = self.0.fetch_update(Acquire, taken) {
            let free = |seen| taken(seen).is_some();
            if seen & WAITING == 0 && Sim::wait_for(&self.0, Relaxed, spin_ns(), free).is_ok() {
                continue;
            }
            let marked = |seen| (!free(seen)).then_some(seen | WAITING);
            if let Ok(before) = self.0.fetch_update(Relaxed, marked) {
                let current = || self.0.load(Relaxed);
                Sim::park(self.key(), before | WAITING, NEVER, current);
            }
        }
    }

    fn key(&self) -> *const u32 {
        (&raw const self.0).cast()
    }

    fn wake_all(&self) {
        Sim::unpark(self.key(), u32::MAX);
    }
}

impl Lock for Central {
    fn lock(&self, _: usize) {
        self.take(with_writer);
    }

    fn unlock(&self, _: usize) {
        if self.0.swap(0, Release) & WAITING != 0 {
            self.wake_all();
        }
    }

    fn read(&self, _: usize) {
        self.take(with_reader);
    }

    fn unlock_read(&self, _: usize) {
        let last = self.0.fetch_add(u32::MAX, Release) == WAITING + 1;
        let free = || self.0.compare_exchange(WAITING, 0, Relaxed, Relaxed);
        if last && free().is_ok() {
            self.wake_all();
        }
    }
}
