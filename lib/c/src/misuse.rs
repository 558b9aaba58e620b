//! What ends the process with a message.

use core::fmt;
use std::io::Write;

/// Ends the process if a lock is not aligned. The kernel refuses to let a thread sleep there, so
/// waiters would spin forever. Asked before a wait only: an uncontended call is not to pay for it.
pub(crate) fn check_alignment<T>(lock: *const T, function: &str) {
    if !lock.is_aligned() {
        let bytes = align_of::<T>();
        end(format_args!(
            "kinlock: {function}: the lock at {lock:p} is not aligned to {bytes} bytes\n"
        ));
    }
}

#[cold]
pub(crate) fn end(message: fmt::Arguments<'_>) -> ! {
    // Nobody could be told if that failed.
    let _ = std::io::stderr().write_fmt(message);
    std::process::abort()
}
