//! What threads leave when they end: their waiter slots, and locks in their last destructors.
//!
//! `every_lock.rs` has the tests that all locks share.
#![cfg(not(any(loom, miri)))]

use kinlock::SpinLock;
use kinlock_core::platform::Platform;
use kinlock_linux::Native;
use std::sync::Barrier;

/// Over time there are far more threads than waiter slots. All contend, so each needs a slot.
#[test]
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
