//! The spinlock: sleepers, abandoned waits, slots and threads that end.
//!
//! `every_lock.rs` has the tests that all locks share.
#![cfg(not(loom))]

use kinlock::lock_api::Mutex;
use kinlock::{RawCnaSpinLock, SpinLock};
use kinlock_core::config::Tuning;
use kinlock_core::platform::Platform;
use kinlock_core::raw::{LockConfig, QueuedSpinLock};
use kinlock_linux::Native;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Miri runs one thread at a time, and slowly.
const ROUNDS: u64 = if cfg!(miri) { 20 } else { 20_000 };

/// Without barging every hand-off goes to the front waiter, which mostly has to be woken.
#[test]
fn without_stealing_sleeping_waiters_are_all_woken() {
    #[derive(Clone, Copy, Debug)]
    struct Strict;
    impl LockConfig for Strict {
        fn tuning() -> Tuning {
            let mut tuning = Tuning::DEFAULT;
            tuning.stealing = false;
            tuning
        }
    }
    static LOCK: QueuedSpinLock<Native, Strict> = QueuedSpinLock::new();
    static ENTERED: AtomicU64 = AtomicU64::new(0);
    let (threads, rounds) = (8, ROUNDS.div_ceil(10));
    std::thread::scope(|s| {
        for i in 0..threads {
            s.spawn(move || {
                for _ in 0..rounds {
                    // Some waits have a time limit: these are woken in another way.
                    if i % 4 != 0 || !LOCK.lock_until(Native::now() + 50_000) {
                        LOCK.lock();
                    }
                    ENTERED.store(ENTERED.load(Relaxed) + 1, Relaxed);
                    // SAFETY: taken above.
                    unsafe { LOCK.unlock() };
                }
            });
        }
    });
    assert_eq!(ENTERED.load(Relaxed), threads * rounds);
    assert!(!LOCK.is_locked() && !LOCK.is_contended());
}

/// Waiters give up anywhere in the queue; all that stay get the lock.
#[test]
fn abandoned_places_do_not_block_the_queue() {
    let lock: Mutex<RawCnaSpinLock, u64> = Mutex::new(0);
    let rounds = if cfg!(miri) { 3 } else { 200 };
    let mut taken = 0;
    std::thread::scope(|s| {
        let handles: Vec<_> = (0..6u64)
            .map(|i| {
                let lock = &lock;
                s.spawn(move || {
                    let mut taken = 0;
                    for round in 0..rounds {
                        if i % 2 == 0 {
                            *lock.lock() += 1;
                            taken += 1;
                        } else if let Some(mut value) =
                            lock.try_lock_for(Duration::from_micros(round % 50))
                        {
                            *value += 1;
                            taken += 1;
                        }
                    }
                    taken
                })
            })
            .collect();
        taken = handles.into_iter().map(|h| h.join().unwrap()).sum();
    });
    assert_eq!(lock.into_inner(), taken);
}

/// Over time there are far more threads than waiter slots. All contend, so each needs a slot.
#[test]
#[cfg_attr(miri, ignore = "thousands of threads")]
fn slots_are_recycled_when_threads_end() {
    let lock = SpinLock::new(0u32);
    let barrier = Barrier::new(8);
    let generations = 20_000 / 8;
    std::thread::scope(|s| {
        for _ in 0..8 {
            s.spawn(|| {
                for _ in 0..generations {
                    std::thread::scope(|inner| {
                        inner.spawn(|| {
                            barrier.wait();
                            *lock.lock() += 1;
                        });
                    });
                }
            });
        }
    });
    assert_eq!(*lock.lock(), 8 * generations);
    let in_use = Native::waiters().in_use();
    assert!(in_use < 200, "{in_use} slots are still claimed");
}

#[test]
#[cfg_attr(
    miri,
    ignore = "Miri does not run destructors of pthread keys in this order"
)]
fn locks_work_in_destructors_of_thread_locals() {
    static LOCK: SpinLock<u32> = SpinLock::new(0);
    struct LocksWhenDropped;
    impl Drop for LocksWhenDropped {
        fn drop(&mut self) {
            *LOCK.lock() += 1;
        }
    }
    thread_local!(static LAST: LocksWhenDropped = const { LocksWhenDropped });
    let barrier = Barrier::new(8);
    std::thread::scope(|s| {
        let lock_twice = || {
            LAST.with(|_| {});
            barrier.wait();
            *LOCK.lock() += 1;
        };
        let threads: Vec<_> = (0..8).map(|_| s.spawn(lock_twice)).collect();
        // A scope does not wait for destructors of thread-locals; joining does.
        threads.into_iter().for_each(|t| t.join().unwrap());
    });
    assert_eq!(*LOCK.lock(), 16);
}
