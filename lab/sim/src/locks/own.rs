//! The library's own locks, compiled from their sources for the simulator.
//!
//! # Invariants
//!
//! 1. Only the thread that took the lock calls [`Lock::unlock`], and only one that holds it for
//!    reading [`Lock::unlock_read`], as these functions demand.

use super::Lock;
use crate::platform::Sim;
use crate::world::with;
use kinlock_core::config::Tuning;
use kinlock_core::raw::mutex::{QueueKind, QueuedMutex};
use kinlock_core::raw::{LockConfig, QueuedRwLock, QueuedSpinLock};

/// A configuration: its change to the tuning of the run, and its other items.
macro_rules! configuration {
    ($name:ident, $change:expr $(, $more:item)?) => {
        #[derive(Clone, Copy, Debug)]
        pub(super) struct $name;

        impl LockConfig for $name {
            $($more)?

            fn tuning() -> Tuning {
                let mut tuning = with(|w| w.setup.tuning);
                let change: fn(&mut Tuning) = $change;
                change(&mut tuning);
                tuning
            }
        }
    };
}

configuration!(AsConfigured, |_| ());
configuration!(InOrder, |tuning| tuning.reorder = false);
configuration!(
    LocalFirst,
    |tuning| tuning.reorder = true,
    fn queue() -> QueueKind {
        QueueKind::Cna
    }
);
configuration!(
    Unqueued,
    |_| (),
    fn queue() -> QueueKind {
        QueueKind::Unqueued
    }
);
configuration!(Compact, |_| (), const BIAS: bool = false;);

pub(super) fn spinlock<C: LockConfig>(_: usize) -> &'static dyn Lock {
    crate::place(QueuedSpinLock::<Sim, C>::new())
}

pub(super) fn mutex<C: LockConfig>(_: usize) -> &'static dyn Lock {
    crate::place(QueuedMutex::<Sim, C>::default())
}

pub(super) fn rwlock<C: LockConfig>(_: usize) -> &'static dyn Lock {
    crate::place(QueuedRwLock::<Sim, C>::default())
}

impl<C: LockConfig> Lock for QueuedSpinLock<Sim, C> {
    fn lock(&self, _: usize) {
        self.lock();
    }

    fn unlock(&self, _: usize) {
        // SAFETY: invariant 1.
        unsafe { self.unlock() }
    }
}

impl<C: LockConfig> Lock for QueuedMutex<Sim, C> {
    fn lock(&self, _: usize) {
        self.lock();
    }

    fn unlock(&self, _: usize) {
        // SAFETY: invariant 1.
        unsafe { self.unlock() }
    }
}

impl<C: LockConfig> Lock for QueuedRwLock<Sim, C> {
    fn lock(&self, _: usize) {
        self.write();
    }

    fn unlock(&self, _: usize) {
        // SAFETY: invariant 1.
        unsafe { self.unlock_write() }
    }

    fn read(&self, _: usize) {
        assert!(self.read());
    }

    fn unlock_read(&self, _: usize) {
        // SAFETY: invariant 1.
        unsafe { self.unlock_read() }
    }
}
