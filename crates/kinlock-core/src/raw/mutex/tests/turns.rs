//! Turns, beside the queue and at its front.

use super::super::judge::LOOKS;
use super::super::note::{Note, SHARED_TURNS};
use super::*;
use std::sync::atomic::AtomicBool;

#[test]
fn whose_turn_it_is_takes_the_lock_when_it_is_free() {
    for take in [Mutex::<Sound>::take_turn, Mutex::take_in_passing] {
        let mutex = with::<Sound>(FREE, 0);
        let mut wait = in_turns(SHARED_TURNS, false);
        assert!(take(&mutex, &mut wait));
        assert_eq!(
            (state(&mutex), wait.habit.turns),
            ((HELD, 0), SHARED_TURNS - 1)
        );
        let unknown = Wait {
            habit: Habit::default(),
            ..in_turns(0, false)
        };
        let (mutex, mut other) = (with::<Sound>(FREE, 0), unknown);
        assert!(!take(&mutex, &mut other));
        assert_eq!(state(&mutex), (FREE, 0));
    }
    // A head in a crowd does not run all the time.
    let mutex = with::<Sound>(FREE, 0);
    assert!(!mutex.take_turn(&mut in_turns(SHARED_TURNS, true)));
}

#[test]
fn a_fair_mutex_and_one_that_polls_are_not_taken_in_passing() {
    let mutex = with::<Sound>(FREE, 0);
    let mut fair = Wait {
        quantum: 0,
        ..in_turns(1, false)
    };
    assert!(!mutex.take_in_passing(&mut fair));
    let mutex = with::<Polling>(FREE, 0);
    assert!(!mutex.take_in_passing(&mut in_turns(1, false)));
    assert_eq!(state(&mutex), (FREE, 0));
}

#[test]
fn who_passes_claims_nothing_when_its_time_is_up_or_somebody_else_has() {
    for (deadline, flags) in [(1, 0), (NEVER, CLAIMED), (NEVER, GRANTED)] {
        let mutex = with::<Sound>(HELD, flags);
        let mut wait = Wait {
            deadline,
            ..in_turns(1, false)
        };
        assert!(!mutex.take_in_passing(&mut wait));
        assert_eq!((state(&mutex), wait.habit.turns), ((HELD, flags), 1));
    }
}

/// What comes of a turn at once, and how many are left then.
fn at_once<C: MutexConfig>(locked: u8, turns: u16, others: bool) -> (Result<(), bool>, u16) {
    let mutex = with::<C>(locked, 0);
    drop(Native::waiters().enter().expect("a slot is free"));
    let place = Native::waiters().own_note().expect("it is kept");
    let note = Note::new(mutex.key(), Habit::turns(turns));
    place.store(note.0, Relaxed);
    let taken = mutex.take_turn_at_once(others);
    assert_eq!(mutex.is_locked(), taken.is_ok() || locked == HELD);
    let left = Note(place.load(Relaxed)).about(mutex.key());
    let before = taken.map_err(|missed| missed.is_some_and(|missed| missed.0 == note.0));
    (before, left.expect("it is about this lock").turns)
}

#[test]
fn a_turn_is_taken_at_once_where_the_note_says_so_unless_it_is_the_last() {
    let (taken, missed, not_tried) = (Ok(()), Err(true), Err(false));
    assert_eq!(at_once::<Sound>(FREE, 2, false), (taken, 1));
    assert_eq!(at_once::<Sound>(HELD, 2, false), (missed, 1));
    // To leave a seat takes more than that.
    assert_eq!(at_once::<Sound>(FREE, 1, false), (not_tried, 1));
    assert_eq!(at_once::<Sound>(FREE, 2, true), (not_tried, 2));
    assert_eq!(at_once::<Fair>(FREE, 2, false), (not_tried, 2));
    assert_eq!(at_once::<Polling>(FREE, 2, false), (not_tried, 2));
}

#[test]
fn what_a_note_says_of_another_lock_is_not_tried_at_this_one() {
    let [mutex, other] = [FREE; 2].map(|locked| with::<Sound>(locked, 0));
    drop(Native::waiters().enter().expect("a slot is free"));
    let place = Native::waiters().own_note().expect("it is kept");
    place.store(Note::new(other.key(), Habit::turns(2)).0, Relaxed);
    assert!(matches!(mutex.take_turn_at_once(false), Err(None)));
    assert_eq!(state(&mutex), (FREE, 0));
}

/// As where a thread has only used the spinlock before.
#[test]
fn a_slot_that_is_kept_may_have_no_note() {
    let mutex = with::<Sound>(FREE, 0);
    drop(Native::waiters().enter().expect("a slot is free"));
    let place = Native::waiters().own_note().expect("it is kept");
    place.store(0, Relaxed);
    assert!(matches!(mutex.take_turn_at_once(false), Err(None)));
    assert_eq!((state(&mutex), place.load(Relaxed)), ((FREE, 0), 0));
}

/// Its first series of tries has been made: it claims next. A grant is on its way, so that the lock cannot be claimed: it tries again.
#[test]
fn who_has_tried_at_once_claims_or_tries_again_where_it_cannot() {
    for (flags, claimed) in [(0, true), (GRANTED, false)] {
        let mutex = with::<Sound>(FREE, flags);
        let mut wait = Wait {
            tried_at_once: true,
            ..in_turns(2, false)
        };
        assert!(mutex.take_in_passing(&mut wait));
        assert_eq!((state(&mutex), wait.claimed), ((HELD, flags), claimed));
        assert_eq!(wait.habit.turns, 1);
    }
}

/// It goes on with the same turn, and what a signal handler has noted since then stays.
#[test]
fn a_turn_that_is_missed_is_used_up_once() {
    let mutex = with::<Sound>(FREE, 0);
    drop(Native::waiters().enter().expect("a slot is free"));
    let place = Native::waiters().own_note().expect("it is kept");
    let [missed, after, left] = [3, 2, 0].map(|turns| Note::new(mutex.key(), Habit::turns(turns)));
    for noted in [after, left] {
        mutex.locked.store(FREE, Relaxed);
        place.store(noted.0, Relaxed);
        assert!(mutex.lock_slow(NEVER, Some(missed)));
        assert_eq!(place.load(Relaxed), noted.0);
    }
}

/// Where several run that take the lock nobody keeps off: its line travels anyway.
#[test]
fn who_sees_newcomers_takes_turns() {
    // A grant that never comes to its end: nobody else can claim, and the head looks for as long as it may.
    let mutex = with::<Sound>(HELD, GRANTED);
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
        let looks = (0..1_000_000).take_while(|_| {
            wait = at_front();
            mutex.observe(&mut wait);
            wait.habit.turns == 0
        });
        looks.count();
        over.store(true, Relaxed);
        assert_eq!((wait.habit.fast, wait.habit.turns), (false, SHARED_TURNS));
        assert_eq!(wait.held_at_first, Some(true));
    });
}

/// Each lock is free when it is waited for, and nobody queues.
#[test]
fn what_a_wait_has_learned_is_remembered_for_the_next() {
    let mutex = with::<Turns>(FREE, 0);
    for (before, after) in [(None, [4, 5]), (Some(2), [1, 2])] {
        let note = || {
            let place = Native::waiters().enter().expect("a slot is free");
            place.note()
        };
        let before = before.map_or(0, |turns| Note::new(mutex.key(), Habit::turns(turns)).0);
        note().store(before, Relaxed);
        assert!(mutex.lock_slow(NEVER, None));
        unlock(&mutex);
        let habit = Note(note().load(Relaxed)).about(mutex.key());
        let habits = after.map(|turns| Some(Habit::turns(turns)));
        assert!(habits.contains(&habit), "{habit:?}");
    }
}

#[test]
fn a_turn_at_the_front_that_takes_too_long_ends() {
    let mutex = with::<Sound>(HELD, 0);
    let mut wait = in_turns(SHARED_TURNS, false);
    assert!(!mutex.take_turn(&mut wait));
    assert_eq!((state(&mutex), wait.habit.turns), ((HELD, 0), 0));
}

#[test]
fn who_passes_goes_behind_those_who_queue() {
    let mutex = with::<Sound>(FREE, 0);
    let mut wait = in_turns(1, false);
    behind_another(&mutex, || assert!(!mutex.take_in_passing(&mut wait)));
    assert!(mutex.take_in_passing(&mut wait));
    assert_eq!(state(&mutex), (HELD, 0));
}

/// A lock that is not released: whoever passes claims it beside the queue, and must not keep its claim when it goes there.
fn claims_in_passing<C: MutexConfig>() -> (Wait, (u8, u8)) {
    let mutex = with::<C>(HELD, SLEEPERS);
    let mut wait = in_turns(1, false);
    assert!(!mutex.take_in_passing(&mut wait));
    let state = state(&mutex);
    (wait, state)
}

#[test]
fn who_passes_in_vain_takes_no_claim_into_the_queue() {
    let (wait, state) = claims_in_passing::<Sound>();
    assert_eq!((wait.claimed, state), (false, (HELD, SLEEPERS)));
    let (wait, state) = claims_in_passing::<QueuedClaim>();
    assert_eq!((wait.claimed, state), (true, (HELD, CLAIMED | SLEEPERS)));
}

#[test]
fn who_passes_is_handed_the_lock_that_it_has_claimed() {
    let mutex = Mutex::<Sound>::new();
    mutex.lock();
    std::thread::scope(|s| {
        let passing = s.spawn(|| {
            let mut wait = in_turns(1, false);
            // The claim is withdrawn now and then: whoever else waits would try again from the queue.
            while !mutex.take_in_passing(&mut wait) {
                wait.habit = Habit::turns(1);
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
    let mut wait = in_turns(0, false);
    assert!(mutex.look_in_passing(&mut wait));
    assert_eq!(
        (wait.habit, state(&mutex)),
        (Habit::turns(1), (HELD, WATCHED))
    );
    // Held for longer than turns take.
    let mutex = with::<Sound>(HELD, 0);
    let (mut before, mut doubted) = (Habit::default(), Habit::default());
    for habit in [&mut before, &mut doubted] {
        habit.confirm();
        habit.turns = 0;
    }
    doubted.doubt();
    let mut wait = Wait {
        habit: before,
        ..in_turns(0, false)
    };
    assert!(!mutex.look_in_passing(&mut wait));
    assert_eq!((wait.habit, state(&mutex)), (doubted, (HELD, WATCHED)));
    assert_eq!((wait.held_at_first, wait.looks), (Some(true), LOOKS));
}

#[test]
fn who_looks_beside_the_queue_goes_on_with_what_it_has_learned() {
    // Free at once, whatever is believed then.
    let mutex = with::<Sound>(FREE, 0);
    assert!(mutex.take_in_passing(&mut in_turns(0, false)));
    assert_eq!(state(&mutex), (HELD, WATCHED));
    // Others have come meanwhile: turns are shared.
    let mutex = with::<Sound>(HELD, 0);
    mutex.spinners.tail().store(1, Relaxed);
    let mut wait = in_turns(0, false);
    assert!(!mutex.look_in_passing(&mut wait));
    assert_eq!(
        (wait.habit.turns, wait.held_at_first),
        (SHARED_TURNS, Some(true))
    );
    // No longer than its time: one look, which tells something only if it comes late.
    let mutex = with::<Sound>(HELD, 0);
    let mut wait = Wait {
        deadline: 1,
        ..in_turns(0, false)
    };
    assert!(!mutex.look_in_passing(&mut wait));
    assert!(wait.looks < LOOKS);
}
