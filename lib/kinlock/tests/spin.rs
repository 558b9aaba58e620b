//! What threads leave when they end: their waiter slots.
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
