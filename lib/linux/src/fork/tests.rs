//! The handlers of `fork`: signals in the child, and registration.
//!
//! # Invariant cited by `SAFETY` comments
//!
//! 1. The child of a fork ends by `_exit`. Until it has been waited for, its number names no other
//!    process. Out-pointers refer to live locals.
//! 2. The argument is a local of the thread that joins this one.

use super::*;
use core::cell::Cell;
use core::ffi::c_void;

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

#[test]
fn an_attempt_is_repeated_until_it_succeeds() {
    let (state, tried) = (AtomicU32::new(0), Cell::new(0));
    let attempt = |answer| {
        once(&state, || {
            tried.set(tried.get() + 1);
            answer
        });
        tried.get()
    };
    assert_eq!(attempt(libc::ENOMEM), 1);
    assert_eq!(attempt(libc::ENOMEM), 2);
    assert_eq!(attempt(0), 3);
    assert_eq!(attempt(0), 3);
    // Another thread is at it, in this process or in the parent.
    state.store(std::process::id(), Relaxed);
    assert_eq!(attempt(0), 3);
    state.store(OTHER_PROCESS, Relaxed);
    assert_eq!(attempt(0), 4);
    assert_eq!(attempt(0), 4);
}

/// No process has this number.
const OTHER_PROCESS: u32 = i32::MAX as u32;

#[test]
fn a_gate_that_a_thread_of_the_parent_has_shut_is_open() {
    let opened = in_a_child(|| {
        GATE.store(OTHER_PROCESS, Relaxed);
        shut_gate();
        open_gate();
        GATE.load(Relaxed) == 0
    });
    assert!(opened);
}

/// In a child, since all tests of the process share the gate. The thread is no `std::thread`: when
/// the process forked, another test may have held a lock that starting a thread of std takes.
#[test]
fn a_thread_at_the_shut_gate_sleeps() {
    extern "C" fn at_the_gate(number: *mut c_void) -> *mut c_void {
        // SAFETY: invariant 2.
        let number = unsafe { &*number.cast::<AtomicU32>() };
        // SAFETY: it takes nothing and returns a number.
        number.store(unsafe { libc::gettid() } as u32, Relaxed);
        shut_gate();
        open_gate();
        ptr::null_mut()
    }
    let slept = in_a_child(|| {
        shut_gate();
        let waiter = AtomicU32::new(0);
        let argument = (&raw const waiter).cast_mut().cast();
        let mut thread = MaybeUninit::uninit();
        // SAFETY: invariants 1 and 2.
        let started = unsafe {
            libc::pthread_create(thread.as_mut_ptr(), ptr::null(), at_the_gate, argument)
        };
        if started != 0 {
            return false;
        }
        let asleep = || {
            let path = format!("/proc/self/task/{}/stat", waiter.load(Relaxed));
            let stat = std::fs::read_to_string(path).unwrap_or_default();
            stat.rsplit(") ")
                .next()
                .is_some_and(|rest| rest.starts_with('S'))
        };
        // A child that hangs is ended.
        while !asleep() {
            std::thread::yield_now();
        }
        open_gate();
        // SAFETY: it was started above, and is joined once.
        unsafe { libc::pthread_join(thread.assume_init(), ptr::null_mut()) == 0 }
    });
    assert!(slept);
}

#[test]
fn handlers_that_are_registered_twice_do_as_one() {
    let forked = in_a_child(|| {
        // SAFETY: invariant 1 of the module.
        let again = unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
        again == 0 && in_a_child(|| GATE.load(Relaxed) == 0) && GATE.load(Relaxed) == 0
    });
    assert!(forked);
}

/// A thread of the parent was reading the topology. Locks of the child would do without queues for
/// ever.
#[test]
fn the_child_reads_the_topology_that_its_parent_was_reading() {
    use crate::{config, topology};
    let decided = in_a_child(|| {
        config::set_numa(config::Numa::Auto);
        topology::begin_filling();
        let undecided = topology::automatic_decision_if_known().is_none();
        let decided = || {
            (0..100).for_each(|_| _ = config::tuning_of_wait());
            config::is_decided() && topology::domain_count() <= topology::MAX_CPUS
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
