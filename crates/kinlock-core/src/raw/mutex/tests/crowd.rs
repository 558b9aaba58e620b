//! With more threads than CPUs: looks, seats, and who makes room for whom.

use super::super::front::FIRST_NAP;
use super::super::judge::{Found, LONG_TURN, LOOKS, MOST_UNLOCKS};
use super::super::note::{Note, SEAT};
use super::*;
use std::sync::atomic::AtomicBool;

#[test]
fn in_a_crowd_who_has_a_seat_passes_those_who_sleep_and_keeps_it_while_none_of_them_comes() {
    let counted = WATCHED | (3 * UNLOCK);
    let mutex = with::<Sound>(FREE, SLEEPERS | counted);
    let mut wait = in_turns(2, true);
    behind_another(&mutex, || {
        for (flags, turns) in [
            (SLEEPERS | counted, 1),
            (SLEEPERS, 0),
            (SLEEPERS | UNLOCKS, SEAT - 1),
        ] {
            assert!(mutex.take_in_passing(&mut wait));
            assert_eq!(state(&mutex), (HELD, flags));
            assert_eq!(wait.habit.turns, turns);
            mutex.locked.store(FREE, Relaxed);
        }
    });
}

/// Or never had one.
#[test]
fn who_has_left_its_seat_to_a_head_that_has_come_queues() {
    for taken in [UNLOCKS, WATCHED, CLAIMED | ROOM] {
        let mutex = with::<Sound>(FREE, taken);
        let mut wait = in_turns(0, true);
        behind_another(&mutex, || assert!(!mutex.take_in_passing(&mut wait)));
        assert_eq!((state(&mutex), wait.habit.turns), ((FREE, taken), 0));
    }
}

#[test]
fn room_is_not_announced_where_nobody_queues() {
    let mutex = with::<Sound>(FREE, UNLOCKS);
    let mut wait = in_turns(1, true);
    assert!(mutex.take_in_passing(&mut wait));
    assert_eq!((state(&mutex), wait.habit.turns), ((HELD, UNLOCKS), 0));
}

/// A claim that is not served, or a grant that does not come to its end; and a claim of somebody else, after which there is one more who runs.
#[test]
fn who_waits_in_vain_leaves_its_seat_to_the_head() {
    for (flags, after) in [
        (UNLOCKS, 0),
        (GRANTED | UNLOCKS, GRANTED),
        (CLAIMED | UNLOCKS, CLAIMED | UNLOCKS),
    ] {
        let mutex = with::<Sound>(HELD, flags);
        behind_another(&mutex, || {
            assert!(!mutex.take_in_passing(&mut in_turns(2, true)))
        });
        assert_eq!(state(&mutex), (HELD, after));
    }
}

#[test]
fn room_is_not_announced_over_a_wish() {
    let watched = CLAIMED | WATCHED | UNLOCK;
    for (flags, after) in [
        (CLAIMED | ROOM, CLAIMED | ROOM),
        (CLAIMED | TO_BE_ALONE, CLAIMED | TO_BE_ALONE),
        (watched, CLAIMED),
    ] {
        let mutex = with::<Sound>(FREE, flags);
        behind_another(&mutex, || {
            assert!(mutex.take_in_passing(&mut in_turns(1, true)))
        });
        assert_eq!(state(&mutex), (HELD, after));
    }
}

/// The holder does not run, or keeps taking the lock.
#[test]
fn a_look_beside_the_queue_ends_in_a_crowd_too() {
    for flags in [0, UNLOCKS] {
        let mutex = with::<Sound>(HELD, flags);
        let mut wait = in_turns(0, true);
        assert!(!mutex.look_in_passing(&mut wait));
        assert_eq!(state(&mutex).0, HELD);
    }
}

/// A lock that is held for long: a head that has found room claims it at once, and keeps its seat until it gets it.
#[test]
fn a_head_takes_the_seat_that_is_left_for_it_and_says_so() {
    for (turns, room, enters) in [(1, true, true), (1, false, false), (0, true, false)] {
        let mutex = with::<Sound>(HELD, if room { 0 } else { UNLOCKS });
        let mut wait = in_turns(1, true);
        if turns == 0 {
            wait.habit = Habit::default();
        }
        assert!(!mutex.observe(&mut wait));
        assert_eq!((wait.room, wait.enters), (room, enters));
        assert!(!wait.claimed);
        assert_eq!(state(&mutex).1 == UNLOCKS, enters);
    }
}

/// What a claimant leaves of the holder's note.
fn granted_with(wish: u8, turns: u16) -> u16 {
    // Somebody watches: that is not to be taken for a wish.
    let mutex = with::<Sound>(HELD, WATCHED | UNLOCK);
    let mut wait = Wait {
        crowded: true,
        ..at_front()
    };
    let note = Native::waiters().enter().expect("a slot is free").note();
    let mut seat = Habit::turns(1);
    seat.take_seat();
    seat.turns = turns;
    note.store(Note::new(mutex.key(), seat).0, Relaxed);
    assert!(mutex.claim(&mut wait, wish));
    unlock(&mutex);
    let look = if wish == 0 {
        WATCHED | (2 * UNLOCK)
    } else {
        UNLOCKS
    };
    assert_eq!(state(&mutex), (HELD, GRANTED | look));
    let left = Note(note.load(Relaxed)).about(mutex.key());
    left.expect("it is about this lock").turns
}

/// Does something while threads keep slots, more than there are CPUs: a crowd, here and for tests beside this one.
fn in_a_crowd<T>(work: impl FnOnce() -> T) -> T {
    let threads = crate::topology::CpuSet::of_process().count() + 1;
    let (ready, go) = (
        std::sync::Barrier::new(threads + 1),
        std::sync::Barrier::new(threads + 1),
    );
    std::thread::scope(|s| {
        for _ in 0..threads {
            s.spawn(|| {
                drop(Native::waiters().enter());
                ready.wait();
                go.wait();
            });
        }
        ready.wait();
        let done = work();
        go.wait();
        done
    })
}

#[test]
fn a_grant_out_of_a_crowded_queue_ends_a_seat_that_is_contended_or_any() {
    let left = in_a_crowd(|| {
        [0, ROOM, TO_BE_ALONE].map(|wish| [SEAT, 7].map(|turns| granted_with(wish, turns)))
    });
    assert_eq!(left, [[SEAT, 7], [SEAT, 0], [0, 0]]);
}

#[test]
fn who_comes_out_of_a_crowded_queue_has_a_seat() {
    // Known to cycle fast, so that a newcomer does not even glance at it, and free when its head looks.
    let mutex = with::<Sound>(FREE, UNLOCKS);
    let note = in_a_crowd(|| {
        assert!(mutex.lock_slow(NEVER, None));
        Native::waiters()
            .own_note()
            .expect("it has queued")
            .load(Relaxed)
    });
    let habit = Note(note).about(mutex.key());
    assert_eq!(habit.expect("it is about this lock").turns, SEAT);
}

#[test]
fn in_a_crowd_who_has_no_seat_stays_behind_those_who_queue() {
    let mutex = with::<Sound>(FREE, 0);
    let soon = Native::now() + 1_000_000;
    let taken = in_a_crowd(|| {
        let mut taken = true;
        behind_another(&mutex, || taken = mutex.lock_slow(soon, None));
        taken
    });
    assert!(!taken);
    assert_eq!(mutex.locked.load(Relaxed), FREE);
}

/// To wake the next one while the lock is held keeps it from everybody.
#[test]
fn in_a_crowd_a_head_leaves_the_queue_before_it_takes_the_lock() {
    // It has found room, or has waited long enough.
    for (room, quantum) in [(true, u64::MAX >> 4), (false, 1_000)] {
        let mutex = with::<Sound>(FREE, if room { 0 } else { UNLOCKS });
        let mut wait = Wait {
            queued: true,
            quantum,
            since: 0,
            ..in_turns(1, true)
        };
        assert!(!mutex.observe(&mut wait));
        assert!(wait.goes && !wait.claimed);
        assert_eq!(mutex.locked.load(Relaxed), FREE);
        wait.queued = false;
        assert!(mutex.observe(&mut wait));
        assert_eq!(mutex.locked.load(Relaxed), HELD);
    }
}

/// Whatever it is said to be: those who run hardly need it.
#[test]
fn in_a_crowd_a_head_goes_at_once_if_the_lock_is_mostly_free_unless_nobody_may_pass() {
    for (locked, quantum, goes) in [(FREE, 1, true), (FREE, 0, false), (HELD, 1, false)] {
        let mutex = with::<Sound>(locked, UNLOCKS);
        let mut wait = Wait {
            queued: true,
            // Over in an hour, or at once.
            quantum: quantum * 3_600_000_000_000,
            habit: Habit::FAST,
            since: Native::now(),
            deadline: Native::now() + 1_000_000,
            ..in_turns(0, true)
        };
        let taken = mutex.observe(&mut wait);
        assert_eq!((wait.goes, taken), (goes, locked == FREE && quantum == 0));
        assert_eq!(wait.habit.trusts_turns(), locked == FREE);
        if goes {
            assert_eq!(wait.paused, 0, "it has not been looked at in other ways");
            assert_eq!(mutex.locked.load(Relaxed), FREE);
        }
    }
}

#[test]
fn a_head_that_goes_for_a_free_lock_asks_nobody_for_a_seat_and_overlooks_none() {
    let mutex = with::<Sound>(FREE, 0);
    let mut wait = Wait {
        queued: true,
        quantum: u64::MAX >> 4,
        since: Native::now(),
        ..in_turns(1, true)
    };
    mutex.locked.store(HELD, Relaxed);
    assert!(!mutex.goes_for_a_free_lock(&mut wait));
    assert!(wait.room, "it had been announced");
    mutex.locked.store(FREE, Relaxed);
    wait.room = false;
    assert!(mutex.goes_for_a_free_lock(&mut wait));
    // Now somebody has it all the same.
    mutex.locked.store(HELD, Relaxed);
    wait.queued = false;
    let wishes = std::thread::scope(|scope| {
        let holder = scope.spawn(|| {
            let mut flags = 0;
            while flags & CLAIMED == 0 {
                std::thread::yield_now();
                flags = state(&mutex).1;
            }
            wish(flags)
        });
        // It takes its claim back whenever nothing happens for long.
        while !holder.is_finished() {
            assert!(!mutex.observe(&mut wait));
        }
        holder.join().unwrap()
    });
    assert_eq!(wishes, 0);
}

/// And not at each step after it: where somebody else's wish stands nothing is counted, and it would never find that nothing happens.
#[test]
fn a_head_looks_once_after_a_nap_whether_the_lock_is_mostly_free() {
    let mutex = with::<Sound>(HELD, CLAIMED | ROOM);
    let mut wait = Wait {
        queued: true,
        quantum: 1_000,
        since: Native::now(),
        deadline: Native::now() + 2_000_000_000,
        ..in_turns(1, true)
    };
    // Turns are believed in more than a few looks can undo: it naps.
    (0..3).for_each(|_| wait.habit.confirm());
    assert!(!mutex.observe(&mut wait));
    // A few times as long as nothing is to happen for. By a clock it would be longer where others have the CPU.
    assert!(wait.paused < 50_000, "{} ns", wait.paused);
}

#[test]
fn a_lock_is_mostly_free_if_four_looks_say_so_and_three_more_for_each_that_does_not() {
    let verdict = |looks: &str| {
        let mut found = Found::default();
        let mut verdicts = looks
            .chars()
            .map(|look| found.learn(look == 'f', 0, FreeLooks::DEFAULT));
        let last = verdicts.by_ref().find(Option::is_some).flatten();
        assert_eq!(verdicts.next(), None, "decided before the end of {looks}");
        last
    };
    for looks in [
        "ffff",
        "tfffffff",
        "ffftffff",
        "ttffffffffff",
        "tfffffftffff",
    ] {
        assert_eq!(verdict(looks), Some(true), "{looks}");
    }
    for looks in ["ttt", "ftftft", "ffftffftt", "fttfffffft"] {
        assert_eq!(verdict(looks), Some(false), "{looks}");
    }
    for looks in ["", "fff", "tffffff", "ttfffffffff"] {
        assert_eq!(verdict(looks), None, "{looks}");
    }
}

/// Half of the looks at such a lock find it free. Later ones have had time for as many unlocks by those who take turns.
#[test]
fn a_lock_that_somebody_keeps_is_not_mostly_free() {
    for (first, then, mostly_free) in [(4, MOST_UNLOCKS, true), (5, 5, false)] {
        let mut found = Found::default();
        let verdict = [first, then, then, then]
            .into_iter()
            .find_map(|unlocks| found.learn(true, unlocks, FreeLooks::DEFAULT));
        assert_eq!(verdict, Some(mostly_free));
    }
}

/// What is looked at is the count in the word.
#[test]
fn unlocks_between_looks_tell_a_head_that_somebody_keeps_the_lock() {
    // On one CPU the other thread comes in between a few times in a hundred milliseconds.
    const TRIES: usize = 2_000_000;
    const COUNTED: u8 = WATCHED | (6 * UNLOCK);
    let mutex = with::<Sound>(FREE, 0);
    let over = AtomicBool::new(false);
    let kept = std::thread::scope(|s| {
        s.spawn(|| {
            while !over.load(Relaxed) {
                let _ = mutex
                    .flags
                    .compare_exchange(WATCHED, COUNTED, Relaxed, Relaxed);
            }
        });
        // Which of its looks is the first to find the count depends on who runs.
        let kept = (0..TRIES).any(|_| {
            // Not watched: the other one does not come in between, and the watch begins.
            mutex.flags.store(0, Relaxed);
            !mutex.is_mostly_free() && state(&mutex).1 == COUNTED
        });
        over.store(true, Relaxed);
        kept
    });
    assert!(kept, "it was free at every look, and that was believed");
}

/// It is claimed from within the queue: whoever hands it over may have to do so for long.
#[test]
fn in_a_crowd_a_head_that_claims_stays_in_the_queue() {
    let mutex = with::<Sound>(HELD, UNLOCKS);
    let mut wait = Wait {
        queued: true,
        quantum: 1_000,
        since: 0,
        ..in_turns(1, true)
    };
    assert!(!mutex.observe(&mut wait));
    assert!(wait.claimed && !wait.goes);
}

/// At least so long: a holder that has lost its CPU gets it back. Who knows of no turns sleeps at once.
#[test]
fn in_a_crowd_a_head_steps_back_before_it_sleeps_where_turns_are_taken() {
    let mutex = with::<Sound>(HELD, UNLOCKS);
    let start = Native::now();
    assert!(!mutex.observe(&mut in_turns(1, true)));
    assert!(Native::now() - start >= FIRST_NAP);
    assert_eq!(state(&mutex), (HELD, WATCHED));
}

/// The lock is held for some microseconds at a time: to be woken by each unlock would cost as much.
#[test]
fn in_a_crowd_a_head_that_is_woken_in_vain_twice_naps() {
    for (woken_in_vain, naps) in [(1, false), (2, true)] {
        let mutex = with::<Sound>(HELD, UNLOCKS);
        let mut wait = Wait {
            habit: Habit::default(),
            slept: true,
            woken_in_vain,
            ..in_turns(0, true)
        };
        assert!(!mutex.observe(&mut wait));
        // Before a nap it passes the wake-up on, and has not slept since.
        assert_eq!(wait.slept, !naps);
    }
}

/// Beside the queue, where turns are only presumed.
#[test]
fn in_a_crowd_a_long_wait_for_a_grant_counts_for_many() {
    for (in_vain, crowded, long) in [
        (LONG_TURN - 1, true, false),
        (LONG_TURN, true, true),
        (LONG_TURN, false, false),
    ] {
        let mut wait = Wait {
            in_vain,
            ..in_turns(SEAT, crowded)
        };
        wait.turn_granted();
        assert_eq!(wait.habit.turns < SEAT, long);
    }
    let mutex = with::<Sound>(HELD, CLAIMED);
    let mut wait = claimant();
    assert!(!mutex.await_grant(&mut wait, LONG_TURN));
    assert!(wait.in_vain >= LONG_TURN);
}

/// The count that it has set is not to be taken for unlocks.
#[test]
fn a_head_that_takes_a_seat_learns_nothing_of_its_own_mark() {
    let mutex = with::<Sound>(HELD, 0);
    let mut wait = in_turns(1, true);
    for _ in 0..2 {
        assert!(!mutex.observe(&mut wait));
        assert!(wait.enters && wait.habit == Habit::turns(1));
    }
}

/// What a head wishes that has waited for its quantum.
#[test]
fn a_head_of_a_crowd_wishes_for_a_seat_or_to_be_alone() {
    for (habit, flags, left) in [
        (Habit::turns(1), UNLOCKS, ROOM),
        (Habit::default(), UNLOCKS, TO_BE_ALONE),
        // There is room: nobody needs to make any.
        (Habit::turns(1), 0, UNLOCKS),
    ] {
        let mutex = with::<Sound>(HELD, flags);
        let mut wait = Wait {
            quantum: 1_000,
            habit,
            // For so long that it keeps its claim.
            since: 0,
            ..in_turns(0, true)
        };
        assert!(!mutex.observe(&mut wait));
        assert_eq!(state(&mutex).1, CLAIMED | left);
    }
}

/// Somebody else has claimed the lock, which is taken again and again. The head is to sleep where it is woken, and not to nap on.
#[test]
fn a_head_whose_quantum_is_over_does_not_nap() {
    let busy = CLAIMED | UNLOCKS;
    let mutex = with::<Sound>(HELD, CLAIMED);
    let over = AtomicBool::new(false);
    let long = Native::now() + 1_000_000_000;
    std::thread::scope(|s| {
        s.spawn(|| {
            while !over.load(Relaxed) {
                mutex.flags.store(busy, Relaxed);
            }
        });
        while mutex.flags.load(Relaxed) != busy {
            std::thread::yield_now();
        }
        let mut wait = Wait {
            quantum: 0,
            habit: Habit::FAST,
            deadline: long,
            ..in_turns(0, true)
        };
        assert!(!mutex.observe(&mut wait));
        over.store(true, Relaxed);
    });
    assert!(Native::now() < long);
}

#[test]
fn a_free_lock_is_left_alone_for_one_look_and_by_a_woken_head_for_none() {
    let paused = [true, false].map(|slept| {
        let mutex = with::<Sound>(FREE, UNLOCKS);
        let mut wait = Wait {
            habit: Habit::FAST,
            slept,
            ..in_turns(0, true)
        };
        assert!(mutex.observe(&mut wait));
        assert!(wait.habit.trusts_turns(), "it was free: that is presumed");
        wait.paused
    });
    assert_eq!(paused[1], 2 * paused[0]);
}

/// With more threads than CPUs nobody else who is needed runs.
#[test]
fn in_a_crowd_a_lock_that_is_taken_again_and_again_is_left_alone_until_two_looks_say_otherwise() {
    let (busy, idle) = ((2, 400), (0, 400));
    let mut wait = in_turns(0, true);
    for ((unlocks, nanos), left_alone) in [
        (idle, false),
        (busy, true),
        ((3, 50_000), true),
        (idle, true),
        (busy, true),
        (idle, true),
        (idle, false),
        ((2, 401), false),
    ] {
        wait.judge(unlocks, nanos, false);
        assert_eq!(wait.leaves_alone(), left_alone, "{unlocks} in {nanos}");
    }
}

#[test]
fn looks_in_a_crowd_tell_whether_turns_are_taken() {
    let none = Habit::default();
    let seen = |looks: &[(u64, u64, bool)]| {
        let mut wait = Wait {
            habit: none,
            ..in_turns(0, true)
        };
        for &(unlocks, nanos, free) in looks {
            wait.judge(unlocks, nanos, free);
        }
        (wait.habit.turns, wait.looks)
    };
    // Free and often taken: turns. Free and seldom taken: no turns.
    assert_eq!(seen(&[(1, 400, true)]), (3, LOOKS));
    assert_eq!(seen(&[(1, 401, true)]), (0, LOOKS));
    // No unlock, or as many as are counted, tell nothing.
    assert_eq!(
        seen(&[(0, 400, true), (7, 50_000, true), (0, 9_000, false)]),
        (0, 0)
    );
    // Held, and held again, and then free: as beside the queue.
    assert_eq!(
        seen(&[(1, 400, false), (1, 400, false), (1, 400, true)]),
        (3, LOOKS)
    );
    assert_eq!(seen(&[(1, 400, false); 3]), (0, LOOKS));
    assert_eq!(
        seen(&[
            (1, 400, false),
            (1, 400, false),
            (1, 400, false),
            (1, 400, true)
        ]),
        (0, LOOKS)
    );
    // Fast.
    assert_eq!(seen(&[(7, 400, true), (1, 400, true)]), (0, LOOKS));
}
