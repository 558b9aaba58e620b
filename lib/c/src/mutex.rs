//! `kinlock_mutex_t`: the mutex in the layout whose memory may be freed as soon as another thread
//! has the lock.

use crate::misuse::check_alignment;
use crate::time::{after, timed, tried};
use core::ffi::c_int;
use kinlock_core::platform::NEVER;
use kinlock_core::raw::mutex::{Joined, QueuedMutex};
use kinlock_linux::Native;
use kinlock_linux::config::AsConfigured;
use kinlock_linux::probe;

pub(crate) type Mutex = QueuedMutex<Native, AsConfigured, Joined<Native>>;

const _: () = assert!(size_of::<Mutex>() == 4 && align_of::<Mutex>() == 4);

#[unsafe(no_mangle)]
unsafe extern "C" fn kinlock_mutex_lock(mutex: *const Mutex) -> c_int {
    probe!("mutex_entry", mutex);
    // SAFETY: invariant 1.
    match unsafe { (*mutex).lock_at_once() } {
        true => acquired(mutex),
        // SAFETY: invariant 1.
        false => unsafe { wait(mutex) },
    }
}

/// # Safety
///
/// Invariant 1.
#[cold]
#[inline(never)]
unsafe extern "C" fn wait(mutex: *const Mutex) -> c_int {
    check_alignment(mutex, "kinlock_mutex_lock");
    // SAFETY: invariant 1.
    unsafe { (*mutex).queue_until(NEVER) };
    acquired(mutex)
}

#[inline]
fn acquired(mutex: *const Mutex) -> c_int {
    probe!("mutex_acquired", mutex);
    0
}

#[inline]
fn timed_acquired(mutex: *const Mutex) -> c_int {
    probe!("mutex_timedlock_acquired", mutex);
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn kinlock_mutex_trylock(mutex: *const Mutex) -> c_int {
    // SAFETY: invariant 1.
    match unsafe { (*mutex).try_lock() } {
        true => acquired(mutex),
        false => tried(false),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn kinlock_mutex_lock_for(mutex: *const Mutex, nanos: u64) -> c_int {
    probe!("mutex_timedlock_entry", mutex);
    // SAFETY: invariant 1.
    match unsafe { (*mutex).lock_at_once() } {
        true => timed_acquired(mutex),
        // SAFETY: invariant 1.
        false => unsafe { wait_until(mutex, after(nanos)) },
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn kinlock_mutex_lock_until(mutex: *const Mutex, deadline: u64) -> c_int {
    probe!("mutex_timedlock_entry", mutex);
    // SAFETY: invariant 1.
    match unsafe { (*mutex).lock_at_once() } {
        true => timed_acquired(mutex),
        // SAFETY: invariant 1.
        false => unsafe { wait_until(mutex, deadline) },
    }
}

/// # Safety
///
/// Invariant 1.
#[cold]
#[inline(never)]
unsafe extern "C" fn wait_until(mutex: *const Mutex, deadline: u64) -> c_int {
    check_alignment(mutex, "kinlock_mutex_lock");
    // SAFETY: invariant 1.
    match unsafe { (*mutex).queue_until(deadline) } {
        true => timed_acquired(mutex),
        false => timed(false),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn kinlock_mutex_unlock(mutex: *const Mutex) -> c_int {
    probe!("mutex_release", mutex);
    // SAFETY: invariants 1 and 2.
    unsafe { (*mutex).unlock() };
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn kinlock_mutex_unlock_fair(mutex: *const Mutex) -> c_int {
    probe!("mutex_release", mutex);
    // SAFETY: invariants 1 and 2.
    unsafe { (*mutex).unlock_fair() };
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn kinlock_mutex_is_locked(mutex: *const Mutex) -> c_int {
    // SAFETY: invariant 1.
    c_int::from(unsafe { (*mutex).is_locked() })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn kinlock_mutex_reset_in_child(mutex: *const Mutex) {
    // SAFETY: invariant 1; the header demands what the function does.
    unsafe { (*mutex).reset_in_child() }
}
