//! How long the spins of a thread are, depending on the outcome of the last ones.

use crate::Native;
use crate::platform::Platform;
use crate::raw::Usual;
use crate::raw::contend::constants::SPIN_NS as SPIN;
use crate::raw::contend::spin::{limit, record};
use crate::raw::mutex::QueuedMutex;
use std::thread;

/// Runs `test` on a new thread, which has a slot.
fn on_a_thread(test: impl FnOnce() + Send) {
    thread::scope(|s| {
        s.spawn(|| {
            drop(Native::waiters().take_node().expect("a slot is free"));
            record::<Native>(true);
            test();
        });
    });
}

/// The length of spins that were halved.
fn short() -> u64 {
    loop {
        match limit::<Native>() {
            SPIN => {}
            nanos => return nanos,
        }
    }
}

#[test]
fn a_spin_without_the_lock_halves_the_next_ones() {
    on_a_thread(|| {
        assert_eq!(limit::<Native>(), SPIN);
        for halvings in 1..=6 {
            record::<Native>(false);
            assert_eq!(short(), SPIN >> halvings);
        }
        record::<Native>(false);
        assert_eq!(short(), SPIN >> 6, "the shortest");
        while limit::<Native>() != SPIN {}
        record::<Native>(true);
        assert!((0..1000).all(|_| limit::<Native>() == SPIN));
    });
}

/// The time limit ended the spin, which says nothing about a longer spin.
#[test]
fn a_spin_that_a_limit_ends_does_not_count() {
    let mutex = QueuedMutex::<Native, Usual>::default();
    mutex.lock();
    on_a_thread(|| {
        for _ in 0..10 {
            assert!(!mutex.lock_until(Native::now() + 1_000));
        }
        assert!((0..1000).all(|_| limit::<Native>() == SPIN));
    });
}
