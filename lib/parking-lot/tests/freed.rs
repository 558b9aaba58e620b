//! A mutex may be freed as soon as another thread can have taken it: crates rely on that under the
//! name parking_lot.
//!
//! `lib/linux/tests/joined.rs` shows that an unlock of the layout `Joined` does not touch the
//! memory after the release. This shows that the facade has that layout.
//!
//! # Invariant cited by `SAFETY` comments
//!
//! 1. A mutex is four bytes, which are accessed as atomics only. The caller has taken it.

use parking_lot::RawMutex;
use parking_lot::lock_api::{RawMutex as _, RawMutexFair as _};
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// A sleeper's flag. A waiter sets it together with its request. An unlock that looks for sleepers
/// after the release would clear it; one that is a single step finds no request, and leaves it.
const REQUESTER_SLEEPS: u8 = 8;

fn flags_after(release: impl Fn(&RawMutex)) -> u8 {
    let mutex = RawMutex::INIT;
    assert!(mutex.try_lock());
    // SAFETY: invariant 1.
    let bytes = unsafe { &*(&raw const mutex).cast::<[AtomicU8; 4]>() };
    bytes[1].store(REQUESTER_SLEEPS, Relaxed);
    release(&mutex);
    assert!(!mutex.is_locked());
    bytes[1].load(Relaxed)
}

#[test]
fn an_unlock_looks_at_nothing_after_the_release() {
    // SAFETY: invariant 1.
    let usual = flags_after(|mutex| unsafe { mutex.unlock() });
    // SAFETY: invariant 1.
    let fair = flags_after(|mutex| unsafe { mutex.unlock_fair() });
    assert_eq!([usual, fair], [REQUESTER_SLEEPS; 2]);
}
