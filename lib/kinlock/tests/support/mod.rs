//! Children of fork.
//!
//! # Invariant cited by `SAFETY` comments
//!
//! 1. The system calls have no preconditions, and the status is a live local. The child of a fork
//!    may allocate, since the C library sees to that, and ends without destructors.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs `body` in a forked child. Returns its exit status: what `body` returns, or 101 after a
/// panic. If it hangs, the default action of a signal ends it.
pub fn in_a_child(body: impl FnOnce() -> i32) -> Option<i32> {
    // SAFETY: invariant 1.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: invariant 1.
        unsafe { libc::alarm(300) };
        let code = catch_unwind(AssertUnwindSafe(body)).unwrap_or(101);
        // SAFETY: invariant 1.
        unsafe { libc::_exit(code) };
    }
    let mut status = 0;
    // SAFETY: invariant 1.
    let waited = unsafe { libc::waitpid(child, &mut status, 0) };
    (waited == child && libc::WIFEXITED(status)).then(|| libc::WEXITSTATUS(status))
}
