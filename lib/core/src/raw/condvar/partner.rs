//! What a waiter releases while it waits, and takes again: usually a mutex of this crate.

use crate::platform::{Parked, Platform};
use crate::raw::LockConfig;
use crate::raw::mutex::{Layout, QueuedMutex};

/// A lock that a waiter of a condition variable holds before and after its wait.
///
/// A trait because the preloaded library waits with mutexes of the C library, too, and because
/// `kinlock` notes each release and acquisition for its reports.
pub trait Partner<P: Platform> {
    /// Where a broadcast may put waiters to sleep, so that unlocks wake them one after the other.
    /// `None`: it wakes all.
    fn key(&self) -> Option<*const u32> {
        None
    }

    /// Whether the lock is held at this moment. Asked where there is a [`key`](Self::key).
    fn is_locked(&self) -> bool {
        true
    }

    /// Releases the lock. `false`: it was not the caller's, so that there is nothing to wait for
    /// and nothing to take again.
    ///
    /// # Safety
    ///
    /// The caller must hold the lock, unless the implementation checks that.
    unsafe fn unlock(&self) -> bool;

    /// Takes the lock.
    fn lock(&self);

    /// As [`lock`](Self::lock), for a thread that a notification has just woken. Mutexes of the
    /// preloaded library sleep at once here, by [`QueuedMutex::lock_notified`]. For all others this
    /// is `lock`.
    ///
    /// [`QueuedMutex::lock_notified`]: crate::raw::mutex::QueuedMutex::lock_notified
    fn lock_notified(&self) {
        self.lock();
    }

    /// As [`lock`](Self::lock), for a thread that may have been woken in place of all that sleep at
    /// the [`key`](Self::key).
    fn lock_after_sleep(&self) {
        self.lock();
    }

    /// As [`Platform::park_in`].
    fn park(
        &self,
        key: *const u32,
        expected: u32,
        until: u64,
        sets: u32,
        current: impl Fn() -> u32,
    ) -> Parked {
        P::park_in(key, expected, until, sets, current)
    }

    /// This wait does not access the condition variable any more. Called once per wait, before the
    /// lock is taken again.
    fn leave(&self) {}
}

impl<P: Platform, M: LockConfig, L: Layout<P>> Partner<P> for QueuedMutex<P, M, L> {
    fn key(&self) -> Option<*const u32> {
        (P::CAN_PARK && M::PARK).then(|| QueuedMutex::key(self))
    }

    fn is_locked(&self) -> bool {
        QueuedMutex::is_locked(self)
    }

    unsafe fn unlock(&self) -> bool {
        // SAFETY: as this function demands.
        unsafe { QueuedMutex::unlock(self) };
        true
    }

    fn lock(&self) {
        QueuedMutex::lock(self);
    }

    fn lock_after_sleep(&self) {
        QueuedMutex::lock_after_sleep(self);
    }
}
