//! The library's queued spinlock, its own source, in several configurations.
//!
//! # Invariants
//!
//! 1. [`Lock::unlock`] is called by the thread that took the lock only, as that function demands.

use super::Lock;
use crate::platform::Sim;
use crate::world::with;
use kinlock::config::{LocalLimit, Scan, Tuning};
use kinlock::raw::{Config, QueuedSpinLock};

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

macro_rules! configuration {
    ($(#[$doc:meta])* $name:ident, park: $park:literal, as_published: $published:literal, $tuning:expr, $place:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        struct $name;

        impl Config for $name {
            const PARK: bool = $park;
            const AS_PUBLISHED: bool = $published;

            fn tuning() -> Tuning {
                $tuning
            }
        }

        pub(super) fn $place(_: usize) -> &'static dyn Lock {
            crate::place(Queued::<$name>(QueuedSpinLock::new()))
        }
    };
}

configuration!(
    Fifo,
    park: false,
    as_published: true,
    reordering(Tuning::DEFAULT, false),
    place_fifo
);
configuration!(
    ParkingFifo,
    park: true,
    as_published: false,
    reordering(configured(), false),
    place_parking_fifo
);
configuration!(
    PublishedCna,
    park: false,
    as_published: true,
    published(),
    place_published_cna
);
configuration!(
    Cna,
    park: true,
    as_published: false,
    configured(),
    place_cna
);

/// What the run's knobs say.
fn configured() -> Tuning {
    with(|w| w.tuning)
}

fn reordering(mut tuning: Tuning, on: bool) -> Tuning {
    tuning.reorder = on;
    tuning
}

/// The configuration behind the published tables.
fn published() -> Tuning {
    let mut tuning = reordering(Tuning::DEFAULT, true);
    tuning.scan = Scan::Full;
    tuning.limit = LocalLimit::count(16).unwrap_or_default();
    tuning
}
