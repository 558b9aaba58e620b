//! Fork in a program that has fork handlers of its own. They and the library's are called in an
//! order that must suit both.
//!
//! # Invariants
//!
//! 1. Handlers of forks are `extern "C"`, do not unwind, and live as long as the program. A lock
//!    that they take is released on the same thread.
#![cfg(not(any(loom, miri)))]

use kinlock::RawSpinLock;
use kinlock::lock_api::RawMutex as _;
use kinlock_invalidation::Domain;
use kinlock_verify::child::{self, FINE};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::sync::{Barrier, OnceLock};
use std::time::{Duration, Instant};

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

/// Runs the test of that name in a process of its own: handlers stay for ever, and it may hang.
/// Returns whether this is that process.
fn is_on_its_own(test: &str) -> bool {
    const CHILD: &str = "KINLOCK_TEST_ON_ITS_OWN";
    if std::env::var_os(CHILD).is_some() {
        return true;
    }
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(CHILD, "1")
        .spawn()
        .unwrap();
    let give_up = Instant::now() + PATIENCE;
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if Instant::now() >= give_up {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("it hangs");
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    assert!(status.success(), "{status}");
    false
}

#[test]
fn domains_are_made_under_a_lock_that_the_program_takes_before_a_fork() {
    if !is_on_its_own("domains_are_made_under_a_lock_that_the_program_takes_before_a_fork") {
        return;
    }
    // SAFETY: invariant 1.
    let refused = unsafe { libc::pthread_atfork(Some(before), Some(after), Some(after)) };
    assert_eq!(refused, 0);
    fork_amid(|| {
        PROGRAM.lock();
        drop(Domain::new());
        drop(kinlock_ids::Domain::builder().max_ids(32).build());
        // SAFETY: locked above.
        unsafe { PROGRAM.unlock() };
    });
}

#[test]
fn the_programs_handler_finds_the_child_tidied_up() {
    if !is_on_its_own("the_programs_handler_finds_the_child_tidied_up") {
        return;
    }
    // SAFETY: invariant 1.
    let refused = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    assert_eq!(refused, 0);
    fork_amid(std::thread::yield_now);
}
