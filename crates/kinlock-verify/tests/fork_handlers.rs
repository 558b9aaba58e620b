//! Fork in a program that has fork handlers of its own. They and the library's are called in an
//! order that must suit both.
//!
//! # Invariants
//!
//! 1. Handlers of forks are `extern "C"`, do not unwind, and live as long as the program. A lock
//!    that they take is released on the same thread.
#![cfg(not(any(loom, miri)))]

mod support;

use kinlock::RawSpinLock;
use kinlock::lock_api::RawMutex as _;
use kinlock_invalidation::Domain;
use kinlock_verify::child::{self, FINE};
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::sync::{Barrier, OnceLock};
use std::time::Duration;

type Handler = unsafe extern "C" fn();

const FORKS: u32 = 200;
/// A process that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(10);

/// Between two looks at a child.
const PAUSE: Duration = Duration::from_micros(100);

/// The program's lock: taken before a fork, and by threads that make domains under it.
static PROGRAM: RawSpinLock = RawSpinLock::INIT;
/// The domain in which another thread has a section open.
static SECTIONS: OnceLock<Domain> = OnceLock::new();
/// Whether the program's handler has found the child tidied up.
static TIDY: AtomicBool = AtomicBool::new(true);

extern "C" fn before() {
    PROGRAM.lock();
}

extern "C" fn after() {
    // SAFETY: invariant 1.
    unsafe { PROGRAM.unlock() };
}

extern "C" fn in_child() {
    let nothing_open = SECTIONS.get().is_some_and(|open| open.dump().is_empty());
    let made = Domain::new();
    drop(made.begin());
    let leases = kinlock_ids::Domain::builder().max_ids(32).build();
    TIDY.store(nothing_open && leases.is_ok(), Relaxed);
}

/// Forks while another thread works in a loop. The first domain of delayed invalidation is made
/// here.
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
            let child = child::fork(|| if TIDY.load(Relaxed) { FINE } else { 1 });
            let child = child.expect("a child can be forked");
            let status = child.wait(PATIENCE, |_| std::thread::sleep(PAUSE));
            assert_eq!(
                status,
                Ok(FINE),
                "the program's handler has found the child untidy"
            );
        }
        done.store(true, Relaxed);
    });
}

/// Runs `body`, that of the test `name`, in a process of its own: handlers stay for ever, and it
/// may hang. Then an alarm ends it.
fn on_its_own(name: &str, body: impl FnOnce()) {
    support::in_child(name, "", || {
        // SAFETY: `alarm` has no preconditions.
        unsafe { libc::alarm(PATIENCE.as_secs() as u32) };
        body();
    });
}

/// Has these handlers called at every fork.
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
        fork_amid(std::thread::yield_now);
    });
}
