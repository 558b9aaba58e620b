//! What a scenario needs of a lock.
//!
//! # Invariants
//!
//! 1. `TestLock::unlock` and `RawMutex::unlock` demand the same of their callers.

use kinlock::lock_api::RawMutexTimed;
use std::time::Duration;

/// A lock under test. Scenarios use it through a trait object: a call that is a little dearer hides no bug.
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
