//! A reentrant mutex is entered by its holder only, even if the C library gives the memory of an
//! ended thread to a new one. The only test of this process, since its child starts threads (see
//! `child.rs`).
#![cfg(all(feature = "std", not(any(loom, miri))))]

mod support;

use kinlock::ReentrantMutex;
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::thread::{scope, spawn, yield_now};

/// Whether one of a few threads, which try one after the other, enters.
fn is_entered(lock: &ReentrantMutex<Cell<u32>>) -> bool {
    (0..16).any(|_| scope(|s| s.spawn(|| lock.try_lock().is_some()).join().unwrap()))
}

/// Whether `check` holds in the child of a fork.
fn in_a_child(check: impl FnOnce() -> bool) -> bool {
    support::in_a_child(|| i32::from(!check())) == Some(0)
}

#[test]
fn what_a_thread_that_is_gone_has_locked_stays_locked() {
    static LOCK: ReentrantMutex<Cell<u32>> = ReentrantMutex::new(Cell::new(0));
    static DONE: AtomicBool = AtomicBool::new(false);
    static OWN: ReentrantMutex<Cell<u32>> = ReentrantMutex::new(Cell::new(0));

    let own = OWN.lock();
    let other = spawn(|| {
        let guard = LOCK.lock();
        guard.set(1);
        while !DONE.load(Acquire) {
            yield_now();
        }
    });
    while !LOCK.is_locked() || LOCK.is_owned_by_current_thread() {
        yield_now();
    }
    let right = in_a_child(|| {
        // The child has what the forking thread held, and only that thread has it.
        let entered = OWN.try_lock().is_some() && !is_entered(&OWN);
        entered && !is_entered(&LOCK) && in_a_child(|| OWN.try_lock().is_some())
    });
    assert!(right);
    DONE.store(true, Release);
    other.join().unwrap();
    assert!(is_entered(&LOCK));
    // A thread leaks its guard and ends.
    spawn(|| std::mem::forget(LOCK.lock())).join().unwrap();
    assert!(!is_entered(&LOCK));
    drop(own);
    assert!(is_entered(&OWN));
}
