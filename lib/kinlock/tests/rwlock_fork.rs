//! The child of a process in which readers are announced and counted uses its locks.
#![cfg(all(not(miri), not(loom)))]

mod support;

use kinlock::RwLock;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::thread::{sleep, yield_now};
use std::time::Duration;
use support::in_a_child;

/// The number of the first that is false, or 0.
fn first_false(checks: &[bool]) -> i32 {
    let failed = checks.iter().position(|&check| !check);
    failed.map_or(0, |at| at as i32 + 1)
}

/// Threads read for a moment, all at the same time, so that the lock becomes biased.
fn read_together(lock: &RwLock<u32>) {
    let done = AtomicBool::new(false);
    std::thread::scope(|s| {
        for _ in 0..3 {
            s.spawn(|| {
                while !done.load(Relaxed) {
                    std::hint::black_box(*lock.read());
                }
            });
        }
        sleep(Duration::from_millis(5));
        done.store(true, Relaxed);
    });
}

/// What the child finds: a lock that another thread read, if it was `announced`; one that the
/// forking thread reads; one of its own.
fn child(theirs: &RwLock<u32>, mine: &RwLock<u32>, reads: impl Sized) -> i32 {
    const LONG: Duration = Duration::from_secs(100);
    let held = mine.try_write().is_none();
    drop(reads);
    let free = mine.try_write_for(LONG).is_some();
    let own = RwLock::new(1);
    read_together(&own);
    let written = own
        .try_write_for(LONG)
        .map(|mut value| *value += 1)
        .is_some();
    let read = own.try_read_for(LONG).is_some_and(|value| *value == 2);
    let shared = theirs.try_read().is_some();
    // Last, since it may be no fault: the reader was counted.
    let announced = theirs.try_write().is_some();
    first_false(&[held, free, written, read, shared, announced])
}

/// The number of the last check of [`child`].
const COUNTED: i32 = 6;

#[test]
fn a_child_writes_its_locks_whatever_readers_were_announced() {
    let counted = (0..100).take_while(|_| {
        let (theirs, mine) = (RwLock::new(0), RwLock::new(0));
        read_together(&theirs);
        read_together(&mine);
        let (reads, forked) = (Barrier::new(2), AtomicBool::new(false));
        std::thread::scope(|s| {
            s.spawn(|| {
                let guard = theirs.read();
                reads.wait();
                while !forked.load(Acquire) {
                    yield_now();
                }
                drop(guard);
            });
            reads.wait();
            let guard = mine.read();
            // The child drops a copy.
            let found = in_a_child(|| {
                // SAFETY: this process is a copy, in which the guard is dropped only once.
                child(&theirs, &mine, unsafe { std::ptr::read(&guard) })
            });
            forked.store(true, Release);
            drop(guard);
            assert!(matches!(found, Some(0 | COUNTED)), "{found:?}");
            found == Some(COUNTED)
        })
    });
    // A lock becomes biased soon, though not surely in the first moment.
    assert!(
        counted.count() < 100,
        "no child could write a lock that another thread read"
    );
}

#[test]
fn a_child_cannot_write_a_lock_that_another_thread_read_without_bias() {
    let lock = RwLock::new(0);
    let (reads, forked) = (Barrier::new(2), AtomicBool::new(false));
    std::thread::scope(|s| {
        s.spawn(|| {
            let _reads = lock.read();
            reads.wait();
            while !forked.load(Acquire) {
                yield_now();
            }
        });
        reads.wait();
        let wait = Duration::from_millis(5);
        let checks = || {
            [
                lock.try_read().is_some(),
                lock.try_write_for(wait).is_none(),
            ]
        };
        assert_eq!(in_a_child(|| first_false(&checks())), Some(0));
        forked.store(true, Release);
    });
}
