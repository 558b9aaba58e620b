//! The mutex: every kind of queue while waiters give up.
//!
//! `every_lock.rs` has the tests that all locks share.
#![cfg(not(loom))]

use kinlock_core::config::{LocalLimit, Quantum, Tuning};
use kinlock_core::platform::Platform;
use kinlock_core::raw::LockConfig;
use kinlock_core::raw::mutex::{QueueKind, QueuedMutex};
use kinlock_linux::Native;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Miri runs one thread at a time, and slowly.
const ROUNDS: u64 = if cfg!(miri) { 20 } else { 20_000 };

macro_rules! config {
    ($name:ident, $queue:expr, $quantum:expr) => {
        #[derive(Clone, Copy, Debug)]
        struct $name;
        impl LockConfig for $name {
            fn tuning() -> Tuning {
                let mut tuning = Tuning::DEFAULT;
                tuning.reorder = true;
                tuning.limit = LocalLimit::count(2).unwrap();
                tuning.quantum = $quantum;
                tuning
            }
            fn queue() -> QueueKind {
                $queue
            }
        }
    };
}

config!(Fair, QueueKind::Osq, Quantum::FAIR);
config!(Long, QueueKind::Osq, Quantum::THROUGHPUT);
config!(LocalFirst, QueueKind::Cna, Quantum::FAIR);
config!(Unqueued, QueueKind::Unqueued, Quantum::FAIR);

/// Half of the waiters give up after a moment. Two counts of the critical sections must agree.
fn counts_correctly_while_some_give_up<C: LockConfig>() {
    let lock = QueuedMutex::<Native, C>::default();
    let entered = AtomicU64::new(0);
    let taken = AtomicU64::new(0);
    let rounds = ROUNDS.div_ceil(20);
    std::thread::scope(|s| {
        for i in 0..6 {
            let (lock, entered, taken) = (&lock, &entered, &taken);
            s.spawn(move || {
                for round in 0..rounds {
                    let limit = Native::now() + round % 7 * 20_000;
                    if i % 2 == 0 {
                        lock.lock();
                    } else if !lock.lock_until(limit) {
                        continue;
                    }
                    // Not an atomic addition, so that two holders at once lose a count.
                    entered.store(entered.load(Relaxed) + 1, Relaxed);
                    taken.fetch_add(1, Relaxed);
                    // SAFETY: taken above.
                    unsafe { lock.unlock() };
                }
            });
        }
    });
    assert_eq!(entered.load(Relaxed), taken.load(Relaxed));
    assert!(taken.load(Relaxed) >= 3 * rounds);
    assert!(!lock.is_locked() && !lock.is_contended());
}

#[test]
fn every_queue_and_quantum_keeps_count_while_some_give_up() {
    counts_correctly_while_some_give_up::<Fair>();
    counts_correctly_while_some_give_up::<Long>();
    counts_correctly_while_some_give_up::<LocalFirst>();
    counts_correctly_while_some_give_up::<Unqueued>();
}
