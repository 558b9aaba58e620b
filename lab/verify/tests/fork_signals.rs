//! A signal strikes children of fork at any moment of their first microseconds.
//!
//! # Invariants
//!
//! 1. The handlers of this file are async-signal-safe and stay installed.
//! 2. Zero is a valid `sigevent` and `itimerspec`; pointers are to live locals.
//! 3. Handlers of forks are `extern "C"` and do not unwind.

mod support;

use kinlock::Mutex;
use kinlock_core::platform::Platform;
use kinlock_ids::{Counter, Domain};
use kinlock_linux::Native;
use kinlock_verify::signal;
use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering::*};
use std::sync::{Barrier, OnceLock};
use std::time::Duration;

/// What the signal handlers use in [`struck`].
struct Used {
    mutex: Mutex<()>,
    domain: Domain,
    counter: Counter,
}

static USED: OnceLock<Used> = OnceLock::new();
static STRIKES: AtomicU32 = AtomicU32::new(0);
/// In a child of [`struck`]: a signal strikes it this many nanoseconds after its first fork handler
/// began. 0 in other processes.
static STRIKE_AFTER: AtomicU32 = AtomicU32::new(0);

/// Runs before the library registers its handlers, so that in a child this handler runs first.
extern "C" fn first_of_all() {
    // SAFETY: invariant 3.
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
    // SAFETY: invariant 2.
    unsafe {
        let mut event: libc::sigevent = std::mem::zeroed();
        event.sigev_notify = libc::SIGEV_SIGNAL;
        event.sigev_signo = libc::SIGUSR2;
        let mut timer = MaybeUninit::uninit();
        if libc::timer_create(libc::CLOCK_MONOTONIC, &mut event, timer.as_mut_ptr()) == 0 {
            let mut when: libc::itimerspec = std::mem::zeroed();
            when.it_value.tv_nsec = after.into();
            libc::timer_settime(timer.assume_init(), 0, &when, ptr::null_mut());
        }
    }
}

/// Uses what a signal handler may use at any time: a lock that it waits for, a counter, an ID.
extern "C" fn strike(_: c_int) {
    let Some(used) = USED.get() else { return };
    STRIKES.fetch_add(1, Relaxed);
    drop(used.mutex.try_lock_for(Duration::from_micros(2)));
    used.counter.add(0);
    drop(used.domain.enter());
}

const THREADS: usize = 100;
const FORKS: u32 = 400;

/// Runs in a process of its own, so that no signal strikes the children of other tests.
#[test]
fn children_are_forked_amid_signals() {
    support::in_child("children_are_forked_amid_signals", "", struck);
}

/// Forks children, and lets a signal strike each at another moment of its first microseconds.
fn struck() {
    let domain = Domain::builder().max_ids(32).build().unwrap();
    let counter = Counter::new(&domain).unwrap();
    let used = USED.get_or_init(|| Used {
        mutex: Mutex::new(()),
        domain,
        counter,
    });
    let sections = kinlock_invalidation::Domain::new();
    // SAFETY: invariant 1.
    unsafe { signal::install(libc::SIGUSR2, strike, libc::SA_RESTART, []) };
    // Held to the end, so that each thread that tries to take it waits, and has a slot.
    let _held = used.mutex.lock();
    let (waited, done) = (Barrier::new(THREADS + 1), Barrier::new(THREADS + 1));
    std::thread::scope(|scope| {
        // Many slots, so that freeing them takes a while.
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
            // The forking thread has no slot.
            let forker = scope.spawn(|| {
                drop(used.domain.enter());
                support::holds_in_a_fork(|| {
                    while STRIKES.load(Relaxed) == 0 {}
                    let all: Vec<_> = std::iter::from_fn(|| used.domain.enter().ok()).collect();
                    Native::waiters().is_consistent(Native::kept_slot())
                        && sections.dump().is_empty()
                        && all.len() == 32
                })
            });
            !forker.join().unwrap()
        });
        done.wait();
        assert_eq!(wrong, None, "the child with that number");
    });
}
