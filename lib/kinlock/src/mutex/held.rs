//! Which thread holds which mutex, as far as debug builds remember. Release builds have nothing
//! here.
//!
//! A fixed table of words. Each word mixes a mutex's address with its holder's number. Taking a
//! mutex stores the mix at the place that the address selects. Locking compares: a thread that
//! finds its own mix there holds the mutex already.
//!
//! Two mutexes may select the same place. The table then remembers the later holder, and relocking
//! the other mutex goes unnoticed. The reverse error needs a leaked guard: its word stays until the
//! holder of another mutex, in the same memory, has written its own. Any other word is gone before
//! its mutex is free: whichever thread releases the mutex clears the place, and a thread that waits
//! for a condition holds the mutex again before it can lock it.
//!
//! All accesses are relaxed: the table orders nothing and hides no data race from a race detector.
//! It neither allocates nor waits, and may be used in signal handlers. In the child of a fork the
//! forking thread keeps its number and the mutexes it holds.
//!
//! With the feature `send_guard` another thread may release the mutex, so that a thread may wait
//! for one that it has taken. With `deadlock_detection` the wait is to be found by that.

use lock_api::RawMutex;

#[cfg(not(all(
    debug_assertions,
    feature = "std",
    not(feature = "send_guard"),
    not(feature = "deadlock_detection")
)))]
pub(super) use nothing::{forbid_relock, forget, remember};
#[cfg(all(
    debug_assertions,
    feature = "std",
    not(feature = "send_guard"),
    not(feature = "deadlock_detection")
))]
pub(super) use table::{forbid_relock, forget, remember};

#[cfg(all(
    debug_assertions,
    feature = "std",
    not(feature = "send_guard"),
    not(feature = "deadlock_detection")
))]
mod table {
    use super::RawMutex;
    use crate::deadlock::number;
    use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

    const PLACES: usize = 4096;

    /// 0: not held.
    static HELD: [AtomicU64; PLACES] = [const { AtomicU64::new(0) }; PLACES];

    /// Panics if the calling thread holds `mutex`.
    #[track_caller]
    pub(in super::super) fn forbid_relock(mutex: &impl RawMutex) {
        let (place, mix) = entry(mutex);
        if place.load(Relaxed) == mix && mutex.is_locked() {
            panic!(
                "this thread locks a kinlock mutex that it holds already: it would wait for ever"
            );
        }
    }

    /// The calling thread has taken `mutex`.
    pub(in super::super) fn remember(mutex: &impl RawMutex) {
        let (place, mix) = entry(mutex);
        place.store(mix, Relaxed);
    }

    /// The calling thread is about to release `mutex`. Panics if it is free.
    #[track_caller]
    pub(in super::super) fn forget(mutex: &impl RawMutex) {
        assert!(
            mutex.is_locked(),
            "unlock of a kinlock mutex that no thread holds"
        );
        // The word may be another thread's, which has sent its guard, or another mutex's, which
        // then goes unnoticed.
        entry(mutex).0.store(0, Relaxed);
    }

    fn entry(mutex: &impl RawMutex) -> (&'static AtomicU64, u64) {
        const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
        let address = (core::ptr::from_ref(mutex).addr() as u64).wrapping_mul(ODD);
        let mix = address ^ number().wrapping_mul(ODD).rotate_left(32);
        // Never 0, which means not held.
        (&HELD[(address >> 52) as usize % PLACES], mix | 1)
    }

    #[cfg(all(test, not(loom)))]
    mod tests {
        use super::*;
        use crate::RawMutex as Mutex;

        #[test]
        fn a_thread_may_wait_for_what_another_thread_has_released() {
            let mutex = Mutex::new();
            mutex.lock();
            std::thread::scope(|s| {
                s.spawn(|| {
                    // SAFETY: the holder waits for this thread, and leaves the release to it.
                    unsafe { mutex.unlock() };
                    // As a thread that has the lock, and has not come to say so.
                    assert!(mutex.0.try_lock());
                });
            });
            forbid_relock(&mutex);
        }
    }
}

#[cfg(not(all(
    debug_assertions,
    feature = "std",
    not(feature = "send_guard"),
    not(feature = "deadlock_detection")
)))]
mod nothing {
    use super::RawMutex;

    #[inline(always)]
    pub(in super::super) fn forbid_relock(_: &impl RawMutex) {}

    #[inline(always)]
    pub(in super::super) fn remember(_: &impl RawMutex) {}

    #[inline(always)]
    #[cfg_attr(debug_assertions, track_caller)]
    pub(in super::super) fn forget(mutex: &impl RawMutex) {
        debug_assert!(
            mutex.is_locked(),
            "unlock of a kinlock mutex that no thread holds"
        );
        let _ = mutex;
    }
}
