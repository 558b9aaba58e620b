//! The word, transition by transition.

use super::*;

#[test]
fn unlocking_hands_the_lock_to_the_requester() {
    for (before, after) in [
        (HANDOFF, PICKUP),
        (HANDOFF | HANDOFF_SLEEPS, PICKUP),
        (HANDOFF | SLEEPERS, PICKUP | SLEEPERS),
    ] {
        let mutex = with::<Sound>(HELD, before);
        unlock(&mutex);
        assert_eq!(state(&mutex), (HELD, after));
        assert!(!mutex.try_lock());
    }
}

/// What the model checker and the explorer search for, seen in the word.
#[test]
fn a_hand_off_that_releases_as_well_shows() {
    let mutex = with::<DoubleHandOff>(HELD, HANDOFF);
    unlock(&mutex);
    assert_eq!(state(&mutex), (FREE, PICKUP));
}

#[test]
fn unlocks_count_themselves_up_to_seven_in_a_sample() {
    let mutex = with::<Sound>(FREE, 0);
    mutex.start_sample();
    for unlocks in 1..=7 {
        assert!(mutex.try_lock());
        unlock(&mutex);
        assert_eq!(state(&mutex), (FREE, SAMPLING | (unlocks * UNLOCK)));
        assert_eq!(mutex.cycles_fast(), unlocks >= 3);
    }
    // From here on unlocks are as quick as without a sample.
    for _ in 0..2 {
        assert!(mutex.try_lock());
        unlock(&mutex);
        assert_eq!(state(&mutex), (FREE, UNLOCKS));
    }
    mutex.start_sample();
    assert_eq!(state(&mutex), (FREE, SAMPLING));
}

#[test]
fn there_is_one_requester() {
    let mutex = with::<Sound>(HELD, SLEEPERS);
    let (mut first, mut second) = (at_front(), at_front());
    assert!(mutex.request_handoff(&mut first, 0) && first.requested);
    assert!(!mutex.request_handoff(&mut second, 0) && !second.requested);
    assert_eq!(state(&mutex), (HELD, HANDOFF | SLEEPERS));
    unlock(&mutex);
    assert!(
        !mutex.request_handoff(&mut second, 0),
        "not while a pickup is due"
    );
}

#[test]
fn a_withdrawn_request_leaves_nothing_behind() {
    let mutex = with::<Sound>(HELD, HANDOFF | HANDOFF_SLEEPS | SLEEPERS);
    let mut wait = requester();
    assert!(!mutex.finish(&mut wait, false));
    assert_eq!((state(&mutex), wait.requested), ((HELD, SLEEPERS), false));
}

#[test]
fn withdrawing_after_the_hand_off_yields_the_lock() {
    let mutex = with::<Sound>(HELD, PICKUP);
    assert!(mutex.finish(&mut requester(), false));
    assert_eq!(state(&mutex), (HELD, 0));
    let mutex = with::<LeakyCancel>(HELD, PICKUP);
    assert!(!mutex.finish(&mut requester(), false));
    assert_eq!(state(&mutex), (HELD, PICKUP), "nobody will ever take it");
}

#[test]
fn a_requester_that_finds_the_lock_free_clears_its_request() {
    let mutex = with::<Sound>(FREE, HANDOFF);
    let mut wait = requester();
    assert!(mutex.await_handoff(&mut wait, 50_000));
    assert!(mutex.finish(&mut wait, true));
    assert_eq!(state(&mutex), (HELD, 0));
}

/// Two threads that hand the lock to each other must not forget the sleepers outside the queue.
#[test]
fn a_pickup_wakes_the_sleeper_that_the_hand_off_did_not() {
    let mutex = with::<Sound>(HELD, PICKUP | SLEEPERS);
    assert!(mutex.finish(&mut requester(), true));
    assert_eq!(state(&mutex), (HELD, 0), "woken, and the flag is cleared");
    // Not after an unlock that has woken a sleeper itself.
    let mutex = with::<Sound>(HELD, HANDOFF | SLEEPERS);
    assert!(mutex.finish(&mut requester(), true));
    assert_eq!(state(&mutex), (HELD, SLEEPERS));
}

#[test]
fn the_requester_is_woken_before_the_others() {
    let mutex = with::<Sound>(FREE, HANDOFF_SLEEPS | SLEEPERS);
    mutex.wake();
    assert_eq!(state(&mutex), (FREE, SLEEPERS));
    mutex.wake();
    assert_eq!(state(&mutex), (FREE, 0));
}

#[test]
fn a_waiter_that_has_slept_sets_the_flag_for_others() {
    let slept = || Wait {
        slept: true,
        ..at_front()
    };
    let mutex = with::<Sound>(HELD, 0);
    assert!(mutex.finish(&mut slept(), true));
    assert_eq!(state(&mutex), (HELD, SLEEPERS));
    // It does not get the lock, and the holder will see the flag.
    let mutex = with::<Sound>(HELD, 0);
    assert!(!mutex.finish(&mut slept(), false));
    assert_eq!(state(&mutex), (HELD, SLEEPERS));
    // There is no holder, so the next sleeper is woken at once.
    let mutex = with::<Sound>(FREE, 0);
    assert!(!mutex.finish(&mut slept(), false));
    assert_eq!(state(&mutex), (FREE, 0));
}

#[test]
fn a_mode_goes_with_the_request() {
    let mutex = with::<Sound>(HELD, SLEEPERS);
    for request_mode in [SHARE, EXCLUSIVE] {
        let mut wait = at_front();
        assert!(mutex.request_handoff(&mut wait, request_mode));
        assert_eq!(state(&mutex).1, HANDOFF | SLEEPERS | request_mode);
        assert!(!mutex.start_sample(), "that would make it unheard");
        assert!(!mutex.withdraw_request(&mut wait));
        assert_eq!(state(&mutex).1, SLEEPERS | UNLOCKS);
        // The mode also ends when the requester takes the lock by itself.
        assert!(mutex.request_handoff(&mut wait, request_mode));
        assert!(mutex.finish(&mut wait, true));
        assert_eq!(state(&mutex).1, SLEEPERS | UNLOCKS);
    }
}
