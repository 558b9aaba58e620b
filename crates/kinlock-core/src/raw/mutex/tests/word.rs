//! The word, transition by transition.

use super::*;

#[test]
fn unlocking_hands_the_lock_to_the_claimant() {
    for (before, after) in [
        (CLAIMED, GRANTED),
        (CLAIMED | CLAIMANT_SLEEPS, GRANTED),
        (CLAIMED | SLEEPERS, GRANTED | SLEEPERS),
    ] {
        let mutex = with::<Sound>(HELD, before);
        unlock(&mutex);
        assert_eq!(state(&mutex), (HELD, after));
        assert!(!mutex.try_lock());
    }
}

/// What the model checker and the explorer look for, seen in the word.
#[test]
fn a_grant_that_releases_as_well_shows() {
    let mutex = with::<DoubleHandOff>(HELD, CLAIMED);
    unlock(&mutex);
    assert_eq!(state(&mutex), (FREE, GRANTED));
}

#[test]
fn unlocks_count_themselves_up_to_seven_while_somebody_watches() {
    let mutex = with::<Sound>(FREE, 0);
    mutex.watch();
    for unlocks in 1..=7 {
        assert!(mutex.try_lock());
        unlock(&mutex);
        assert_eq!(state(&mutex), (FREE, WATCHED | (unlocks * UNLOCK)));
        assert_eq!(mutex.cycles_fast(), unlocks >= 3);
    }
    // From here on they are as quick as ever.
    for _ in 0..2 {
        assert!(mutex.try_lock());
        unlock(&mutex);
        assert_eq!(state(&mutex), (FREE, UNLOCKS));
    }
    mutex.watch();
    assert_eq!(state(&mutex), (FREE, WATCHED));
}

#[test]
fn there_is_one_claimant() {
    let mutex = with::<Sound>(HELD, SLEEPERS);
    let (mut first, mut second) = (at_front(), at_front());
    assert!(mutex.claim(&mut first, 0) && first.claimed);
    assert!(!mutex.claim(&mut second, 0) && !second.claimed);
    assert_eq!(state(&mutex), (HELD, CLAIMED | SLEEPERS));
    unlock(&mutex);
    assert!(
        !mutex.claim(&mut second, 0),
        "not while a grant is on its way"
    );
}

#[test]
fn a_claim_that_is_withdrawn_leaves_nothing_behind() {
    let mutex = with::<Sound>(HELD, CLAIMED | CLAIMANT_SLEEPS | SLEEPERS);
    let mut wait = claimant();
    assert!(!mutex.finish(&mut wait, false));
    assert_eq!((state(&mutex), wait.claimed), ((HELD, SLEEPERS), false));
}

#[test]
fn who_withdraws_after_the_grant_has_the_lock() {
    let mutex = with::<Sound>(HELD, GRANTED);
    assert!(mutex.finish(&mut claimant(), false));
    assert_eq!(state(&mutex), (HELD, 0));
    let mutex = with::<LeakyCancel>(HELD, GRANTED);
    assert!(!mutex.finish(&mut claimant(), false));
    assert_eq!(state(&mutex), (HELD, GRANTED), "nobody will ever take it");
}

#[test]
fn a_claimant_that_finds_the_lock_free_takes_its_claim_back() {
    let mutex = with::<Sound>(FREE, CLAIMED);
    let mut wait = claimant();
    assert!(mutex.await_grant(&mut wait, 50_000));
    assert!(mutex.finish(&mut wait, true));
    assert_eq!(state(&mutex), (HELD, 0));
}

/// Two that hand the lock to each other, each by a grant, must not forget those who sleep outside the queue.
#[test]
fn who_is_granted_the_lock_wakes_those_whom_the_grant_did_not() {
    let mutex = with::<Sound>(HELD, GRANTED | SLEEPERS);
    assert!(mutex.finish(&mut claimant(), true));
    assert_eq!(state(&mutex), (HELD, 0), "woken, and the flag is cleared");
    // Not after an unlock that has woken somebody itself.
    let mutex = with::<Sound>(HELD, CLAIMED | SLEEPERS);
    assert!(mutex.finish(&mut claimant(), true));
    assert_eq!(state(&mutex), (HELD, SLEEPERS));
}

#[test]
fn the_claimant_is_woken_before_the_others() {
    let mutex = with::<Sound>(FREE, CLAIMANT_SLEEPS | SLEEPERS);
    mutex.wake();
    assert_eq!(state(&mutex), (FREE, SLEEPERS));
    mutex.wake();
    assert_eq!(state(&mutex), (FREE, 0));
}

#[test]
fn who_has_slept_says_that_others_may() {
    let slept = || Wait {
        slept: true,
        ..at_front()
    };
    let mutex = with::<Sound>(HELD, 0);
    assert!(mutex.finish(&mut slept(), true));
    assert_eq!(state(&mutex), (HELD, SLEEPERS));
    // In vain, and the holder will see the flag, ...
    let mutex = with::<Sound>(HELD, 0);
    assert!(!mutex.finish(&mut slept(), false));
    assert_eq!(state(&mutex), (HELD, SLEEPERS));
    // ... or there is no holder: then the next one is woken at once.
    let mutex = with::<Sound>(FREE, 0);
    assert!(!mutex.finish(&mut slept(), false));
    assert_eq!(state(&mutex), (FREE, 0));
}

#[test]
fn a_wish_goes_with_the_claim() {
    let mutex = with::<Sound>(HELD, SLEEPERS);
    for wish in [ROOM, TO_BE_ALONE] {
        let mut wait = at_front();
        assert!(mutex.claim(&mut wait, wish));
        assert_eq!(state(&mutex).1, CLAIMED | SLEEPERS | wish);
        assert!(!mutex.watch(), "that would make it unheard");
        assert!(!mutex.withdraw(&mut wait));
        assert_eq!(state(&mutex).1, SLEEPERS | UNLOCKS);
        // Nor is it anybody's when the claimant has taken the lock by itself.
        assert!(mutex.claim(&mut wait, wish));
        assert!(mutex.finish(&mut wait, true));
        assert_eq!(state(&mutex).1, SLEEPERS | UNLOCKS);
    }
}
