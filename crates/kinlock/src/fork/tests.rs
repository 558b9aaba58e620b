//! Invariant 3: the child of a fork ends by `_exit`; until it has been waited for, its number names no other process; out-pointers are to live locals.

use super::*;
use crate::ids::{Counter, Domain};
use crate::{Mutex, invalidation};
use core::cell::Cell;
use core::sync::atomic::AtomicU32;
use core::time::Duration;
use std::sync::{Barrier, OnceLock};

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
            let undisturbed = Undisturbed::new();
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

/// Called when the child has tidied up half.
pub(super) fn in_the_midst() {
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
fn a_signal_in_the_midst_of_tidying_up_is_handled_afterwards() {
    on_signal(libc::SIGUSR1, note);
    RAISES.set(true);
    let right = in_a_child(|| HANDLED.get() == 1 && !DISTURBED.get());
    RAISES.set(false);
    assert!(right);
    assert_eq!(HANDLED.get(), 0);
}

/// What handlers of [`struck`] use.
struct Used {
    mutex: Mutex<()>,
    domain: Domain,
    counter: Counter,
}

static USED: OnceLock<Used> = OnceLock::new();
static STRIKES: AtomicU32 = AtomicU32::new(0);
/// In a child of [`struck`], so many nanoseconds after its first handler; 0 elsewhere.
static STRIKE_AFTER: AtomicU32 = AtomicU32::new(0);

/// Runs before [`register`], so that the handler runs in a child before ours.
extern "C" fn first_of_all() {
    // SAFETY: the function is `extern "C"` and does not unwind.
    unsafe { libc::pthread_atfork(None, None, Some(strike_soon)) };
}

#[used]
#[unsafe(link_section = ".init_array.00101")]
static FIRST_OF_ALL: extern "C" fn() = first_of_all;

extern "C" fn strike_soon() {
    let after = STRIKE_AFTER.load(Relaxed);
    if after == 0 {
        return;
    }
    // SAFETY: zero is a valid `sigevent` and `itimerspec`; pointers are to live locals.
    unsafe {
        let mut event: libc::sigevent = core::mem::zeroed();
        event.sigev_notify = libc::SIGEV_SIGNAL;
        event.sigev_signo = libc::SIGUSR2;
        let mut timer = MaybeUninit::uninit();
        if libc::timer_create(libc::CLOCK_MONOTONIC, &mut event, timer.as_mut_ptr()) == 0 {
            let mut when: libc::itimerspec = core::mem::zeroed();
            when.it_value.tv_nsec = after.into();
            libc::timer_settime(timer.assume_init(), 0, &when, ptr::null_mut());
        }
    }
}

/// What a signal handler may use at any time: a lock that it waits for, a counter, an ID.
extern "C" fn strike(_: c_int) {
    let Some(used) = USED.get() else { return };
    STRIKES.fetch_add(1, Relaxed);
    drop(used.mutex.try_lock_for(Duration::from_micros(2)));
    used.counter.add(0);
    drop(used.domain.enter());
}

const THREADS: usize = 100;
const FORKS: u32 = 400;

/// In a process of its own: children of other tests are not to be struck.
#[test]
fn children_are_forked_amid_signals() {
    const CHILD: &str = "KINLOCK_TEST_FORKS";
    if std::env::var_os(CHILD).is_some() {
        return struck();
    }
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "fork::tests::children_are_forked_amid_signals"])
        .arg("--nocapture")
        .env(CHILD, "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
}

/// Children that are struck by a signal at any moment of their first microseconds.
fn struck() {
    let domain = Domain::builder().max_ids(32).build().unwrap();
    let counter = Counter::new(&domain).unwrap();
    let used = USED.get_or_init(|| Used {
        mutex: Mutex::new(()),
        domain,
        counter,
    });
    let sections = invalidation::Domain::new();
    on_signal(libc::SIGUSR2, strike);
    // Never free, so that whoever tries comes to wait, with a slot.
    let _held = used.mutex.lock();
    let (waited, done) = (Barrier::new(THREADS + 1), Barrier::new(THREADS + 1));
    std::thread::scope(|scope| {
        // Many slots, so that to free them takes a while.
        for _ in 0..THREADS {
            scope.spawn(|| {
                drop(used.mutex.try_lock_for(Duration::from_micros(200)));
                waited.wait();
                done.wait();
            });
        }
        waited.wait();
        let wrong = (0..FORKS).find(|&n| {
            STRIKE_AFTER.store(1 + n * 7_919 % 60_000, Relaxed);
            // A thread without a slot.
            let forker = scope.spawn(|| {
                drop(used.domain.enter());
                in_a_child(|| {
                    while STRIKES.load(Relaxed) == 0 {}
                    let all: Vec<_> = core::iter::from_fn(|| used.domain.enter().ok()).collect();
                    native::slots_are_right() && sections.dump().is_empty() && all.len() == 32
                })
            });
            !forker.join().unwrap()
        });
        done.wait();
        assert_eq!(wrong, None, "the child with that number");
    });
}
