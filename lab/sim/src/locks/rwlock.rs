//! Reader-writer locks: the library's, its own source, and one with a central count.
//!
//! # Invariants
//!
//! 1. Only a thread that holds the lock for writing calls [`Lock::unlock`], and only one that holds
//!    it for reading [`Lock::unlock_read`], as these functions demand.

use super::{Kind, Lock};
use crate::platform::{Sim, SimU32};
use crate::world::with;
use kinlock_core::config::Tuning;
use kinlock_core::platform::{Atomic, NEVER, Ordering::*, Platform};
use kinlock_core::raw::{LockConfig, QueuedRwLock};

/// All of them.
pub static ALL: &[Kind] = &[
    Kind::new(
        "rwlock-central",
        place_central,
        "a reader-writer lock as the standard library's on Linux: one word counts the readers; \
         spins shortly, then sleeps",
    ),
    Kind::new(
        "rwlock-compact",
        place::<Compact>,
        "our reader-writer lock without the read-biased state: readers count in the word",
    ),
    Kind::new(
        "rwlock",
        place::<Biased>,
        "our reader-writer lock as configured: readers that get into each other's way announce \
         themselves in a table",
    ),
];

fn place<C: LockConfig>(_: usize) -> &'static dyn Lock {
    crate::place(Ours::<C>(QueuedRwLock::default()))
}

fn place_central(_: usize) -> &'static dyn Lock {
    crate::place(Central(SimU32::new(0)))
}

struct Ours<C: LockConfig>(QueuedRwLock<Sim, C>);

impl<C: LockConfig> Lock for Ours<C> {
    fn lock(&self, _: usize) {
        self.0.write();
    }

    fn unlock(&self, _: usize) {
        // SAFETY: invariant 1.
        unsafe { self.0.unlock_write() }
    }

    fn read(&self, _: usize) {
        assert!(self.0.read());
    }

    fn unlock_read(&self, _: usize) {
        // SAFETY: invariant 1.
        unsafe { self.0.unlock_read() }
    }
}

macro_rules! configuration {
    ($name:ident, $bias:literal) => {
        #[derive(Clone, Copy, Debug)]
        struct $name;

        impl LockConfig for $name {
            const BIAS: bool = $bias;

            fn tuning() -> Tuning {
                with(|w| w.tuning)
            }
        }
    };
}

configuration!(Compact, false);
configuration!(Biased, true);

/// A count of readers, [`WRITTEN`], and [`WAITING`].
struct Central(SimU32);

/// A thread sleeps. New readers wait, so that a writer gets in.
const WAITING: u32 = 1 << 31;
/// Held by a writer, in place of the count.
const WRITTEN: u32 = WAITING - 1;
/// How often a thread looks before it sleeps.
const LOOKS: u64 = 100;

fn with_reader(seen: u32) -> Option<u32> {
    (seen < WRITTEN - 1).then_some(seen + 1)
}

fn with_writer(seen: u32) -> Option<u32> {
    (seen & WRITTEN == 0).then_some(seen | WRITTEN)
}

impl Central {
    fn take(&self, taken: fn(u32) -> Option<u32>) {
        while let Err(seen) = self.0.fetch_update(Acquire, taken) {
            let look = with(|w| w.costs().nanos(w.costs().own_cache + w.costs().pause));
            let nanos = (LOOKS as f64 * look) as u64;
            let free = |seen| taken(seen).is_some();
            if seen & WAITING == 0 && Sim::wait_for(&self.0, Relaxed, nanos, free).is_ok() {
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
