//! `kinlock_cond_t`: the condition variable, with `kinlock_mutex_t`.

use crate::misuse::check_alignment;
use crate::mutex::Mutex;
use crate::time::{after, timed};
use core::ffi::c_int;
use kinlock_core::platform::NEVER;
use kinlock_core::raw::QueuedCondvar;
use kinlock_linux::Native;
use kinlock_linux::probe;

type Condvar = QueuedCondvar<Native>;

const _: () = assert!(size_of::<Condvar>() == 8 && align_of::<Condvar>() == 4);

#[unsafe(no_mangle)]
unsafe extern "C" fn kinlock_cond_wait(cond: *const Condvar, mutex: *const Mutex) -> c_int {
    // SAFETY: as this function demands.
    unsafe { wait(cond, mutex, NEVER) };
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn kinlock_cond_wait_for(
    cond: *const Condvar,
    mutex: *const Mutex,
    nanos: u64,
) -> c_int {
    // SAFETY: as this function demands.
    timed(unsafe { wait(cond, mutex, after(nanos)) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn kinlock_cond_wait_until(
    cond: *const Condvar,
    mutex: *const Mutex,
    deadline: u64,
) -> c_int {
    // SAFETY: as this function demands.
    timed(unsafe { wait(cond, mutex, deadline) })
}

/// Waits. `false`: the wait ended by its time limit.
///
/// # Safety
///
/// Invariants 1 and 2.
unsafe fn wait(cond: *const Condvar, mutex: *const Mutex, deadline: u64) -> bool {
    probe!("cond_wait", cond, mutex);
    check_alignment(cond, "kinlock_cond_wait");
    check_alignment(mutex, "kinlock_cond_wait");
    // SAFETY: invariants 1 and 2.
    unsafe { (*cond).wait_until(&*mutex, deadline) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn kinlock_cond_signal(cond: *const Condvar) -> c_int {
    probe!("cond_signal", cond);
    // SAFETY: invariant 1.
    unsafe { (*cond).notify_one() };
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn kinlock_cond_broadcast(cond: *const Condvar) -> c_int {
    probe!("cond_broadcast", cond);
    // SAFETY: invariant 1.
    unsafe { (*cond).notify_all() };
    0
}
