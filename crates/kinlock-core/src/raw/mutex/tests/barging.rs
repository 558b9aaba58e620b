//! Barging, beside the queue and at its front.

use super::super::classifier::SAMPLES;
use super::super::prediction::{SHARED_BUDGET, StoredPrediction};
use super::*;
use std::sync::atomic::AtomicBool;

#[test]
fn barging_takes_a_free_lock() {
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
    // An oversubscribed head does not run all the time.
    let mutex = with::<Sound>(FREE, 0);
    assert!(!mutex.barge_at_front(&mut expecting(SHARED_BUDGET, true)));
}

#[test]
fn nobody_barges_for_a_fair_mutex_or_one_that_polls() {
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
fn barging_requests_nothing_after_the_deadline_or_beside_another_request() {
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

/// What a barge at once returns, and the budget left.
fn barged_at_once<C: MutexConfig>(
    locked: u8,
    budget: u16,
    others: bool,
) -> (Result<(), bool>, u16) {
    let mutex = with::<C>(locked, 0);
    drop(Native::waiters().enter().expect("a slot is free"));
    let place = Native::waiters().own_prediction_cell().expect("it is kept");
    let cell = StoredPrediction::new(mutex.key(), Prediction::barging(budget));
    place.store(cell.0, Relaxed);
    let taken = mutex.barge_at_once(others);
    assert_eq!(mutex.is_locked(), taken.is_ok() || locked == HELD);
    let left = StoredPrediction(place.load(Relaxed)).for_lock(mutex.key());
    let before = taken.map_err(|missed| missed.is_some_and(|missed| missed.0 == cell.0));
    (before, left.expect("it is about this lock").budget)
}

#[test]
fn a_thread_barges_at_once_if_its_prediction_says_so_unless_it_is_the_last_barge() {
    let (taken, missed, not_tried) = (Ok(()), Err(true), Err(false));
    assert_eq!(barged_at_once::<Sound>(FREE, 2, false), (taken, 1));
    assert_eq!(barged_at_once::<Sound>(HELD, 2, false), (missed, 1));
    // Leaving the active set takes more than that.
    assert_eq!(barged_at_once::<Sound>(FREE, 1, false), (not_tried, 1));
    assert_eq!(barged_at_once::<Sound>(FREE, 2, true), (not_tried, 2));
    assert_eq!(barged_at_once::<Fair>(FREE, 2, false), (not_tried, 2));
    assert_eq!(barged_at_once::<Polling>(FREE, 2, false), (not_tried, 2));
}

#[test]
fn a_prediction_for_another_lock_is_not_used() {
    let [mutex, other] = [FREE; 2].map(|locked| with::<Sound>(locked, 0));
    drop(Native::waiters().enter().expect("a slot is free"));
    let place = Native::waiters().own_prediction_cell().expect("it is kept");
    place.store(
        StoredPrediction::new(other.key(), Prediction::barging(2)).0,
        Relaxed,
    );
    assert!(matches!(mutex.barge_at_once(false), Err(None)));
    assert_eq!(state(&mutex), (FREE, 0));
}

/// As after waits for a spinlock only.
#[test]
fn a_kept_slot_may_store_no_prediction() {
    let mutex = with::<Sound>(FREE, 0);
    drop(Native::waiters().enter().expect("a slot is free"));
    let place = Native::waiters().own_prediction_cell().expect("it is kept");
    place.store(0, Relaxed);
    assert!(matches!(mutex.barge_at_once(false), Err(None)));
    assert_eq!((state(&mutex), place.load(Relaxed)), ((FREE, 0), 0));
}

/// The first round of tries has been made, so it requests next. A pickup is due, so the request is
/// refused, and it tries again.
#[test]
fn after_barging_at_once_it_requests_or_tries_again() {
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

/// The wait continues with the same barge. What a signal handler has stored since then stays.
#[test]
fn a_missed_barge_is_spent_once() {
    let mutex = with::<Sound>(FREE, 0);
    drop(Native::waiters().enter().expect("a slot is free"));
    let place = Native::waiters().own_prediction_cell().expect("it is kept");
    let [missed, after, left] =
        [3, 2, 0].map(|budget| StoredPrediction::new(mutex.key(), Prediction::barging(budget)));
    for stored in [after, left] {
        mutex.locked.store(FREE, Relaxed);
        place.store(stored.0, Relaxed);
        assert!(mutex.lock_slow(NEVER, Some(missed)));
        assert_eq!(place.load(Relaxed), stored.0);
    }
}

/// Where several running threads take the lock, its line travels anyway.
#[test]
fn a_head_that_sees_newcomers_barges() {
    // A pickup that never comes: no request is accepted, and the head observes for as long as it
    // may.
    let mutex = with::<Sound>(HELD, PICKUP);
    let over = AtomicBool::new(false);
    std::thread::scope(|s| {
        // The tail of a queue that threads join all the time.
        s.spawn(|| {
            for last in (1..4).cycle() {
                mutex.spinners.tail().store(last, Relaxed);
                if over.load(Relaxed) {
                    break;
                }
            }
        });
        let mut wait = at_front();
        // On one CPU the other thread runs when this one has lost it.
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

/// The lock is free at each wait, and nobody queues.
#[test]
fn what_a_wait_has_learned_is_stored_for_the_next() {
    let mutex = with::<Barging>(FREE, 0);
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
fn barging_at_the_front_ends_if_it_takes_too_long() {
    let mutex = with::<Sound>(HELD, 0);
    let mut wait = expecting(SHARED_BUDGET, false);
    assert!(!mutex.barge_at_front(&mut wait));
    assert_eq!((state(&mutex), wait.prediction.budget), ((HELD, 0), 0));
}

#[test]
fn barging_yields_to_threads_that_queue() {
    let mutex = with::<Sound>(FREE, 0);
    let mut wait = expecting(1, false);
    behind_another(&mutex, || assert!(!mutex.barge(&mut wait)));
    assert!(mutex.barge(&mut wait));
    assert_eq!(state(&mutex), (HELD, 0));
}

/// A lock that is not released: the thread requests a hand-off beside the queue, and must withdraw
/// the request before it queues.
fn requests_beside_the_queue<C: MutexConfig>() -> (Wait, (u8, u8)) {
    let mutex = with::<C>(HELD, SLEEPERS);
    let mut wait = expecting(1, false);
    assert!(!mutex.barge(&mut wait));
    let state = state(&mutex);
    (wait, state)
}

#[test]
fn no_request_is_taken_into_the_queue() {
    let (wait, state) = requests_beside_the_queue::<Sound>();
    assert_eq!((wait.requested, state), (false, (HELD, SLEEPERS)));
    let (wait, state) = requests_beside_the_queue::<QueuedRequest>();
    assert_eq!((wait.requested, state), (true, (HELD, HANDOFF | SLEEPERS)));
}

#[test]
fn a_barging_thread_is_handed_the_lock_that_it_has_requested() {
    let mutex = Mutex::<Sound>::new();
    mutex.lock();
    std::thread::scope(|s| {
        let passing = s.spawn(|| {
            let mut wait = expecting(1, false);
            // The request is withdrawn now and then. Another waiter would try again from the queue.
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
fn a_spent_budget_is_renewed_by_sampling_beside_the_queue() {
    // Nothing has happened, and the lock is free: as before.
    let mutex = with::<Sound>(FREE, 0);
    let mut wait = expecting(0, false);
    assert!(mutex.sample_beside_queue(&mut wait));
    assert_eq!(
        (wait.prediction, state(&mutex)),
        (Prediction::barging(1), (HELD, SAMPLING))
    );
    // Held for longer than barging takes.
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
fn a_wait_goes_on_with_what_sampling_beside_the_queue_has_shown() {
    // Free at once, whatever is predicted then.
    let mutex = with::<Sound>(FREE, 0);
    assert!(mutex.barge(&mut expecting(0, false)));
    assert_eq!(state(&mutex), (HELD, SAMPLING));
    // Others have queued meanwhile: the budget is the shared one.
    let mutex = with::<Sound>(HELD, 0);
    mutex.spinners.tail().store(1, Relaxed);
    let mut wait = expecting(0, false);
    assert!(!mutex.sample_beside_queue(&mut wait));
    assert_eq!(
        (wait.prediction.budget, wait.held_at_first),
        (SHARED_BUDGET, Some(true))
    );
    // Until its deadline: one sample, which tells something only if it comes late.
    let mutex = with::<Sound>(HELD, 0);
    let mut wait = Wait {
        deadline: 1,
        ..expecting(0, false)
    };
    assert!(!mutex.sample_beside_queue(&mut wait));
    assert!(wait.samples < SAMPLES);
}
