//! `kinlock_spin_t`: the queued spinlock.

use crate::misuse::check_alignment;
use crate::time::{after, timed, tried};
use core::ffi::c_int;
use kinlock_core::platform::NEVER;
use kinlock_core::raw::QueuedSpinLock;
use kinlock_linux::Native;
use kinlock_linux::config::AsConfigured;

type SpinLock = QueuedSpinLock<Native, AsConfigured>;

const _: () = assert!(size_of::<SpinLock>() == 4 && align_of::<SpinLock>() == 4);

#[unsafe(no_mangle)]
unsafe extern "C" fn kinlock_spin_lock(lock: *const SpinLock) -> c_int {
    // SAFETY: invariant 1.
    match unsafe { (*lock).try_lock() } {
        true => 0,
        // SAFETY: invariant 1.
        false => unsafe { wait(lock, NEVER) },
    }
}

/// # Safety
///
/// Invariant 1.
#[cold]
#[inline(never)]
unsafe extern "C" fn wait(lock: *const SpinLock, deadline: u64) -> c_int {
    check_alignment(lock, "kinlock_spin_lock");
    // SAFETY: invariant 1.
    timed(unsafe { (*lock).lock_until(deadline) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn kinlock_spin_trylock(lock: *const SpinLock) -> c_int {
    // SAFETY: invariant 1.
    tried(unsafe { (*lock).try_lock() })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn kinlock_spin_lock_for(lock: *const SpinLock, nanos: u64) -> c_int {
    // SAFETY: invariant 1.
    match unsafe { (*lock).try_lock() } {
        true => 0,
        // SAFETY: invariant 1.
        false => unsafe { wait(lock, after(nanos)) },
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn kinlock_spin_lock_until(lock: *const SpinLock, deadline: u64) -> c_int {
    // SAFETY: invariant 1.
    match unsafe { (*lock).try_lock() } {
        true => 0,
        // SAFETY: invariant 1.
        false => unsafe { wait(lock, deadline) },
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn kinlock_spin_unlock(lock: *const SpinLock) -> c_int {
    // SAFETY: invariants 1 and 2.
    unsafe { (*lock).unlock() };
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn kinlock_spin_is_locked(lock: *const SpinLock) -> c_int {
    // SAFETY: invariant 1.
    c_int::from(unsafe { (*lock).is_locked() })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn kinlock_spin_reset_in_child(lock: *const SpinLock) {
    // SAFETY: invariant 1; the header demands what the function does.
    unsafe { (*lock).reset_in_child() }
}
