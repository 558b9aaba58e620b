//! The library's queued spinlock, its own source, as configured and first in first out.
//!
//! # Invariants
//!
//! 1. Only the thread that took the lock calls [`Lock::unlock`], as that function demands.

use super::Lock;
use crate::platform::Sim;
use crate::world::with;
use kinlock_core::config::Tuning;
use kinlock_core::raw::{LockConfig, QueuedSpinLock};

struct Queued<C: LockConfig>(QueuedSpinLock<Sim, C>);

impl<C: LockConfig> Lock for Queued<C> {
    fn lock(&self, _: usize) {
        self.0.lock();
    }

    fn unlock(&self, _: usize) {
        // SAFETY: invariant 1.
        unsafe { self.0.unlock() }
    }
}

/// A configuration, and a function that places a lock of it.
macro_rules! configuration {
    ($name:ident, $place:ident, $tuning:expr) => {
        #[derive(Clone, Copy, Debug)]
        struct $name;

        impl LockConfig for $name {
            const PARK: bool = true;

            fn tuning() -> Tuning {
                $tuning
            }
        }

        pub(super) fn $place(_: usize) -> &'static dyn Lock {
            crate::place(Queued::<$name>(QueuedSpinLock::new()))
        }
    };
}

configuration!(Cna, place_cna, configured());
configuration!(Fifo, place_fifo, first_in_first_out());

/// The tuning of the run.
fn configured() -> Tuning {
    with(|w| w.tuning)
}

fn first_in_first_out() -> Tuning {
    let mut tuning = configured();
    tuning.reorder = false;
    tuning
}
