//! The exported functions for the mutexes and condition variables of C11's threads.
//!
//! In the C library a C11 mutex is a POSIX mutex, and a C11 condition variable a POSIX condition
//! variable. The same holds here: each function calls its POSIX counterpart and translates the
//! result.

use super::{condvar, mutex};
use crate::posix::condvar::Condvar;
use crate::posix::mutex::Mutex;
use core::ffi::c_int;
use core::ptr;

const SUCCESS: c_int = 0;
const BUSY: c_int = 1;
const ERROR: c_int = 2;
const TIMED_OUT: c_int = 4;

/// The bit of a mutex's type that makes it recursive. It is the only bit that is tested, as in the
/// C library: `mtx_timed` changes nothing, since every mutex can be locked with a time limit.
const RECURSIVE: c_int = 1;

pub(super) fn result(error: c_int) -> c_int {
    match error {
        0 => SUCCESS,
        libc::EBUSY => BUSY,
        libc::ETIMEDOUT => TIMED_OUT,
        _ => ERROR,
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mtx_init(mutex: *mut Mutex, kind: c_int) -> c_int {
    mutex::initialise(mutex, kind & RECURSIVE != 0);
    SUCCESS
}

exported! {
    mtx_lock(mutex: *mut Mutex) = result(mutex::pthread_mutex_lock(mutex));
    mtx_trylock(mutex: *mut Mutex) = result(mutex::pthread_mutex_trylock(mutex));
    mtx_timedlock(mutex: *mut Mutex, until: *const libc::timespec) =
        result(mutex::pthread_mutex_timedlock(mutex, until));
    mtx_unlock(mutex: *mut Mutex) = result(mutex::pthread_mutex_unlock(mutex));
    cnd_init(condvar: *mut Condvar) = result(condvar::pthread_cond_init(condvar, ptr::null()));
    cnd_signal(condvar: *mut Condvar) = result(condvar::notify(&*condvar, false));
    cnd_broadcast(condvar: *mut Condvar) = result(condvar::notify(&*condvar, true));
    cnd_wait(condvar: *mut Condvar, mutex: *mut Mutex) =
        result(condvar::wait(condvar, mutex, None, ptr::null()));
    cnd_timedwait(condvar: *mut Condvar, mutex: *mut Mutex, until: *const libc::timespec) =
        result(condvar::wait(condvar, mutex, None, until));
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mtx_destroy(mutex: *mut Mutex) {
    // SAFETY: invariant 1.
    unsafe { mutex::pthread_mutex_destroy(mutex) };
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cnd_destroy(condvar: *mut Condvar) {
    // SAFETY: invariant 1.
    unsafe { condvar::pthread_cond_destroy(condvar) };
}
