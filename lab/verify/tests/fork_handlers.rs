//! Fork in a program that has fork handlers of its own. The program and the library must both get
//! along with the order in which all handlers are called.
//!
//! # Invariants
//!
//! 1. Handlers of forks are `extern "C"`, do not unwind, and live as long as the program. A lock
//!    that they take is released on the same thread.
#![cfg(not(any(loom, miri)))]

mod support;

use kinlock::lock_api::RawMutex as _;
use kinlock::{Condvar, Mutex, RawMutex, RawSpinLock};
use kinlock_invalidation::Domain;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use std::sync::{Barrier, OnceLock};
use std::thread::{sleep, yield_now};
use std::time::Duration;
use support::{PAUSE, fork, has_held, holds_in_a_fork, on_its_own};

/// The program's lock: a spinlock, or a mutex if `is_mutex` is set.
struct Program {
    spin: RawSpinLock,
    mutex: RawMutex,
    is_mutex: AtomicBool,
}

impl Program {
    fn lock(&self) {
        match self.is_mutex.load(Relaxed) {
            true => self.mutex.lock(),
            false => self.spin.lock(),
        }
    }

    fn try_lock(&self) -> bool {
        match self.is_mutex.load(Relaxed) {
            true => self.mutex.try_lock(),
            false => self.spin.try_lock(),
        }
    }

    /// # Safety
    ///
    /// As for `unlock` of the lock inside.
    unsafe fn unlock(&self) {
        // SAFETY: the caller holds the lock, which is one of the two.
        unsafe {
            match self.is_mutex.load(Relaxed) {
                true => self.mutex.unlock(),
                false => self.spin.unlock(),
            }
        }
    }
}

type Handler = unsafe extern "C" fn();

const FORKS: u32 = 200;
/// Taken before a fork, and by threads that make domains under it.
static PROGRAM: Program = Program {
    spin: RawSpinLock::INIT,
    mutex: RawMutex::INIT,
    is_mutex: AtomicBool::new(false),
};
/// How many threads wait for `GO`. Locked across a fork.
static ARRIVED: Mutex<u32> = Mutex::new(0);
static GO: Condvar = Condvar::new();
/// The domain in which another thread has a section open.
static SECTIONS: OnceLock<Domain> = OnceLock::new();
/// Whether the library had tidied up the child before the program's handler ran.
static TIDY: AtomicBool = AtomicBool::new(true);

extern "C" fn before() {
    PROGRAM.lock();
}

/// As [`before`], but also gives other threads the time to wait for the lock and to fall asleep.
extern "C" fn before_with_waiters() {
    PROGRAM.lock();
    sleep(20 * PAUSE);
}

extern "C" fn after() {
    // SAFETY: invariant 1.
    unsafe { PROGRAM.unlock() };
}

extern "C" fn hold_arrived() {
    std::mem::forget(ARRIVED.lock());
}

extern "C" fn free_arrived() {
    // SAFETY: invariant 1.
    unsafe { ARRIVED.force_unlock() };
}

extern "C" fn in_child() {
    let nothing_open = SECTIONS.get().is_some_and(|open| open.dump().is_empty());
    let made = Domain::new();
    drop(made.begin());
    let leases = kinlock_ids::Domain::builder().max_ids(32).build();
    TIDY.store(nothing_open && leases.is_ok(), Relaxed);
}

/// Forks while another thread works in a loop. This makes the first domain of delayed invalidation.
fn fork_amid(work: impl Fn() + Sync) {
    let (done, open) = (AtomicBool::new(false), Barrier::new(2));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _section = SECTIONS.get_or_init(Domain::new).begin();
            open.wait();
            while !done.load(Relaxed) {
                work();
            }
        });
        open.wait();
        for _ in 0..FORKS {
            assert!(
                holds_in_a_fork(|| TIDY.load(Relaxed)),
                "the program's handler has found the child untidy"
            );
        }
        done.store(true, Relaxed);
    });
}

/// Registers handlers that are called at every fork.
fn at_fork(before: Option<Handler>, parent: Option<Handler>, child: Handler) {
    // SAFETY: invariant 1.
    let refused = unsafe { libc::pthread_atfork(before, parent, Some(child)) };
    assert_eq!(refused, 0);
}

#[test]
fn domains_are_made_under_a_lock_that_the_program_takes_before_a_fork() {
    let name = "domains_are_made_under_a_lock_that_the_program_takes_before_a_fork";
    on_its_own(name, || {
        at_fork(Some(before), Some(after), after);
        fork_amid(|| {
            PROGRAM.lock();
            drop(Domain::new());
            drop(kinlock_ids::Domain::builder().max_ids(32).build());
            // SAFETY: locked above.
            unsafe { PROGRAM.unlock() };
        });
    });
}

#[test]
fn the_programs_handler_finds_the_child_tidied_up() {
    on_its_own("the_programs_handler_finds_the_child_tidied_up", || {
        at_fork(None, None, in_child);
        fork_amid(yield_now);
    });
}

/// Threads use the program's lock while this one forks. The child does the same, and so on for
/// `left` generations. Returns whether each child could take the lock, which is free in the child.
fn generations(left: u32, threads: usize) -> bool {
    static INSIDE: AtomicBool = AtomicBool::new(false);
    let done = AtomicBool::new(false);
    let started = AtomicUsize::new(0);
    let work = || {
        started.fetch_add(1, Relaxed);
        while !done.load(Relaxed) {
            PROGRAM.lock();
            assert!(!INSIDE.swap(true, Relaxed), "two threads hold the lock");
            yield_now();
            INSIDE.store(false, Relaxed);
            // SAFETY: locked above.
            unsafe { PROGRAM.unlock() };
        }
    };
    std::thread::scope(|scope| {
        (0..threads).for_each(|_| drop(scope.spawn(work)));
        // A thread that starts holds a lock of the standard library, which is not free in a child.
        while started.load(Relaxed) < threads {
            yield_now();
        }
        let child = fork(|| {
            if !PROGRAM.try_lock() {
                return false;
            }
            // SAFETY: locked above.
            unsafe { PROGRAM.unlock() };
            left.checked_sub(1)
                .is_none_or(|left| generations(left, threads))
        });
        // The threads were needed only until the fork. From now on they would only take CPUs from
        // the child.
        done.store(true, Relaxed);
        has_held(child)
    })
}

#[test]
fn a_child_uses_a_lock_for_which_threads_of_the_parent_waited() {
    let name = "a_child_uses_a_lock_for_which_threads_of_the_parent_waited";
    on_its_own(name, || {
        at_fork(Some(before_with_waiters), Some(after), after);
        for (is_mutex, threads) in [(false, 1), (false, 4), (true, 1), (true, 4)] {
            PROGRAM.is_mutex.store(is_mutex, Relaxed);
            for _ in 0..10 {
                assert!(
                    generations(8, threads),
                    "mutex: {is_mutex}, {threads} threads"
                );
            }
        }
    });
}

/// Starts `n` threads that wait. When all wait, gives them `pause` to fall asleep, and calls
/// `then`.
fn with_waiters(n: u32, pause: Duration, then: impl FnOnce()) {
    *ARRIVED.lock() = 0;
    std::thread::scope(|scope| {
        for _ in 0..n {
            scope.spawn(|| {
                let mut arrived = ARRIVED.lock();
                *arrived += 1;
                GO.wait_while(&mut arrived, |arrived| *arrived != 0);
            });
        }
        while *ARRIVED.lock() < n {
            std::thread::yield_now();
        }
        std::thread::sleep(pause);
        then();
    });
}

/// The child's only thread starts other threads, which wait. Each must be reached.
fn waits_in_child() -> bool {
    // Clears what the parent's waiters have left behind.
    GO.notify_all();
    let mut nobody = ARRIVED.lock();
    let nobody_waits =
        GO.notify_all() == 0 && !GO.notify_one() && GO.wait_for(&mut nobody, PAUSE).timed_out();
    drop(nobody);
    with_waiters(1, 50 * PAUSE, || {
        *ARRIVED.lock() = 0;
        GO.notify_one();
    });
    with_waiters(4, 50 * PAUSE, || {
        *ARRIVED.lock() = 0;
        GO.notify_all();
    });
    nobody_waits
}

#[test]
fn a_condition_variable_is_used_in_a_child_whose_parent_has_waiters() {
    let name = "a_condition_variable_is_used_in_a_child_whose_parent_has_waiters";
    on_its_own(name, || {
        at_fork(Some(hold_arrived), Some(free_arrived), free_arrived);
        for waiters in [1, 3] {
            // Without a pause one of the waiters still spins.
            for pause in [Duration::ZERO, 100 * PAUSE] {
                with_waiters(waiters, pause, || {
                    assert!(
                        holds_in_a_fork(waits_in_child),
                        "waiters were not reached in the child"
                    );
                    let mut arrived = ARRIVED.lock();
                    *arrived = 0;
                    // A waiter that is just about to fall asleep may count twice.
                    let notified = GO.notify_all() as u32;
                    assert!((waiters..=waiters + 1).contains(&notified), "{notified}");
                });
            }
        }
    });
}
