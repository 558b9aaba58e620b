//! The library's queued spinlock, its own source, in several configurations.
//!
//! # Invariants
//!
//! 1. Only the thread that took the lock calls [`Lock::unlock`], as that function demands.

use super::Lock;
use crate::platform::Sim;
use crate::world::with;
use kinlock_core::config::{LocalLimit, Scan, Tuning};
use kinlock_core::raw::{Config, QueuedSpinLock};

struct Queued<C: Config>(QueuedSpinLock<Sim, C>);

impl<C: Config> Lock for Queued<C> {
    fn lock(&self, _: usize) {
        self.0.lock();
    }

    fn unlock(&self, _: usize) {
        // SAFETY: invariant 1.
        unsafe { self.0.unlock() }
    }
}

/// A configuration, and a function that places a lock of it. `like_v10`: without what the library
/// adds to the published algorithm.
macro_rules! configuration {
    ($name:ident, $place:ident, park: $park:literal, like_v10: $like_v10:literal, $tuning:expr) => {
        #[derive(Clone, Copy, Debug)]
        struct $name;

        impl Config for $name {
            const PARK: bool = $park;
            const AS_PUBLISHED: bool = $like_v10;

            fn tuning() -> Tuning {
                $tuning
            }
        }

        pub(super) fn $place(_: usize) -> &'static dyn Lock {
            crate::place(Queued::<$name>(QueuedSpinLock::new()))
        }
    };
}

configuration!(Fifo, place_fifo, park: false, like_v10: true, reordering(Tuning::DEFAULT, false));
configuration!(CnaV10, place_cna_v10, park: false, like_v10: true, v10());
configuration!(Cna, place_cna, park: true, like_v10: false, configured());
configuration!(
    ParkingFifo, place_parking_fifo, park: true, like_v10: false, reordering(configured(), false)
);

/// The tuning of the run.
fn configured() -> Tuning {
    with(|w| w.tuning)
}

fn reordering(mut tuning: Tuning, on: bool) -> Tuning {
    tuning.reorder = on;
    tuning
}

/// The configuration behind the published tables.
fn v10() -> Tuning {
    let mut tuning = reordering(Tuning::DEFAULT, true);
    tuning.scan = Scan::Full;
    tuning.limit = LocalLimit::count(16).unwrap_or_default();
    tuning
}
