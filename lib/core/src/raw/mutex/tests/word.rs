//! The word, row by row of the table in [`mutex`](super::super).

use super::*;
use crate::raw::contend;
use crate::raw::contend::spin;
use std::thread;

pub(super) fn unlocked<C: Model, L: AnyLayout>(flags: u8) -> (bool, u8) {
    let mutex = with::<C, L>(HELD, flags);
    unlock(&mutex);
    state(&mutex)
}

both_layouts! {
    fn running_threads_take_a_free_lock_whatever_its_flags<L>() {
        for flags in [0, HANDOFF, SLEEPERS, KEPT, WATCHED | KEPT | SLEEPERS] {
            let mutex = with::<Sound, L>(FREE, flags);
            assert!(mutex.try_lock());
            assert_eq!(state(&mutex), (HELD, flags));
            assert!(!mutex.try_lock() && !mutex.word.take());
        }
    }

    fn unlocking_releases_and_wakes_one_sleeper<L>() {
        for (before, after) in [
            (0, 0),
            (KEPT, KEPT),
            (SLEEPERS, 0),
            (SLEEPERS | KEPT, KEPT),
            // The watcher sees that the flag was cleared.
            (WATCHED, 0),
            (WATCHED | KEPT | SLEEPERS, KEPT),
        ] {
            assert_eq!(unlocked::<Sound, L>(before), (FREE, after), "{before}");
        }
    }

    fn unlocking_hands_the_lock_to_the_requester<L>() {
        for (before, after) in [
            (HANDOFF, PICKUP),
            (HANDOFF | REQUESTER_SLEEPS, PICKUP),
            (HANDOFF | SLEEPERS, PICKUP | SLEEPERS),
            (HANDOFF | WATCHED | KEPT, PICKUP | KEPT),
        ] {
            let mutex = with::<Sound, L>(HELD, before);
            unlock(&mutex);
            assert_eq!(state(&mutex), (HELD, after));
            assert!(!mutex.try_lock());
        }
    }

    fn there_is_one_requester<L>() {
        let mutex = with::<Sound, L>(HELD, SLEEPERS);
        assert!(mutex.request_handoff());
        assert!(!mutex.request_handoff());
        assert_eq!(state(&mutex), (HELD, HANDOFF | SLEEPERS));
        unlock(&mutex);
        assert!(!mutex.request_handoff(), "not while a pickup is due");
    }

    fn a_withdrawn_request_leaves_nothing_behind<L>() {
        let mutex = with::<Sound, L>(HELD, HANDOFF | REQUESTER_SLEEPS | SLEEPERS | KEPT);
        assert!(mutex.withdraw_request());
        assert_eq!(state(&mutex), (HELD, SLEEPERS | KEPT));
        let mutex = with::<Sound, L>(HELD, 0);
        assert!(mutex.request_handoff());
        assert!(mutex.withdraw_request());
        assert_eq!(state(&mutex), (HELD, 0));
    }

    fn withdrawing_after_the_hand_off_yields_the_lock<L>() {
        let mutex = with::<Sound, L>(HELD, PICKUP);
        assert!(!mutex.withdraw_request());
        assert!(matches!(Waiting::new(&mutex).await_handoff(&late()), Next::End(Some(()))));
        assert_eq!(state(&mutex), (HELD, 0));
    }

    fn a_requester_takes_what_is_free_or_handed_over<L>() {
        for (held, flags) in [(FREE, HANDOFF), (HELD, PICKUP)] {
            let mutex = with::<Sound, L>(held, flags);
            assert!(matches!(Waiting::new(&mutex).await_handoff(&at_front()), Next::End(Some(()))));
            assert_eq!(state(&mutex), (HELD, 0));
        }
    }

    /// If the hand-off comes while the requester spins, the spin has paid.
    fn a_hand_off_without_a_sleep_restores_the_spins<L>() {
        drop(Native::waiters().take_node().expect("a slot is free"));
        (0..6).for_each(|_| spin::record::<Native>(false));
        let mutex = with::<Sound, L>(HELD, PICKUP);
        assert!(matches!(Waiting::new(&mutex).await_handoff(&at_front()), Next::End(Some(()))));
        assert!((0..1000).all(|_| spin::limit::<Native>() == SPIN_NS));
    }

    /// Another waiter has picked the lock up in place of the requester.
    fn a_requester_whose_request_has_ended_begins_anew<L>() {
        let mutex = with::<Sound, L>(HELD, SLEEPERS);
        assert!(!mutex.pick_up());
        assert!(matches!(Waiting::new(&mutex).await_handoff(&at_front()), Next::Look));
        assert!(matches!(Waiting::new(&mutex).await_handoff(&late()), Next::Look));
        assert_eq!(state(&mutex), (HELD, SLEEPERS));
    }

    /// Two threads that hand the lock to each other must not forget the sleepers beside the queue.
    fn a_pickup_wakes_the_sleeper_that_the_hand_off_did_not<L>() {
        let mutex = with::<Sound, L>(HELD, PICKUP | SLEEPERS);
        assert!(mutex.pick_up());
        assert_eq!(state(&mutex), (HELD, 0), "woken, and the flag is cleared");
        // A requester that takes a free lock wakes no sleeper: the unlock has done so.
        let mutex = with::<Sound, L>(HELD, HANDOFF | SLEEPERS);
        mutex.end_request();
        assert_eq!(state(&mutex), (HELD, SLEEPERS));
    }

    fn a_waiter_that_has_slept_sets_the_flag_for_others<L>() {
        let mutex = with::<Sound, L>(FREE, 0);
        assert!(wait_as(&mutex, true, at_front()));
        assert_eq!(state(&mutex), (HELD, SLEEPERS));
        // The waiter gives up. Either the holder will see the flag, or the waiter wakes another
        // sleeper.
        let mutex = with::<Sound, L>(HELD, 0);
        assert!(!wait_as(&mutex, true, late()));
        assert_eq!(state(&mutex), (HELD, if is_one::<L>() { SLEEPERS } else { 0 }));
        // If there is no holder, the waiter wakes the next sleeper at once.
        let mutex = with::<Sound, L>(FREE, 0);
        assert!(!wait_as(&mutex, true, late()));
        assert_eq!(state(&mutex), (FREE, 0));
    }

    /// A trial marks the lock as kept, and finds it idle.
    fn an_idle_lock_is_no_longer_kept<L>() {
        for trial in [false, true] {
            let mutex = with::<Sound, L>(FREE, if trial { 0 } else { KEPT });
            assert!(wait_as(&mutex, false, waiting(Tuning::DEFAULT, trial)));
            assert_eq!(state(&mutex), (HELD, 0));
        }
    }

    /// A trial without a verdict must not leave the lock kept.
    fn a_trial_ends_with_the_wait<L>() {
        let mutex = with::<Sound, L>(HELD, 0);
        let until = Native::now() + 1;
        let wait = Wait { deadline: until, ..waiting(Tuning::DEFAULT, true) };
        assert!(!wait_as(&mutex, false, wait));
        assert_eq!(state(&mutex), (HELD, 0));
        let mutex = with::<Sound, L>(HELD, HANDOFF);
        unlock(&mutex);
        // The waiter is refused until the pickup, and its time is up before that.
        let deadline = Native::now() + 50_000;
        let taken = wait_as(&mutex, false, Wait { deadline, ..waiting(fair(), true) });
        // On a busy machine the waiter's patience may be over, too.
        let left = if taken { 0 } else { PICKUP };
        assert_eq!(state(&mutex).1 & !(SLEEPERS | WATCHED), left);
    }

    /// A thread does not even take a waiter slot for a deadline that has passed.
    fn a_deadline_that_has_passed_costs_nothing<L>() {
        let mutex = with::<Sound, L>(HELD, KEPT);
        thread::scope(|s| {
            s.spawn(|| {
                for deadline in [0, Native::now()] {
                    assert!(!mutex.lock_until(deadline));
                }
                assert_eq!(Native::kept_slot(), 0);
            });
        });
        assert_eq!((state(&mutex), mutex.queue.last()), ((HELD, KEPT), 0));
    }

    /// The requester is a thread of another process, so no unlock hands the lock to it.
    fn a_request_of_a_parent_is_void_in_the_child<L>() {
        const PARENT: u8 = 64;
        assert_ne!(PARENT, generation::<Native>());
        let request = HANDOFF | REQUESTER_SLEEPS | PARENT;
        for (before, after) in [
            (request, 0),
            (request | KEPT | WATCHED, KEPT),
            (request | SLEEPERS, 0),
        ] {
            assert_eq!(unlocked::<Sound, L>(before), (FREE, after), "{before}");
        }
        let mutex = with::<Sound, L>(HELD, request | SLEEPERS);
        assert!(mutex.request_handoff(), "overwritten");
        assert_eq!(state(&mutex), (HELD, HANDOFF | SLEEPERS));
        unlock(&mutex);
        assert_eq!(state(&mutex), (HELD, PICKUP | SLEEPERS));
    }

    fn a_forked_child_resets_what_its_parent_left<L>() {
        let mutex = with::<Sound, L>(HELD, u8::MAX);
        // SAFETY: no thread uses the mutex.
        unsafe { mutex.reset_in_child() };
        assert!(!mutex.is_contended());
        assert_eq!(state(&mutex), (FREE, 0));
    }
}

/// With the flag set, every lock and unlock would be slower, even without waiters.
#[test]
fn a_lock_for_which_nobody_waits_does_not_stay_kept() {
    let kept = || with::<AlwaysTrying, AnyJoined>(HELD, KEPT);
    let mutex = kept();
    unlock(&mutex);
    assert_eq!(state(&mutex), (FREE, 0));
    // If a waiter queues, only that waiter may clear the flag.
    let mutex = kept();
    mutex.queue.tail().store(4, Relaxed);
    unlock(&mutex);
    assert_eq!(state(&mutex), (FREE, KEPT));
    // By chance one unlock in `TRIALS` clears the flag.
    let mutex = Mutex::<Usual, AnyJoined>::default();
    mutex.word.set(KEPT, Relaxed);
    for _ in 0..1_000_000 {
        assert!(mutex.try_lock());
        unlock(&mutex);
    }
    assert_eq!(state(&mutex), (FREE, 0));
}

/// With [`Split`] a request may come between the holder's first look and its store. The requester
/// then takes the lock, or the holder wakes it after its second look. The holder also wakes another
/// sleeper: the requester may be giving up, and then would not pass the wake-up on.
#[test]
fn a_late_request_is_noticed_after_the_store() {
    let mutex = with::<Sound, AnySplit>(HELD, REQUESTER_SLEEPS | SLEEPERS);
    unlock(&mutex);
    assert_eq!(state(&mutex), (FREE, 0), "both are woken");
}

/// A newcomer passes queued waiters, unless each waiter is to have its turn at once.
#[test]
fn a_newcomer_barges_unless_the_lock_is_fair() {
    let mutex = Mutex::<Sound>::default();
    let place = Native::waiters().take_node().expect("a slot is free");
    let barges = |tuning| {
        let mut newcomer = Waiting::new(&mutex);
        let wait = waiting(tuning, false);
        contend::barge(&mut newcomer, &mutex.queue, &wait).is_some()
    };
    // Several attempts: a newcomer that loses its CPU for longer than it may barge does not get the
    // lock.
    let soon = |tuning| (0..10_000).any(|_| barges(tuning));
    assert!(soon(fair()), "nobody queues");
    unlock(&mutex);
    assert!(mutex.queue.join(&place, true, NEVER));
    assert!(!barges(fair()));
    assert_eq!(state(&mutex), (FREE, 0));
    assert!(soon(Tuning::DEFAULT));
    unlock(&mutex);
    mutex.queue.leave(&place);
}
