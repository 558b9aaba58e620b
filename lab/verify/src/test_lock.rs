//! What the checks need of a lock.
//!
//! # Invariants
//!
//! 1. All `unlock` functions here demand the same of their callers, which is what the lock inside
//!    demands: the lock is held, and the right to release it is the caller's.

use kinlock::lock_api::{self, RawMutexTimed};
use kinlock::{RawCnaSpinLock, RawFifoSpinLock, RawMutex, RawSpinLock};
use kinlock_core::platform::Platform;
use kinlock_core::raw::mutex::{Layout, QueuedMutex};
use kinlock_core::raw::once::RunOnce;
use kinlock_core::raw::{LockConfig, QueuedRwLock, QueuedSpinLock};
use kinlock_linux::Native;
use std::time::Duration;

/// A lock on any platform and in any configuration. Scenarios use it through a trait object: the
/// slower call hides no defect.
pub trait Algorithm {
    /// Takes the lock.
    fn lock(&self);
    /// Takes the lock if it is free.
    fn try_lock(&self) -> bool;
    /// Takes the lock or gives up at this moment of [`now`](Self::now).
    fn lock_until(&self, deadline: u64) -> bool;
    /// Releases the lock.
    ///
    /// # Safety
    ///
    /// The lock must be held, and the right to release it must be the caller's.
    unsafe fn unlock(&self);
    /// Whether a thread waits for it, where that can be asked.
    fn is_contended(&self) -> bool;
    /// The platform's clock, in nanoseconds.
    fn now(&self) -> u64;

    /// Takes the lock or gives up after `timeout`.
    fn try_lock_for(&self, timeout: Duration) -> bool {
        self.lock_until(self.now() + timeout.as_nanos() as u64)
    }
}

/// What a scenario is played with: a lock, and what is beside it.
pub trait Target {
    /// The lock.
    fn lock(&self) -> &dyn Algorithm;

    /// The condition variable beside it.
    fn meeting(&self) -> Option<&dyn Meeting> {
        None
    }

    /// The same lock, if it can be taken for reading.
    fn reading(&self) -> Option<&dyn ReadWrite> {
        None
    }

    /// What runs functions once, beside it.
    fn running(&self) -> Option<&dyn Runs> {
        None
    }

    /// Whether no thread holds the lock or waits for it, and nothing is left of those that did. The
    /// fast path succeeds only if no bit of the word is set; what it takes is not given back.
    /// Beside a condition variable a flag for sleepers may be left behind, because a thread that
    /// has slept owes it.
    fn is_at_rest(&self) -> bool {
        let lock = self.lock();
        (self.meeting().is_some() || !lock.is_contended()) && lock.try_lock()
    }
}

/// A target for real threads.
pub type AnyTarget = Box<dyn Target + Send + Sync>;

/// The locks of users, by their public functions.
macro_rules! users {
    ($($lock:ty)*) => {$(
        impl Algorithm for $lock {
            fn lock(&self) {
                lock_api::RawMutex::lock(self);
            }

            fn try_lock(&self) -> bool {
                lock_api::RawMutex::try_lock(self)
            }

            fn lock_until(&self, deadline: u64) -> bool {
                let left = deadline.saturating_sub(Native::now());
                RawMutexTimed::try_lock_for(self, Duration::from_nanos(left))
            }

            unsafe fn unlock(&self) {
                // SAFETY: invariant 1.
                unsafe { lock_api::RawMutex::unlock(self) }
            }

            fn is_contended(&self) -> bool {
                false
            }

            fn now(&self) -> u64 {
                Native::now()
            }
        }

        impl Target for $lock {
            fn lock(&self) -> &dyn Algorithm {
                self
            }
        }
    )*};
}

users!(RawCnaSpinLock RawFifoSpinLock RawMutex RawSpinLock);

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

        impl<P: Platform, C: $config $(, L: $layout)?> Target for $lock {
            fn lock(&self) -> &dyn Algorithm {
                self
            }
        }
    };
}

algorithm!(QueuedSpinLock<P, C>, LockConfig);
algorithm!(QueuedMutex<P, C, L>, LockConfig, Layout<P>);

/// A reader-writer lock. As an [`Algorithm`] it is taken for writing.
pub trait ReadWrite: Algorithm {
    /// Lets readers announce themselves from now on, if nobody holds the lock.
    fn set_biased(&self);
    /// Takes it for reading. `passing`: also when a writer waits.
    fn read_until(&self, deadline: u64, passing: bool) -> bool;
    /// Takes it for reading if that is possible at once.
    fn try_read(&self, passing: bool) -> bool;
    /// Ends reading.
    ///
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
    /// Ends upgradable reading.
    ///
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

impl<P: Platform, C: LockConfig> Target for QueuedRwLock<P, C> {
    fn lock(&self) -> &dyn Algorithm {
        self
    }

    fn reading(&self) -> Option<&dyn ReadWrite> {
        Some(self)
    }
}

/// A condition variable with its lock.
pub trait Meeting {
    /// Releases the lock, waits for a notification up to this moment of its clock, and takes the
    /// lock again. `false`: the time was up, and no notification was taken.
    ///
    /// # Safety
    ///
    /// The caller must hold the lock.
    unsafe fn wait(&self, until: u64) -> bool;
    /// Wakes one waiter.
    fn notify_one(&self);
    /// Wakes all waiters.
    fn notify_all(&self);
}

/// Runs functions once, each with a number.
pub trait Runs {
    /// Runs `function`, unless one with this number has returned. Waits for one that is running.
    fn call(&self, number: usize, function: &mut dyn FnMut());
}

/// How many functions a set can run once each.
pub(crate) const ONCES: usize = 16;

/// What runs functions once, beside a mutex.
#[derive(Debug)]
pub(crate) struct Set<P: Platform, M: LockConfig> {
    mutex: QueuedMutex<P, M>,
    onces: [RunOnce<P>; ONCES],
}

impl<P: Platform, M: LockConfig> Default for Set<P, M> {
    fn default() -> Self {
        Set {
            mutex: QueuedMutex::default(),
            onces: Default::default(),
        }
    }
}

impl<P: Platform, M: LockConfig> Target for Set<P, M> {
    fn lock(&self) -> &dyn Algorithm {
        &self.mutex
    }

    fn running(&self) -> Option<&dyn Runs> {
        Some(self)
    }
}

impl<P: Platform, M: LockConfig> Runs for Set<P, M> {
    fn call(&self, number: usize, function: &mut dyn FnMut()) {
        // Never `Err`: no function panics.
        let _ = self.onces[number % ONCES].call(false, |_| function());
    }
}
