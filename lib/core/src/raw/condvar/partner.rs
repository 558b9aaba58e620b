//! The lock that a waiter releases while it waits, and then takes again: usually a mutex of this
//! crate.

use crate::platform::{Parked, Platform};
use crate::raw::LockConfig;
use crate::raw::mutex::{Layout, QueuedMutex};

/// A lock that a waiter of a condition variable holds before and after its wait.
///
/// A trait because the preloaded library also waits with mutexes of the C library, and because
/// `kinlock` records each release and acquisition for its reports.
pub trait Partner<P: Platform> {
    /// The key to which a broadcast may move waiters, so that unlocks wake them one after the
    /// other. `None`: a broadcast wakes all.
    fn key(&self) -> Option<*const u32> {
        None
    }

    /// Whether the lock is held at this moment. Called only if there is a [`key`](Self::key).
    fn is_locked(&self) -> bool {
        true
    }

    /// Releases the lock. `false`: the caller did not hold it, so the caller does not wait, and
    /// does not take the lock again.
    ///
    /// # Safety
    ///
    /// The caller must hold the lock, unless the implementation checks that.
    unsafe fn unlock(&self) -> bool;

    /// Takes the lock.
    fn lock(&self);

    /// Like [`lock`](Self::lock), for a thread that a notification has just woken. With a mutex of
    /// the preloaded library the thread then sleeps without spinning, by
    /// [`QueuedMutex::lock_notified`]. For all other locks this is `lock`.
    ///
    /// [`QueuedMutex::lock_notified`]: crate::raw::mutex::QueuedMutex::lock_notified
    fn lock_notified(&self) {
        self.lock();
    }

    /// Like [`lock`](Self::lock), for a thread whose wake-up may have been the only one for all
    /// sleepers at the [`key`](Self::key).
    fn lock_after_sleep(&self) {
        self.lock();
    }

    /// Parks the caller; see [`Platform::park_in`].
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

    /// Called once per wait, before the lock is taken again: from then on the wait does not access
    /// the condition variable.
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
        // SAFETY: by the caller.
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
