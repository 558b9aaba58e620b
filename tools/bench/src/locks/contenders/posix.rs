//! The C library's mutex and spinlock.
//!
//! Invariants:
//! 1. An initialised lock may be moved until it is first taken: glibc and musl keep no address in
//!    it. The command does not move a lock after that.
//! 2. Only the thread that holds a lock unlocks it.
//! 3. Only the thread between lock and unlock touches the value.

use std::cell::UnsafeCell;

use lock_api::{GuardNoSend, RawMutex};

use super::{Family, Lock};
use crate::harness::team::or_abort;

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

pub struct PthreadSpin;

impl Family for PthreadSpin {
    type Of<T: Send + 'static> = PthreadSpinLock<T>;
}

/// `pthread_spinlock_t`, private to the process, beside the value it guards. Its unlocked value
/// differs between machines and is known only to the C library: so it has no constant to start
/// from.
pub struct PthreadSpinLock<T> {
    raw: UnsafeCell<libc::pthread_spinlock_t>,
    value: UnsafeCell<T>,
}

// SAFETY: the value is only reached under the lock: invariant 3.
unsafe impl<T: Send> Send for PthreadSpinLock<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for PthreadSpinLock<T> {}

impl<T: Send + 'static> Lock<T> for PthreadSpinLock<T> {
    fn new(value: T) -> Self {
        let mut raw = 0;
        // SAFETY: the pointer is to a local; invariant 1 allows to move it.
        unsafe { libc::pthread_spin_init(&mut raw, libc::PTHREAD_PROCESS_PRIVATE) };
        Self {
            raw: UnsafeCell::new(raw),
            value: UnsafeCell::new(value),
        }
    }

    #[inline(always)]
    fn with<R>(&self, section: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: invariant 1.
        unsafe { libc::pthread_spin_lock(self.raw.get()) };
        // SAFETY: invariant 3.
        let result = or_abort(|| section(unsafe { &mut *self.value.get() }));
        // SAFETY: invariants 1 and 2: this thread has just taken the lock.
        unsafe { libc::pthread_spin_unlock(self.raw.get()) };
        result
    }

    fn into_inner(self) -> T {
        self.value.into_inner()
    }
}
