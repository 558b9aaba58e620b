//! What the checks need of a lock.
//!
//! # Invariants
//!
//! 1. All `unlock` functions here demand the same of their callers, which is what the lock inside
//!    demands: the lock is held, and the right to release it is the caller's.

use kinlock::lock_api::RawMutexTimed;
use kinlock_core::platform::Platform;
use kinlock_core::raw::mutex::{Layout, QueuedMutex};
use kinlock_core::raw::once::RunOnce;
use kinlock_core::raw::{LockConfig, QueuedRwLock, QueuedSpinLock};
use std::time::Duration;

/// A lock under test. Scenarios use it through a trait object: the slower call hides no defect.
pub trait TestLock: Send + Sync {
    /// Takes the lock.
    fn lock(&self);
    /// Takes the lock if it is free.
    fn try_lock(&self) -> bool;
    /// Takes the lock or gives up after `timeout`.
    fn try_lock_for(&self, timeout: Duration) -> bool;
    /// Releases the lock.
    ///
    /// # Safety
    ///
    /// The lock must be held, and the right to release it must be the caller's.
    unsafe fn unlock(&self);
}

impl<R> TestLock for R
where
    R: RawMutexTimed<Duration = Duration> + Send + Sync,
{
    fn lock(&self) {
        R::lock(self);
    }

    fn try_lock(&self) -> bool {
        R::try_lock(self)
    }

    fn try_lock_for(&self, timeout: Duration) -> bool {
        R::try_lock_for(self, timeout)
    }

    unsafe fn unlock(&self) {
        // SAFETY: invariant 1.
        unsafe { R::unlock(self) }
    }
}

/// One of the library's algorithms, on any platform and in any configuration.
pub(crate) trait Algorithm {
    fn lock(&self);
    fn try_lock(&self) -> bool;
    fn lock_until(&self, deadline: u64) -> bool;
    /// # Safety
    ///
    /// As [`TestLock::unlock`].
    unsafe fn unlock(&self);
    fn is_contended(&self) -> bool;
    /// The platform's clock.
    fn now(&self) -> u64;
}

macro_rules! algorithm {
    ($lock:ty, $config:ident $(, $layout:path)?) => {
        impl<P: Platform, C: $config $(, L: $layout)?> Algorithm for $lock {
            fn lock(&self) {
                self.lock();
            }

            fn try_lock(&self) -> bool {
                self.try_lock()
            }

            fn lock_until(&self, deadline: u64) -> bool {
                self.lock_until(deadline)
            }

            unsafe fn unlock(&self) {
                // SAFETY: invariant 1.
                unsafe { self.unlock() }
            }

            fn is_contended(&self) -> bool {
                self.is_contended()
            }

            fn now(&self) -> u64 {
                P::now()
            }
        }
    };
}

algorithm!(QueuedSpinLock<P, C>, LockConfig);
algorithm!(QueuedMutex<P, C, L>, LockConfig, Layout<P>);

/// A reader-writer lock. As an [`Algorithm`] it is taken for writing.
pub(crate) trait ReadWrite: Algorithm {
    /// Lets readers announce themselves from now on, if nobody holds the lock.
    fn set_biased(&self);
    /// Takes it for reading. `passing`: also when a writer waits.
    fn read_until(&self, deadline: u64, passing: bool) -> bool;
    fn try_read(&self, passing: bool) -> bool;
    /// # Safety
    ///
    /// The lock must be held for reading, and the right to release it must be the caller's.
    unsafe fn unlock_read(&self);
    /// Takes it for upgradable reading.
    fn upgradable_until(&self, deadline: u64) -> bool;
    /// From upgradable reading to writing, unless the time is up.
    ///
    /// # Safety
    ///
    /// The lock must be held for upgradable reading by the caller.
    unsafe fn upgrade_until(&self, deadline: u64) -> bool;
    /// # Safety
    ///
    /// The lock must be held for upgradable reading by the caller.
    unsafe fn unlock_upgradable(&self);
    /// From writing to reading.
    ///
    /// # Safety
    ///
    /// The lock must be held for writing by the caller.
    unsafe fn downgrade(&self);
}

impl<P: Platform, C: LockConfig> Algorithm for QueuedRwLock<P, C> {
    fn lock(&self) {
        self.write();
    }

    fn try_lock(&self) -> bool {
        self.try_write()
    }

    fn lock_until(&self, deadline: u64) -> bool {
        self.write_until(deadline)
    }

    unsafe fn unlock(&self) {
        // SAFETY: invariant 1.
        unsafe { self.unlock_write() }
    }

    fn is_contended(&self) -> bool {
        self.is_contended()
    }

    fn now(&self) -> u64 {
        P::now()
    }
}

impl<P: Platform, C: LockConfig> ReadWrite for QueuedRwLock<P, C> {
    fn set_biased(&self) {
        self.set_biased();
    }

    fn read_until(&self, deadline: u64, passing: bool) -> bool {
        self.read_until(deadline, passing)
    }

    fn try_read(&self, passing: bool) -> bool {
        self.try_read(passing)
    }

    unsafe fn unlock_read(&self) {
        // SAFETY: as this function demands.
        unsafe { self.unlock_read() }
    }

    fn upgradable_until(&self, deadline: u64) -> bool {
        self.upgradable_until(deadline)
    }

    unsafe fn upgrade_until(&self, deadline: u64) -> bool {
        // SAFETY: as this function demands.
        unsafe { self.upgrade_until(deadline) }
    }

    unsafe fn unlock_upgradable(&self) {
        // SAFETY: as this function demands.
        unsafe { self.unlock_upgradable() }
    }

    unsafe fn downgrade(&self) {
        // SAFETY: as this function demands.
        unsafe { self.downgrade() }
    }
}

/// Runs a function once.
pub(crate) trait Runs: Send + Sync {
    /// Runs `function`, unless one has returned. Waits for one that is running.
    fn call(&self, function: &mut dyn FnMut());
}

impl<P: Platform> Runs for RunOnce<P> {
    fn call(&self, function: &mut dyn FnMut()) {
        // Never `Err`: no function panics.
        let _ = self.call(false, |_| function());
    }
}

/// An algorithm as a lock under test.
#[derive(Debug)]
pub(crate) struct Own<A>(pub A);

impl<A: Algorithm + Send + Sync> TestLock for Own<A> {
    fn lock(&self) {
        self.0.lock();
    }

    fn try_lock(&self) -> bool {
        self.0.try_lock()
    }

    fn try_lock_for(&self, timeout: Duration) -> bool {
        self.0.lock_until(self.0.now() + timeout.as_nanos() as u64)
    }

    unsafe fn unlock(&self) {
        // SAFETY: invariant 1.
        unsafe { self.0.unlock() }
    }
}
