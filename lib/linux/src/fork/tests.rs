//! The handlers of `fork`: signals in the child, and registration.
//!
//! # Invariant cited by `SAFETY` comments
//!
//! 1. The child of a fork ends by `_exit`. Until it has been waited for, its number names no other
//!    process. Out-pointers refer to live locals.

use super::*;
use core::cell::Cell;
use core::ffi::c_int;
use core::mem::MaybeUninit;

/// Runs `body` in a child, for at most five minutes. Returns whether `body` returned `true`.
fn in_a_child(body: impl FnOnce() -> bool) -> bool {
    // SAFETY: invariant 1.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: no preconditions. If the child hangs, the signal's default action ends it.
        unsafe { libc::alarm(300) };
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

thread_local! {
    static RESETS: Cell<u32> = const { Cell::new(0) };
}

/// Registers the handlers once more.
#[test]
fn handlers_that_are_registered_twice_do_as_one() {
    let forked = in_a_child(|| {
        // SAFETY: invariant 1 of the module.
        let again = unsafe { libc::pthread_atfork(Some(before), None, Some(in_child)) };
        RESETS.set(0);
        let parts = parts().count() as u32;
        again == 0 && in_a_child(|| RESETS.get() == parts)
    });
    assert!(forked);
}

/// An older handler of the program starts another program, or a library forks without the program's
/// knowledge.
#[test]
fn a_fork_within_the_handlers_of_a_fork_resets_both_children() {
    let right = in_a_child(|| {
        register(3, &THIRD);
        RESETS.set(0);
        let parts = parts().count() as u32;
        before();
        let inner = in_a_child(|| RESETS.get() == parts);
        // What the child of the outer fork calls.
        in_child();
        inner && RESETS.get() == parts
    });
    assert!(right);
}

/// A thread of the parent was reading the topology. Without the reset, locks of the child would
/// never use queues.
#[test]
fn the_child_reads_the_topology_that_its_parent_was_reading() {
    use crate::{config, topology};
    use kinlock_core::config::{is_decided, tuning_of_wait};
    let decided = in_a_child(|| {
        config::set_numa(config::Numa::Auto);
        topology::begin_filling();
        let undecided = topology::automatic_decision_if_known().is_none();
        let decided = || {
            (0..100).for_each(|_| _ = tuning_of_wait::<crate::Native>());
            is_decided() && topology::domain_count() <= topology::MAX_CPUS
        };
        !undecided || !decided() && in_a_child(decided)
    });
    assert!(decided);
}

thread_local! {
    static RAISES: Cell<bool> = const { Cell::new(false) };
    static RESETTING: Cell<bool> = const { Cell::new(false) };
    static HANDLED: Cell<u32> = const { Cell::new(0) };
    static DISTURBED: Cell<bool> = const { Cell::new(false) };
}

/// Called after each part that the child resets.
pub(super) fn between_two_parts() {
    RESETS.set(RESETS.get() + 1);
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
    reset_in_child: || {},
};
static THIRD: Part = IDLE;
static INTRUDER: Part = IDLE;

#[test]
fn no_two_parts_have_one_rank() {
    register(3, &THIRD);
    // Registering the same part again is no error; registering another part is one.
    register(3, &THIRD);
    assert!(std::panic::catch_unwind(|| register(3, &INTRUDER)).is_err());
}
