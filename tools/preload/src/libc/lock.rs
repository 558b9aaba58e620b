//! Waiting for a delegated object: the C library has one function per sort of time limit.

use super::real;
use crate::time::{Limit, RawLimit};
use core::ffi::{c_int, c_void};

/// Takes a mutex of the C library.
///
/// # Safety
///
/// Invariant 3.
pub(crate) unsafe fn libc_lock(mutex: *const c_void, limit: Limit) -> c_int {
    // SAFETY: invariant 3.
    unsafe {
        match limit {
            Limit::Now => real::pthread_mutex_trylock(mutex),
            Limit::Never => real::pthread_mutex_lock(mutex),
            Limit::At(libc::CLOCK_REALTIME, until) => real::pthread_mutex_timedlock(mutex, &until),
            Limit::At(clock, until) => real::pthread_mutex_clocklock(mutex, clock, &until),
        }
    }
}

/// Takes a reader-writer lock of the C library for reading.
///
/// # Safety
///
/// Invariant 3.
pub(crate) unsafe fn libc_read(lock: *const c_void, limit: Limit) -> c_int {
    // SAFETY: invariant 3.
    unsafe {
        match limit {
            Limit::Now => real::pthread_rwlock_tryrdlock(lock),
            Limit::Never => real::pthread_rwlock_rdlock(lock),
            Limit::At(libc::CLOCK_REALTIME, until) => {
                real::pthread_rwlock_timedrdlock(lock, &until)
            }
            Limit::At(clock, until) => real::pthread_rwlock_clockrdlock(lock, clock, &until),
        }
    }
}

/// Takes a reader-writer lock of the C library for writing.
///
/// # Safety
///
/// Invariant 3.
pub(crate) unsafe fn libc_write(lock: *const c_void, limit: Limit) -> c_int {
    // SAFETY: invariant 3.
    unsafe {
        match limit {
            Limit::Now => real::pthread_rwlock_trywrlock(lock),
            Limit::Never => real::pthread_rwlock_wrlock(lock),
            Limit::At(libc::CLOCK_REALTIME, until) => {
                real::pthread_rwlock_timedwrlock(lock, &until)
            }
            Limit::At(clock, until) => real::pthread_rwlock_clockwrlock(lock, clock, &until),
        }
    }
}

/// Waits for a condition variable of the C library, with a mutex of the C library.
///
/// # Safety
///
/// Invariant 3.
pub(crate) unsafe fn libc_wait(
    condvar: *const c_void,
    mutex: *const c_void,
    limit: RawLimit,
) -> c_int {
    // SAFETY: invariant 3.
    unsafe {
        match limit {
            RawLimit::Never => real::pthread_cond_wait(condvar, mutex),
            RawLimit::Own(until) => real::pthread_cond_timedwait(condvar, mutex, until),
            RawLimit::Of(clock, until) => {
                real::pthread_cond_clockwait(condvar, mutex, clock, until)
            }
        }
    }
}
