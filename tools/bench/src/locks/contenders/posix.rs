//! The C library's mutex and reader-writer lock.
//!
//! Invariants:
//! 1. An initialised lock may be moved until it is first taken: glibc and musl keep no address in
//!    it. The command does not move a lock after that.
//! 2. Only the thread that holds a lock unlocks it.

use std::cell::UnsafeCell;

use lock_api::{GuardNoSend, RawMutex, RawRwLock};

/// `pthread_mutex_t` of the default type.
pub struct RawPthreadMutex(UnsafeCell<libc::pthread_mutex_t>);

// SAFETY: the C library synchronises all access to the object (invariant 1 keeps it in place).
unsafe impl Send for RawPthreadMutex {}
// SAFETY: as above.
unsafe impl Sync for RawPthreadMutex {}

// SAFETY: POSIX promises mutual exclusion between lock and unlock of an initialised mutex
// (invariants 1 and 2).
unsafe impl RawMutex for RawPthreadMutex {
    const INIT: Self = Self(UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER));
    type GuardMarker = GuardNoSend;

    #[inline(always)]
    fn lock(&self) {
        // SAFETY: the object is initialised and stays in place: invariant 1.
        unsafe { libc::pthread_mutex_lock(self.0.get()) };
    }

    #[inline(always)]
    fn try_lock(&self) -> bool {
        // SAFETY: invariant 1.
        unsafe { libc::pthread_mutex_trylock(self.0.get()) == 0 }
    }

    #[inline(always)]
    unsafe fn unlock(&self) {
        // SAFETY: invariants 1 and 2.
        unsafe { libc::pthread_mutex_unlock(self.0.get()) };
    }
}

/// `pthread_rwlock_t` of the default kind.
pub struct RawPthreadRwLock(UnsafeCell<libc::pthread_rwlock_t>);

// SAFETY: the C library synchronises all access to the object (invariant 1 keeps it in place).
unsafe impl Send for RawPthreadRwLock {}
// SAFETY: as above.
unsafe impl Sync for RawPthreadRwLock {}

// SAFETY: POSIX promises that a writer excludes all others between lock and unlock of an
// initialised lock (invariants 1 and 2).
unsafe impl RawRwLock for RawPthreadRwLock {
    const INIT: Self = Self(UnsafeCell::new(libc::PTHREAD_RWLOCK_INITIALIZER));
    type GuardMarker = GuardNoSend;

    #[inline(always)]
    fn lock_shared(&self) {
        // SAFETY: the object is initialised and stays in place: invariant 1.
        unsafe { libc::pthread_rwlock_rdlock(self.0.get()) };
    }

    fn try_lock_shared(&self) -> bool {
        // SAFETY: invariant 1.
        unsafe { libc::pthread_rwlock_tryrdlock(self.0.get()) == 0 }
    }

    #[inline(always)]
    unsafe fn unlock_shared(&self) {
        // SAFETY: invariants 1 and 2.
        unsafe { libc::pthread_rwlock_unlock(self.0.get()) };
    }

    #[inline(always)]
    fn lock_exclusive(&self) {
        // SAFETY: the object is initialised and stays in place: invariant 1.
        unsafe { libc::pthread_rwlock_wrlock(self.0.get()) };
    }

    fn try_lock_exclusive(&self) -> bool {
        // SAFETY: invariant 1.
        unsafe { libc::pthread_rwlock_trywrlock(self.0.get()) == 0 }
    }

    #[inline(always)]
    unsafe fn unlock_exclusive(&self) {
        // SAFETY: invariants 1 and 2.
        unsafe { libc::pthread_rwlock_unlock(self.0.get()) };
    }
}
