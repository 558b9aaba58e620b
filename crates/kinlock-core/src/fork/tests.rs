//! Invariant 3: the child of a fork ends by `_exit`; until it has been waited for, its number names no other process; out-pointers are to live locals.

use super::*;
use core::cell::Cell;

/// Runs `body` in a child, for at most ten seconds; whether it says that all is well.
fn in_a_child(body: impl FnOnce() -> bool) -> bool {
    // SAFETY: invariant 3.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: no preconditions. If the child hangs, the default action of the signal ends it.
        unsafe { libc::alarm(10) };
        let code = if body() { 0 } else { 1 };
        // SAFETY: invariant 3.
        unsafe { libc::_exit(code) };
    }
    let mut status = 0;
    // SAFETY: invariant 3.
    let waited = unsafe { libc::waitpid(child, &mut status, 0) };
    waited == child && status == 0
}

fn on_signal(signal: c_int, handler: extern "C" fn(c_int)) {
    // SAFETY: zero is a valid `sigaction`; the handlers of this file are async-signal-safe.
    unsafe {
        let mut action: libc::sigaction = core::mem::zeroed();
        action.sa_sigaction = handler as extern "C" fn(c_int) as usize;
        action.sa_flags = libc::SA_RESTART;
        assert_eq!(libc::sigaction(signal, &action, ptr::null_mut()), 0);
    }
}

#[test]
fn no_handler_runs_while_it_is_undisturbed() {
    let blocked = || {
        let mut now = MaybeUninit::uninit();
        // SAFETY: the current set is written, and asked for a valid signal.
        unsafe {
            libc::pthread_sigmask(libc::SIG_BLOCK, ptr::null(), now.as_mut_ptr());
            libc::sigismember(now.as_ptr(), libc::SIGUSR1) == 1
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            assert!(!blocked());
            let undisturbed = SignalsBlocked::new();
            assert!(blocked());
            drop(undisturbed);
            assert!(!blocked());
        });
    });
}

#[test]
fn what_was_refused_is_tried_again_and_what_was_done_is_not() {
    let (done, tried) = (AtomicBool::new(false), Cell::new(0));
    let attempt = |answer| {
        once(&done, || {
            tried.set(tried.get() + 1);
            answer
        });
        tried.get()
    };
    assert_eq!(attempt(libc::ENOMEM), 1);
    assert_eq!(attempt(libc::ENOMEM), 2);
    assert_eq!(attempt(0), 3);
    assert_eq!(attempt(0), 3);
}

thread_local! {
    static RAISES: Cell<bool> = const { Cell::new(false) };
    static TIDYING: Cell<bool> = const { Cell::new(false) };
    static HANDLED: Cell<u32> = const { Cell::new(0) };
    static DISTURBED: Cell<bool> = const { Cell::new(false) };
}

/// Called after each part that the child resets.
pub(super) fn between_two_parts() {
    if RAISES.get() {
        TIDYING.set(true);
        // SAFETY: `on_signal` has been called.
        unsafe { libc::raise(libc::SIGUSR1) };
        TIDYING.set(false);
    }
}

extern "C" fn note(_: c_int) {
    HANDLED.set(HANDLED.get() + 1);
    DISTURBED.set(DISTURBED.get() || TIDYING.get());
}

#[test]
fn a_signal_between_two_parts_of_tidying_up_is_handled_afterwards() {
    on_signal(libc::SIGUSR1, note);
    RAISES.set(true);
    let right = in_a_child(|| HANDLED.get() == 1 && !DISTURBED.get());
    RAISES.set(false);
    assert!(right);
    assert_eq!(HANDLED.get(), 0);
}
