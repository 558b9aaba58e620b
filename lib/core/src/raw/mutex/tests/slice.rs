//! When a holder asks for a longer time slice, and when it ends that.

use super::*;
use crate::threads::Slices;

const NONE: Slices = Slices {
    extended: 0,
    ended: 0,
};

/// How often a thread asks for a longer slice while it gets the lock by `get`.
fn asked<C: Model, L: AnyLayout>(get: impl FnOnce(&Mutex<C, L>)) -> u32 {
    let mutex = Mutex::<C, L>::default();
    Slices::during(|| get(&mutex)).extended
}

both_layouts! {
    fn an_uncontended_lock_asks_for_nothing<L>() {
        let mutex = Mutex::<Extending, L>::default();
        let fast = Slices::during(|| {
            mutex.lock();
            unlock(&mutex);
            assert!(mutex.try_lock());
            unlock(&mutex);
        });
        assert_eq!(fast, NONE);
    }

    fn a_thread_that_has_waited_asks_if_the_knob_is_on<L>() {
        assert_eq!(asked::<Sound, L>(|mutex| assert!(mutex.lock_slow(NEVER))), 0);
        assert_eq!(asked::<Extending, L>(|mutex| assert!(mutex.lock_slow(NEVER))), 1);
    }

    /// The thread has slept on the word, where a condition variable has moved it.
    fn a_thread_that_was_moved_here_asks_if_the_knob_is_on<L>() {
        assert_eq!(asked::<Sound, L>(|mutex| mutex.lock_after_sleep()), 0);
        assert_eq!(asked::<Extending, L>(|mutex| mutex.lock_after_sleep()), 1);
    }

    fn a_notified_thread_that_gets_the_lock_at_once_does_not_ask<L>() {
        assert_eq!(asked::<Extending, L>(|mutex| mutex.lock_notified()), 0);
    }

    fn a_notified_thread_that_has_slept_asks<L>() {
        let mutex = with::<Extending, L>(HELD, 0);
        let asked = std::thread::scope(|s| {
            let sleeper = s.spawn(|| Slices::during(|| mutex.lock_notified()));
            while mutex.word.flags() & SLEEPERS == 0 {
                std::thread::yield_now();
            }
            unlock(&mutex);
            sleeper.join().expect("woken")
        });
        assert_eq!(asked.extended, 1);
    }

    /// Such a thread does not hold the lock.
    fn a_thread_whose_time_is_up_does_not_ask<L>() {
        let held = with::<Extending, L>(HELD, 0);
        let late = Slices::during(|| assert!(!held.lock_slow(1)));
        assert_eq!(late.extended, 0);
        assert!(late.ended >= 1, "a waiter has no use for an extension");
    }

    /// Each waiter has set one of these flags.
    fn an_unlock_that_finds_waiters_ends_it<L>() {
        let request = HANDOFF | generation::<On<Extending>>();
        for flags in [WATCHED, SLEEPERS, WATCHED | SLEEPERS, request] {
            let mutex = with::<Extending, L>(HELD, flags);
            let slow = Slices::during(|| unlock(&mutex));
            assert!(slow.ended >= 1, "{flags:#b}: {slow:?}");
            assert_eq!(mutex.is_locked(), flags & HANDOFF != 0, "{flags:#b}");
        }
    }
}
