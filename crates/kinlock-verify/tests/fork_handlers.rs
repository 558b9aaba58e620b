//! Fork in a program that has fork handlers of its own: they and ours are called in an order that must suit both.
//!
//! # Invariants
//!
//! 1. The child of a fork ends by `_exit`. The status is written to a live local.
//! 2. Handlers of forks are `extern "C"`, do not unwind, and live as long as the program. What they lock they unlock, on the same thread.
#![cfg(not(any(loom, miri)))]

use kinlock::RawSpinLock;
use kinlock::lock_api::RawMutex as _;
use kinlock_invalidation::Domain;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::sync::{Barrier, OnceLock};
use std::time::{Duration, Instant};

const FORKS: u32 = 200;
/// Who takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(10);

/// The program's lock: taken before a fork, and by threads that make domains under it.
static PROGRAM: RawSpinLock = RawSpinLock::INIT;
/// Where another thread has a section open.
static SECTIONS: OnceLock<Domain> = OnceLock::new();
/// What the program's handler in the child has found.
static TIDY: AtomicBool = AtomicBool::new(true);

extern "C" fn before() {
    PROGRAM.lock();
}

extern "C" fn after() {
    // SAFETY: invariant 2.
    unsafe { PROGRAM.unlock() };
}

extern "C" fn in_child() {
    // SAFETY: no preconditions. If the child hangs, the default action of the signal ends it.
    unsafe { libc::alarm(PATIENCE.as_secs() as u32) };
    let nobodys = SECTIONS.get().is_some_and(|open| open.dump().is_empty());
    let made = Domain::new();
    drop(made.begin());
    let leases = kinlock_ids::Domain::builder().max_ids(32).build();
    TIDY.store(nobodys && leases.is_ok(), Relaxed);
}

/// Forks while another thread does something in a loop. No domain of delayed invalidation has been made before.
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
            // SAFETY: invariant 1.
            let child = unsafe { libc::fork() };
            if child == 0 {
                let code = if TIDY.load(Relaxed) { 0 } else { 1 };
                // SAFETY: invariant 1.
                unsafe { libc::_exit(code) };
            }
            let mut status = 0;
            // SAFETY: invariant 1.
            assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
            assert_eq!(
                status, 0,
                "the program's handler has found the child untidy"
            );
        }
        done.store(true, Relaxed);
    });
}

/// Runs the test of that name in a process of its own: handlers stay for ever, and it may hang. True there.
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
    // SAFETY: invariant 2.
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
    // SAFETY: invariant 2.
    let refused = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    assert_eq!(refused, 0);
    fork_amid(std::thread::yield_now);
}
