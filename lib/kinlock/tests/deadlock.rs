//! Deadlocks of real threads are found, and nothing else is.
//!
//! # Invariant cited by `SAFETY` comments
//!
//! 1. A read guard of this lock was forgotten, and not released since.
#![cfg(feature = "deadlock_detection")]

use kinlock::deadlock::check_deadlock;
use kinlock::{Condvar, Mutex, RwLock};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Barrier;
use std::sync::Mutex as StdMutex;
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

/// A check concerns the whole process.
static ONE_AT_A_TIME: StdMutex<()> = StdMutex::new(());

fn one_at_a_time() -> std::sync::MutexGuard<'static, ()> {
    let taken = ONE_AT_A_TIME.lock();
    taken.unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// The number of threads in each circle that a check finds, within a time that is long enough on
/// any machine.
fn found() -> Vec<usize> {
    let until = Instant::now() + Duration::from_secs(300);
    loop {
        let circles: Vec<usize> = check_deadlock().iter().map(Vec::len).collect();
        if !circles.is_empty() || Instant::now() > until {
            assert!(check_deadlock().is_empty(), "reported twice");
            return circles;
        }
        sleep(Duration::from_millis(5));
    }
}

#[test]
fn different_locks_form_a_circle() {
    static MUTEX: Mutex<()> = Mutex::new(());
    static RWLOCK: RwLock<()> = RwLock::new(());
    static LAST: RwLock<()> = RwLock::new(());
    let _one = one_at_a_time();
    let both: &'static Barrier = Box::leak(Box::new(Barrier::new(3)));
    thread::spawn(|| {
        let _held = MUTEX.lock();
        both.wait();
        drop(RWLOCK.read());
    });
    thread::spawn(|| {
        let _held = RWLOCK.write();
        both.wait();
        drop(LAST.upgradable_read());
    });
    thread::spawn(|| {
        let _held = LAST.upgradable_read();
        both.wait();
        drop(MUTEX.lock());
    });
    assert_eq!(found(), [3]);
}

#[test]
fn a_reader_that_reads_again_behind_a_writer_is_found() {
    static LOCK: RwLock<()> = RwLock::new(());
    let _one = one_at_a_time();
    thread::spawn(|| {
        let _first = LOCK.read();
        thread::spawn(|| drop(LOCK.write()));
        // The writer lets readers pass until it has queued anew, and then waits for good.
        loop {
            drop(LOCK.read());
            thread::yield_now();
        }
    });
    assert_eq!(found(), [2]);
}

#[test]
fn the_end_of_a_wait_for_a_condition_counts() {
    static FIRST: Mutex<bool> = Mutex::new(false);
    static SECOND: Mutex<()> = Mutex::new(());
    static CHANGED: Condvar = Condvar::new();
    let _one = one_at_a_time();
    thread::spawn(|| {
        let _held = SECOND.lock();
        CHANGED.wait_while(&mut FIRST.lock(), |set| !*set);
    });
    thread::spawn(|| {
        while !SECOND.is_locked() {
            thread::yield_now();
        }
        let mut set = FIRST.lock();
        *set = true;
        CHANGED.notify_one();
        drop(SECOND.lock());
    });
    assert_eq!(found(), [2]);
}

#[test]
fn busy_locks_are_no_deadlock() {
    let _one = one_at_a_time();
    let locks = [(); 3].map(|()| (Mutex::new(0), RwLock::new(0)));
    let stop = std::sync::atomic::AtomicBool::new(false);
    let going = || !stop.load(std::sync::atomic::Ordering::Relaxed);
    thread::scope(|s| {
        for i in 0..6 {
            let locks = &locks;
            s.spawn(move || {
                // In one order, so that no circle can close.
                while going() {
                    let mut mutex = locks[i % 2].0.lock();
                    match i % 3 {
                        0 => *locks[1 + i % 2].1.write() += 1,
                        _ => *mutex = *locks[1 + i % 2].1.read(),
                    }
                }
            });
        }
        for _ in 0..50 {
            assert!(check_deadlock().is_empty());
            sleep(Duration::from_millis(5));
        }
        // A wait with a limit is no circle, either.
        let _held = locks[2].0.lock();
        assert!(locks[2].0.try_lock_for(Duration::from_millis(20)).is_none());
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

/// After its panic, the reader no longer waits behind the writer, which waits for it.
#[test]
fn a_read_that_panics_is_no_wait_any_more() {
    const LIMIT: u32 = (1 << 20) - 1;
    let _one = one_at_a_time();
    let full = RwLock::new(());
    (0..LIMIT).for_each(|_| std::mem::forget(full.read()));
    catch_unwind(AssertUnwindSafe(|| drop(full.read()))).expect_err("it is counted");
    // SAFETY: invariant 1.
    let release = || unsafe { full.force_unlock_read() };
    release();
    thread::scope(|s| {
        s.spawn(|| drop(full.write()));
        // Until the writer asks to go next.
        while full.try_read().is_some() {
            thread::yield_now();
        }
        assert!(check_deadlock().is_empty());
        (1..LIMIT).for_each(|_| release());
    });
}
