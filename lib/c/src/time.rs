//! Moments and time limits.

use core::ffi::c_int;
use kinlock_core::platform::{Clock, NEVER};
use kinlock_linux::Native;

/// The time on `CLOCK_MONOTONIC`, in nanoseconds.
#[unsafe(no_mangle)]
extern "C" fn kinlock_now() -> u64 {
    Native::now()
}

/// The moment at which `nanos` nanoseconds from now have passed; never for `UINT64_MAX`, and for
/// what lies beyond the end of the clock.
pub(crate) fn after(nanos: u64) -> u64 {
    match nanos {
        NEVER => NEVER,
        _ => Native::now().saturating_add(nanos),
    }
}

/// What a function with a time limit returns.
pub(crate) fn timed(taken: bool) -> c_int {
    if taken { 0 } else { libc::ETIMEDOUT }
}

/// What a function that tries once returns.
pub(crate) fn tried(taken: bool) -> c_int {
    if taken { 0 } else { libc::EBUSY }
}
