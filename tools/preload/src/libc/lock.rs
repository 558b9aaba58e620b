//! Waiting for a delegated object: the C library has one function per kind of time limit.

use super::real;
use crate::thread::thread_id;
use crate::time::Limit;
use core::ffi::{c_int, c_void};
use kinlock_recorder::now;
use kinlock_report::now::LIMITED;
use kinlock_report::{CONDVAR, READING, RWLOCK};

/// Takes a lock by `function`, and notes a wait as one for `what`, of this `kind`. To know whether
/// it has to wait, it first tries the lock. The C library's functions, too, look at an invalid
/// limit only if they have to wait.
#[inline]
fn noted(what: u64, kind: u32, limit: Limit, function: impl Fn(Limit) -> c_int) -> c_int {
    let tried = function(Limit::Now);
    if tried != libc::EBUSY || matches!(limit, Limit::Now) {
        return tried;
    }
    let noted = now::waits(what, kind | limit.noted(), thread_id());
    let result = function(limit);
    noted.end();
    result
}

/// Takes a mutex of the C library.
///
/// # Safety
///
/// Invariant 3.
pub(crate) unsafe fn libc_lock(mutex: *const c_void, limit: Limit) -> c_int {
    // SAFETY: invariant 3.
    noted(mutex as u64, 0, limit, |limit| unsafe {
        match limit {
            Limit::Now => real::pthread_mutex_trylock(mutex),
            Limit::Never => real::pthread_mutex_lock(mutex),
            Limit::At(libc::CLOCK_REALTIME, until) => real::pthread_mutex_timedlock(mutex, &until),
            Limit::At(clock, until) => real::pthread_mutex_clocklock(mutex, clock, &until),
        }
    })
}

/// Takes a reader-writer lock of the C library for reading. `kind`: the kind of the wait.
///
/// # Safety
///
/// Invariant 3.
pub(crate) unsafe fn libc_read(lock: *const c_void, kind: u32, limit: Limit) -> c_int {
    // SAFETY: invariant 3.
    noted(lock as u64 | READING, kind, limit, |limit| unsafe {
        match limit {
            Limit::Now => real::pthread_rwlock_tryrdlock(lock),
            Limit::Never => real::pthread_rwlock_rdlock(lock),
            Limit::At(libc::CLOCK_REALTIME, until) => {
                real::pthread_rwlock_timedrdlock(lock, &until)
            }
            Limit::At(clock, until) => real::pthread_rwlock_clockrdlock(lock, clock, &until),
        }
    })
}

/// Takes a reader-writer lock of the C library for writing.
///
/// # Safety
///
/// Invariant 3.
pub(crate) unsafe fn libc_write(lock: *const c_void, limit: Limit) -> c_int {
    // SAFETY: invariant 3.
    noted(lock as u64, RWLOCK, limit, |limit| unsafe {
        match limit {
            Limit::Now => real::pthread_rwlock_trywrlock(lock),
            Limit::Never => real::pthread_rwlock_wrlock(lock),
            Limit::At(libc::CLOCK_REALTIME, until) => {
                real::pthread_rwlock_timedwrlock(lock, &until)
            }
            Limit::At(clock, until) => real::pthread_rwlock_clockwrlock(lock, clock, &until),
        }
    })
}

/// Waits for a condition variable of the C library, with a mutex of the C library, until `until`, a
/// time of `clock` or, without one, of the condition variable's own clock. A null pointer means no
/// limit.
///
/// # Safety
///
/// Invariant 3.
pub(crate) unsafe fn libc_wait(
    condvar: *const c_void,
    mutex: *const c_void,
    clock: Option<libc::clockid_t>,
    until: *const libc::timespec,
) -> c_int {
    let limit = if until.is_null() { 0 } else { LIMITED };
    let noted = now::waits(condvar as u64, CONDVAR | limit, thread_id());
    // SAFETY: invariant 3.
    let result = unsafe {
        match clock {
            _ if until.is_null() => real::pthread_cond_wait(condvar, mutex),
            None => real::pthread_cond_timedwait(condvar, mutex, until),
            Some(clock) => real::pthread_cond_clockwait(condvar, mutex, clock, until),
        }
    };
    noted.end();
    result
}
