//! Real-time signals to threads of this process, and their handlers.
//!
//! | numbers | used by |
//! | --- | --- |
//! | 0 to 3 | the scenario `signals`, one per level of nesting |
//! | 6 | the torture of IDs |
//! | 8 | `nudges`: the scenarios of condition variables, and delayed invalidation |
//! | 9 | the scenario `stopped` |
//!
//! # Invariants
//!
//! 1. Pointers given to the kernel refer to live locals; zero is a valid `sigaction`.
//! 2. `tgkill` takes numbers only, and reaches no other process. A thread that has just ended is a
//!    harmless error.
//! 3. A thread's own `errno` is always there.

use std::ptr::null_mut;

/// The signal with this number, counted from the first real-time signal.
pub fn real_time(number: i32) -> i32 {
    libc::SIGRTMIN() + number
}

/// Installs `handler` for `signal`, and never removes it. The signals in `masked` are blocked while
/// the handler runs.
///
/// # Panics
///
/// If the system refuses.
///
/// # Safety
///
/// The handler must be async-signal-safe.
pub unsafe fn install(
    signal: i32,
    handler: extern "C" fn(i32),
    flags: i32,
    masked: impl IntoIterator<Item = i32>,
) {
    // SAFETY: invariant 1.
    let result = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as usize;
        action.sa_flags = flags;
        libc::sigemptyset(&mut action.sa_mask);
        for other in masked {
            libc::sigaddset(&mut action.sa_mask, other);
        }
        libc::sigaction(signal, &action, null_mut())
    };
    assert_eq!(result, 0, "a real-time signal can have a handler");
}

/// The kernel's name of the calling thread.
pub fn own_tid() -> i32 {
    // SAFETY: `gettid` has no preconditions and cannot fail.
    unsafe { libc::gettid() }
}

/// Sends a signal to a thread of this process. Returns whether the kernel accepted it.
pub fn send(tid: i32, signal: i32) -> bool {
    // SAFETY: invariant 2.
    unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), tid, signal) == 0 }
}

/// Runs a handler's `work` and leaves `errno` as it was.
pub fn keeping_errno(work: impl FnOnce()) {
    // SAFETY: invariant 3.
    let errno = unsafe { *libc::__errno_location() };
    work();
    // SAFETY: invariant 3.
    unsafe { *libc::__errno_location() = errno };
}
