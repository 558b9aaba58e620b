//! `kinlock_once_t`: running a function once.

use crate::misuse::check_alignment;
use core::ffi::{c_int, c_void};
use kinlock_core::raw::RunOnce;
use kinlock_linux::Native;

type Once = RunOnce<Native>;

const _: () = assert!(size_of::<Once>() == 4 && align_of::<Once>() == 4);

type Function = unsafe extern "C" fn(*mut c_void);

#[unsafe(no_mangle)]
unsafe extern "C" fn kinlock_once(
    once: *const Once,
    function: Function,
    argument: *mut c_void,
) -> c_int {
    // SAFETY: invariant 1.
    match unsafe { (*once).is_done() } {
        true => 0,
        // SAFETY: as this function demands.
        false => unsafe { call(once, function, argument) },
    }
}

/// # Safety
///
/// Invariants 1 and 4.
#[cold]
#[inline(never)]
unsafe extern "C" fn call(once: *const Once, function: Function, argument: *mut c_void) -> c_int {
    check_alignment(once, "kinlock_once");
    // SAFETY: invariant 1.
    let once = unsafe { &*once };
    // Never `Err`: functions of C do not unwind, so none counts as having panicked.
    // SAFETY: invariant 4.
    let _ = once.call(false, |_| unsafe { function(argument) });
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn kinlock_once_is_done(once: *const Once) -> c_int {
    // SAFETY: invariant 1.
    c_int::from(unsafe { (*once).is_done() })
}
