//! What the checks need from a lock.
//!
//! # Invariants
//!
//! 1. The unsafe functions of a lock demand of their callers what the lock inside demands: it is
//!    held as the function says, and the right to release it is the caller's.

use kinlock::lock_api::{self, RawMutexTimed};
use kinlock::{RawCnaSpinLock, RawFifoSpinLock, RawMutex, RawSpinLock};
use kinlock_core::platform::Platform;
use kinlock_core::raw::mutex::{Layout, QueuedMutex};
use kinlock_core::raw::once::RunOnce;
use kinlock_core::raw::{LockConfig, QueuedRwLock, QueuedSpinLock};
use kinlock_linux::Native;
use std::time::Duration;

/// A lock on any platform and in any configuration. Scenarios use it through a trait object; the
/// slower calls hide no defect.
pub trait Algorithm {
    fn lock(&self);
    fn try_lock(&self) -> bool;
    /// Waits up to this moment of the platform's clock, in nanoseconds.
    fn lock_until(&self, deadline: u64) -> bool;
    unsafe fn unlock(&self);
    /// Whether a thread waits for the lock, if the lock can tell; otherwise `false`.
    fn is_contended(&self) -> bool;

    /// As [`lock_until`](Self::lock_until), on a platform with the clock of [`Native`].
    fn try_lock_for(&self, timeout: Duration) -> bool {
        self.lock_until(Native::now() + timeout.as_nanos() as u64)
    }
}

/// What a scenario is played with: a lock, and what is used together with it.
pub trait Target {
    fn lock(&self) -> &dyn Algorithm;

    /// The condition variable that is used with the lock.
    fn meeting(&self) -> Option<&dyn Meeting> {
        None
    }

    /// The same lock, if it can be taken for reading.
    fn reading(&self) -> Option<&dyn ReadWrite> {
        None
    }

    /// What runs functions once, if the target has that.
    fn running(&self) -> Option<&dyn Runs> {
        None
    }

    /// Whether no thread holds the lock or waits for it, and nothing is left behind. Takes the lock
    /// if it is at rest, and does not release it: the fast path succeeds only if no bit of the word
    /// is set. With a condition variable the flag for sleepers may stay set, because a thread that
    /// has slept has to set it.
    fn is_at_rest(&self) -> bool {
        let lock = self.lock();
        (self.meeting().is_some() || !lock.is_contended()) && lock.try_lock()
    }
}

/// A target for real threads.
pub type AnyTarget = Box<dyn Target + Send + Sync>;

/// The locks as users have them, by their public functions.
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
    /// `passing`: reads even if a writer waits.
    fn read_until(&self, deadline: u64, passing: bool) -> bool;
    fn try_read(&self, passing: bool) -> bool;
    unsafe fn unlock_read(&self);
    fn upgradable_until(&self, deadline: u64) -> bool;
    /// From upgradable reading to writing, unless the time is up.
    unsafe fn upgrade_until(&self, deadline: u64) -> bool;
    unsafe fn unlock_upgradable(&self);
    /// From writing to reading.
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
        // SAFETY: invariant 1.
        unsafe { self.unlock_read() }
    }

    fn upgradable_until(&self, deadline: u64) -> bool {
        self.upgradable_until(deadline)
    }

    unsafe fn upgrade_until(&self, deadline: u64) -> bool {
        // SAFETY: invariant 1.
        unsafe { self.upgrade_until(deadline) }
    }

    unsafe fn unlock_upgradable(&self) {
        // SAFETY: invariant 1.
        unsafe { self.unlock_upgradable() }
    }

    unsafe fn downgrade(&self) {
        // SAFETY: invariant 1.
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
    /// Releases the lock, waits for a notification up to this moment of the platform's clock, and
    /// takes the lock again. The caller has to hold the lock. `false`: the time was up, and the
    /// wait consumed no notification.
    unsafe fn wait(&self, until: u64) -> bool;
    fn notify_one(&self);
    fn notify_all(&self);
}

/// Runs functions once, each with a number.
pub trait Runs {
    /// Runs `function`, unless one with this number has returned. Waits for one that is running.
    fn call(&self, number: usize, function: &mut dyn FnMut());
}

/// How many functions a set can run once each.
pub(crate) const ONCES: usize = 16;

/// What runs functions once, with a mutex.
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
