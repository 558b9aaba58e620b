//! Children of this process, forked while other threads run.
//!
//! Between fork and exit a child allocates memory and starts threads. POSIX does not promise that
//! this works in the child of a process with threads; Linux's C libraries do.
//!
//! # Invariants
//!
//! 1. The child never returns from `fork`: it ends by `_exit`.
//! 2. Until a child has been waited for, its number names no other process. The status is written
//!    to a live local.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// The exit status of a child that found nothing wrong.
pub const FINE: i32 = 0;
/// The exit status of a child that panicked.
const PANICKED: i32 = 99;

/// A child that has not been waited for.
#[derive(Debug)]
pub struct Child(libc::pid_t);

/// Forks. The child does `work` and exits with the status that `work` returns. `None` if the fork
/// fails.
pub fn fork(work: impl FnOnce() -> i32) -> Option<Child> {
    // SAFETY: see the head of the file for what the child may do; invariant 1.
    match unsafe { libc::fork() } {
        -1 => None,
        0 => {
            let code = catch_unwind(AssertUnwindSafe(work)).unwrap_or(PANICKED);
            // SAFETY: no preconditions; invariant 1.
            unsafe { libc::_exit(code) }
        }
        child => Some(Child(child)),
    }
}

impl Child {
    /// Waits until the child ends, and calls `meanwhile` between looks. Returns the exit status.
    ///
    /// # Errors
    ///
    /// If the child panics, is ended by a signal, or takes longer than `patience`.
    pub fn wait(self, patience: Duration, mut meanwhile: impl FnMut(&Self)) -> Result<i32, String> {
        let give_up = Instant::now() + patience;
        let mut status = 0;
        // SAFETY: invariant 2.
        while unsafe { libc::waitpid(self.0, &mut status, libc::WNOHANG) } == 0 {
            if Instant::now() >= give_up {
                self.signal(libc::SIGKILL);
                // SAFETY: invariant 2.
                unsafe { libc::waitpid(self.0, &mut status, 0) };
                return Err(format!("was still busy after {patience:?}"));
            }
            meanwhile(&self);
        }
        match (libc::WIFEXITED(status), libc::WEXITSTATUS(status)) {
            (true, PANICKED) => Err("panicked".into()),
            (true, code) => Ok(code),
            _ => Err(format!("ended with wait status {status:#x}")),
        }
    }

    /// Sends a signal to the child.
    pub fn signal(&self, signal: i32) {
        // SAFETY: invariant 2.
        unsafe { libc::kill(self.0, signal) };
    }
}
