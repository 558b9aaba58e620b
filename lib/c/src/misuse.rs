//! Mistakes that end the process with a message.

use core::fmt;
use std::io::Write;

/// Ends the process if a lock is not aligned. The kernel does not let a thread sleep at such an
/// address, so waiters would spin forever. Called only before a wait, so that it costs uncontended
/// calls nothing.
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
    // There is no way to report a failure to print.
    let _ = std::io::stderr().write_fmt(message);
    std::process::abort()
}
