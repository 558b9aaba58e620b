//! Turns, beside the queue and at its front.

use super::super::classifier::SAMPLES;
use super::super::prediction::{SHARED_BUDGET, StoredPrediction};
use super::*;
use std::sync::atomic::AtomicBool;

#[test]
fn whose_turn_it_is_takes_the_lock_when_it_is_free() {
    for take in [Mutex::<Sound>::barge_at_front, Mutex::barge] {
        let mutex = with::<Sound>(FREE, 0);
        let mut wait = expecting(SHARED_BUDGET, false);
        assert!(take(&mutex, &mut wait));
        assert_eq!(
            (state(&mutex), wait.prediction.budget),
            ((HELD, 0), SHARED_BUDGET - 1)
        );
        let unknown = Wait {
            prediction: Prediction::default(),
            ..expecting(0, false)
        };
        let (mutex, mut other) = (with::<Sound>(FREE, 0), unknown);
        assert!(!take(&mutex, &mut other));
        assert_eq!(state(&mutex), (FREE, 0));
    }
    // A head in a crowd does not run all the time.
    let mutex = with::<Sound>(FREE, 0);
    assert!(!mutex.barge_at_front(&mut expecting(SHARED_BUDGET, true)));
}

#[test]
fn a_fair_mutex_and_one_that_polls_are_not_taken_in_passing() {
    let mutex = with::<Sound>(FREE, 0);
    let mut fair = Wait {
        quantum: 0,
        ..expecting(1, false)
    };
    assert!(!mutex.barge(&mut fair));
    let mutex = with::<Polling>(FREE, 0);
    assert!(!mutex.barge(&mut expecting(1, false)));
    assert_eq!(state(&mutex), (FREE, 0));
}

#[test]
fn who_passes_claims_nothing_when_its_time_is_up_or_somebody_else_has() {
    for (deadline, flags) in [(1, 0), (NEVER, HANDOFF), (NEVER, PICKUP)] {
        let mutex = with::<Sound>(HELD, flags);
        let mut wait = Wait {
            deadline,
            ..expecting(1, false)
        };
        assert!(!mutex.barge(&mut wait));
        assert_eq!((state(&mutex), wait.prediction.budget), ((HELD, flags), 1));
    }
}

/// What comes of a turn at once, and how many are left then.
fn barged_at_once<C: MutexConfig>(
    locked: u8,
    budget: u16,
    others: bool,
) -> (Result<(), bool>, u16) {
    let mutex = with::<C>(locked, 0);
    drop(Native::waiters().enter().expect("a slot is free"));
    let place = Native::waiters().own_note().expect("it is kept");
    let cell = StoredPrediction::new(mutex.key(), Prediction::barging(budget));
    place.store(cell.0, Relaxed);
    let taken = mutex.barge_at_once(others);
    assert_eq!(mutex.is_locked(), taken.is_ok() || locked == HELD);
    let left = StoredPrediction(place.load(Relaxed)).for_lock(mutex.key());
    let before = taken.map_err(|missed| missed.is_some_and(|missed| missed.0 == cell.0));
    (before, left.expect("it is about this lock").budget)
}

#[test]
fn a_turn_is_taken_at_once_where_the_note_says_so_unless_it_is_the_last() {
    let (taken, missed, not_tried) = (Ok(()), Err(true), Err(false));
    assert_eq!(barged_at_once::<Sound>(FREE, 2, false), (taken, 1));
    assert_eq!(barged_at_once::<Sound>(HELD, 2, false), (missed, 1));
    // To leave a seat takes more than that.
    assert_eq!(barged_at_once::<Sound>(FREE, 1, false), (not_tried, 1));
    assert_eq!(barged_at_once::<Sound>(FREE, 2, true), (not_tried, 2));
    assert_eq!(barged_at_once::<Fair>(FREE, 2, false), (not_tried, 2));
    assert_eq!(barged_at_once::<Polling>(FREE, 2, false), (not_tried, 2));
}

#[test]
fn what_a_note_says_of_another_lock_is_not_tried_at_this_one() {
    let [mutex, other] = [FREE; 2].map(|locked| with::<Sound>(locked, 0));
    drop(Native::waiters().enter().expect("a slot is free"));
    let place = Native::waiters().own_note().expect("it is kept");
    place.store(
        StoredPrediction::new(other.key(), Prediction::barging(2)).0,
        Relaxed,
    );
    assert!(matches!(mutex.barge_at_once(false), Err(None)));
    assert_eq!(state(&mutex), (FREE, 0));
}

/// As where a thread has only used the spinlock before.
#[test]
fn a_slot_that_is_kept_may_have_no_note() {
    let mutex = with::<Sound>(FREE, 0);
    drop(Native::waiters().enter().expect("a slot is free"));
    let place = Native::waiters().own_note().expect("it is kept");
    place.store(0, Relaxed);
    assert!(matches!(mutex.barge_at_once(false), Err(None)));
    assert_eq!((state(&mutex), place.load(Relaxed)), ((FREE, 0), 0));
}

/// Its first series of tries has been made: it claims next. A grant is on its way, so that the lock cannot be claimed: it tries again.
#[test]
fn who_has_tried_at_once_claims_or_tries_again_where_it_cannot() {
    for (flags, requested) in [(0, true), (PICKUP, false)] {
        let mutex = with::<Sound>(FREE, flags);
        let mut wait = Wait {
            tried_first: true,
            ..expecting(2, false)
        };
        assert!(mutex.barge(&mut wait));
        assert_eq!((state(&mutex), wait.requested), ((HELD, flags), requested));
        assert_eq!(wait.prediction.budget, 1);
    }
}

/// It goes on with the same turn, and what a signal handler has noted since then stays.
#[test]
fn a_turn_that_is_missed_is_used_up_once() {
    let mutex = with::<Sound>(FREE, 0);
    drop(Native::waiters().enter().expect("a slot is free"));
    let place = Native::waiters().own_note().expect("it is kept");
    let [missed, after, left] =
        [3, 2, 0].map(|budget| StoredPrediction::new(mutex.key(), Prediction::barging(budget)));
    for stored in [after, left] {
        mutex.locked.store(FREE, Relaxed);
        place.store(stored.0, Relaxed);
        assert!(mutex.lock_slow(NEVER, Some(missed)));
        assert_eq!(place.load(Relaxed), stored.0);
    }
}

/// Where several run that take the lock nobody keeps off: its line travels anyway.
#[test]
fn who_sees_newcomers_takes_turns() {
    // A grant that never comes to its end: nobody else can claim, and the head looks for as long as it may.
    let mutex = with::<Sound>(HELD, PICKUP);
    let over = AtomicBool::new(false);
    std::thread::scope(|s| {
        // The end of a queue to which somebody joins all the time.
        s.spawn(|| {
            for last in (1..4).cycle() {
                mutex.spinners.tail().store(last, Relaxed);
                if over.load(Relaxed) {
                    break;
                }
            }
        });
        let mut wait = at_front();
        // On one CPU the other one runs when this one has lost it.
        let samples = (0..1_000_000).take_while(|_| {
            wait = at_front();
            mutex.observe(&mut wait);
            wait.prediction.budget == 0
        });
        samples.count();
        over.store(true, Relaxed);
        assert_eq!(
            (wait.prediction.fast, wait.prediction.budget),
            (false, SHARED_BUDGET)
        );
        assert_eq!(wait.held_at_first, Some(true));
    });
}

/// Each lock is free when it is waited for, and nobody queues.
#[test]
fn what_a_wait_has_learned_is_remembered_for_the_next() {
    let mutex = with::<Turns>(FREE, 0);
    for (before, after) in [(None, [4, 5]), (Some(2), [1, 2])] {
        let cell = || {
            let place = Native::waiters().enter().expect("a slot is free");
            place.note()
        };
        let before = before.map_or(0, |budget| {
            StoredPrediction::new(mutex.key(), Prediction::barging(budget)).0
        });
        cell().store(before, Relaxed);
        assert!(mutex.lock_slow(NEVER, None));
        unlock(&mutex);
        let prediction = StoredPrediction(cell().load(Relaxed)).for_lock(mutex.key());
        let predictions = after.map(|budget| Some(Prediction::barging(budget)));
        assert!(predictions.contains(&prediction), "{prediction:?}");
    }
}

#[test]
fn a_turn_at_the_front_that_takes_too_long_ends() {
    let mutex = with::<Sound>(HELD, 0);
    let mut wait = expecting(SHARED_BUDGET, false);
    assert!(!mutex.barge_at_front(&mut wait));
    assert_eq!((state(&mutex), wait.prediction.budget), ((HELD, 0), 0));
}

#[test]
fn who_passes_goes_behind_those_who_queue() {
    let mutex = with::<Sound>(FREE, 0);
    let mut wait = expecting(1, false);
    behind_another(&mutex, || assert!(!mutex.barge(&mut wait)));
    assert!(mutex.barge(&mut wait));
    assert_eq!(state(&mutex), (HELD, 0));
}

/// A lock that is not released: whoever passes claims it beside the queue, and must not keep its claim when it goes there.
fn claims_in_passing<C: MutexConfig>() -> (Wait, (u8, u8)) {
    let mutex = with::<C>(HELD, SLEEPERS);
    let mut wait = expecting(1, false);
    assert!(!mutex.barge(&mut wait));
    let state = state(&mutex);
    (wait, state)
}

#[test]
fn who_passes_in_vain_takes_no_claim_into_the_queue() {
    let (wait, state) = claims_in_passing::<Sound>();
    assert_eq!((wait.requested, state), (false, (HELD, SLEEPERS)));
    let (wait, state) = claims_in_passing::<QueuedClaim>();
    assert_eq!((wait.requested, state), (true, (HELD, HANDOFF | SLEEPERS)));
}

#[test]
fn who_passes_is_handed_the_lock_that_it_has_claimed() {
    let mutex = Mutex::<Sound>::new();
    mutex.lock();
    std::thread::scope(|s| {
        let passing = s.spawn(|| {
            let mut wait = expecting(1, false);
            // The claim is withdrawn now and then: whoever else waits would try again from the queue.
            while !mutex.barge(&mut wait) {
                wait.prediction = Prediction::barging(1);
            }
            state(&mutex)
        });
        while !mutex.hand_over() {
            std::thread::yield_now();
        }
        assert_eq!(passing.join().expect("it has the lock"), (HELD, 0));
    });
}

#[test]
fn where_turns_are_used_up_a_look_beside_the_queue_tells_whether_there_are_more() {
    // Nothing has happened, and it is free: as before.
    let mutex = with::<Sound>(FREE, 0);
    let mut wait = expecting(0, false);
    assert!(mutex.sample_beside_queue(&mut wait));
    assert_eq!(
        (wait.prediction, state(&mutex)),
        (Prediction::barging(1), (HELD, SAMPLING))
    );
    // Held for longer than turns take.
    let mutex = with::<Sound>(HELD, 0);
    let (mut before, mut doubted) = (Prediction::default(), Prediction::default());
    for prediction in [&mut before, &mut doubted] {
        prediction.confirm();
        prediction.budget = 0;
    }
    doubted.doubt();
    let mut wait = Wait {
        prediction: before,
        ..expecting(0, false)
    };
    assert!(!mutex.sample_beside_queue(&mut wait));
    assert_eq!(
        (wait.prediction, state(&mutex)),
        (doubted, (HELD, SAMPLING))
    );
    assert_eq!((wait.held_at_first, wait.samples), (Some(true), SAMPLES));
}

#[test]
fn who_looks_beside_the_queue_goes_on_with_what_it_has_learned() {
    // Free at once, whatever is believed then.
    let mutex = with::<Sound>(FREE, 0);
    assert!(mutex.barge(&mut expecting(0, false)));
    assert_eq!(state(&mutex), (HELD, SAMPLING));
    // Others have come meanwhile: turns are shared.
    let mutex = with::<Sound>(HELD, 0);
    mutex.spinners.tail().store(1, Relaxed);
    let mut wait = expecting(0, false);
    assert!(!mutex.sample_beside_queue(&mut wait));
    assert_eq!(
        (wait.prediction.budget, wait.held_at_first),
        (SHARED_BUDGET, Some(true))
    );
    // No longer than its time: one look, which tells something only if it comes late.
    let mutex = with::<Sound>(HELD, 0);
    let mut wait = Wait {
        deadline: 1,
        ..expecting(0, false)
    };
    assert!(!mutex.sample_beside_queue(&mut wait));
    assert!(wait.samples < SAMPLES);
}
