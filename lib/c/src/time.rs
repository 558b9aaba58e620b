//! Moments and time limits.

use core::ffi::c_int;
use kinlock_core::platform::{Clock, NEVER};
use kinlock_linux::Native;

/// The time on `CLOCK_MONOTONIC`, in nanoseconds.
#[unsafe(no_mangle)]
extern "C" fn kinlock_now() -> u64 {
    Native::now()
}

/// The moment `nanos` nanoseconds from now. It never comes if `nanos` is `UINT64_MAX`, or if it is
/// beyond the end of the clock.
pub(crate) fn after(nanos: u64) -> u64 {
    match nanos {
        NEVER => NEVER,
        _ => Native::now().saturating_add(nanos),
    }
}

/// The result of a function with a time limit.
pub(crate) fn timed(taken: bool) -> c_int {
    if taken { 0 } else { libc::ETIMEDOUT }
}

/// The result of a function that tries once.
pub(crate) fn tried(taken: bool) -> c_int {
    if taken { 0 } else { libc::EBUSY }
}
