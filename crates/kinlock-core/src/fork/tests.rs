//! The handlers of `fork`: signals in the child, and registration.
//!
//! # Invariant cited by `SAFETY` comments
//!
//! 1. The child of a fork ends by `_exit`. Until it has been waited for, its number names no other
//!    process. Out-pointers refer to live locals.

use super::*;
use core::cell::Cell;

/// Runs `body` in a child, for at most ten seconds. Returns whether `body` returned `true`.
fn in_a_child(body: impl FnOnce() -> bool) -> bool {
    // SAFETY: invariant 1.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: no preconditions. If the child hangs, the signal's default action ends it.
        unsafe { libc::alarm(10) };
        let code = if body() { 0 } else { 1 };
        // SAFETY: invariant 1.
        unsafe { libc::_exit(code) };
    }
    let mut status = 0;
    // SAFETY: invariant 1.
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
fn no_handler_runs_while_signals_are_blocked() {
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
            let guard = SignalsBlocked::new();
            assert!(blocked());
            drop(guard);
            assert!(!blocked());
        });
    });
}

#[test]
fn an_attempt_is_repeated_until_it_succeeds() {
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
    static RESETTING: Cell<bool> = const { Cell::new(false) };
    static HANDLED: Cell<u32> = const { Cell::new(0) };
    static DISTURBED: Cell<bool> = const { Cell::new(false) };
}

/// Called after each part that the child resets.
pub(super) fn between_two_parts() {
    if RAISES.get() {
        RESETTING.set(true);
        // SAFETY: `on_signal` has been called.
        unsafe { libc::raise(libc::SIGUSR1) };
        RESETTING.set(false);
    }
}

extern "C" fn count_signal(_: c_int) {
    HANDLED.set(HANDLED.get() + 1);
    DISTURBED.set(DISTURBED.get() || RESETTING.get());
}

#[test]
fn a_signal_between_two_parts_is_handled_after_the_reset() {
    on_signal(libc::SIGUSR1, count_signal);
    RAISES.set(true);
    let right = in_a_child(|| HANDLED.get() == 1 && !DISTURBED.get());
    RAISES.set(false);
    assert!(right);
    assert_eq!(HANDLED.get(), 0);
}

const IDLE: Part = Part {
    lock: || {},
    unlock: || {},
    reset_in_child: || {},
};
static THIRD: Part = IDLE;
static INTRUDER: Part = IDLE;

#[test]
fn no_part_registers_during_a_fork_and_no_two_with_one_rank() {
    let registered = || parts().any(|(rank, _)| rank == 3);
    shut_gate();
    std::thread::scope(|scope| {
        let other = scope.spawn(|| register(3, &THIRD));
        std::thread::sleep(core::time::Duration::from_millis(20));
        let early = registered();
        open_gate();
        other.join().unwrap();
        assert!(!early && registered());
    });
    // The same part again is no error; another one is.
    register(3, &THIRD);
    assert!(std::panic::catch_unwind(|| register(3, &INTRUDER)).is_err());
}
