//! The word, transition by transition, and a sleeper whose wake-up somebody else takes.

use super::front::LOOKS;
use super::note::{Habit, Note, SEAT, SHARED_TURNS};
use super::sleep::UNNOTICED_SLEEP;
use super::wait::Wait;
use super::*;
use crate::platform::Native;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc;
use std::time::Duration;

#[derive(Clone, Copy, Debug)]
struct Sound;

impl MutexConfig for Sound {
    fn tuning() -> Tuning {
        Tuning::DEFAULT
    }
}

/// Spinners of a kernel, who look all the time.
#[derive(Clone, Copy, Debug)]
struct Polling;

impl MutexConfig for Polling {
    const POLLS: bool = true;
    fn tuning() -> Tuning {
        Tuning::DEFAULT
    }
}

/// Turns are taken from the beginning.
#[derive(Clone, Copy, Debug)]
struct Turns;

impl MutexConfig for Turns {
    fn tuning() -> Tuning {
        Tuning::DEFAULT
    }
    fn turns_at_first() -> Option<u16> {
        Some(5)
    }
}

macro_rules! broken {
    ($name:ident) => {
        #[derive(Clone, Copy, Debug)]
        struct $name;

        impl MutexConfig for $name {
            const FAULT: MutexFault = MutexFault::$name;
            fn tuning() -> Tuning {
                Tuning::DEFAULT
            }
        }
    };
}

broken!(LeakyCancel);
broken!(DoubleHandOff);
broken!(QueuedClaim);
broken!(SilentRequeue);

type Mutex<C = Sound> = QueuedMutex<Native, C>;

fn with<C: MutexConfig>(locked: u8, flags: u8) -> Mutex<C> {
    let mutex = Mutex::new();
    mutex.locked.store(locked, Relaxed);
    mutex.flags.store(flags, Relaxed);
    mutex
}

fn state<C: MutexConfig>(mutex: &Mutex<C>) -> (u8, u8) {
    (mutex.locked.load(Relaxed), mutex.flags.load(Relaxed))
}

/// A wait that has come to the front.
fn at_front() -> Wait {
    Wait {
        deadline: NEVER,
        tuning: Tuning::DEFAULT,
        quantum: 0,
        crowded: false,
        habit: Habit::default(),
        since: 0,
        paused: 0,
        held_at_first: None,
        looks: 0,
        hesitates: false,
        busy: false,
        room: false,
        enters: false,
        wish: 0,
        slept: false,
        claimed: false,
        unnoticed_sleep: UNNOTICED_SLEEP,
    }
}

fn claimant() -> Wait {
    Wait {
        claimed: true,
        ..at_front()
    }
}

fn unlock<C: MutexConfig>(mutex: &Mutex<C>) {
    // SAFETY: every caller has prepared a word that says that the lock is held, and nobody else uses it.
    unsafe { mutex.unlock() }
}

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

/// Somebody who takes turns, so many times.
fn in_turns(turns: u16, crowded: bool) -> Wait {
    Wait {
        habit: Habit::turns(turns),
        crowded,
        since: Native::now(),
        quantum: 50_000_000,
        ..at_front()
    }
}

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
        assert!(mutex.lock_slow(NEVER));
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

/// Does something while somebody stands in the queue.
fn behind_another<C: MutexConfig>(mutex: &Mutex<C>, work: impl FnOnce()) {
    let place = Native::waiters().enter().expect("a slot is free");
    let watch = Watch {
        layout: PredecessorCpu::Cached,
        every: 1_000,
    };
    assert!(mutex.spinners.join(&place, watch, 0, NEVER));
    work();
    mutex.spinners.leave(&place);
}

#[test]
fn in_a_crowd_who_has_a_seat_passes_those_who_sleep_and_then_leaves_it_to_one_of_them() {
    let counted = WATCHED | (3 * UNLOCK);
    let mutex = with::<Sound>(FREE, SLEEPERS | counted);
    let mut wait = in_turns(2, true);
    behind_another(&mutex, || {
        for after in [SLEEPERS | counted, SLEEPERS] {
            assert!(mutex.take_in_passing(&mut wait));
            assert_eq!(state(&mutex), (HELD, after));
            mutex.locked.store(FREE, Relaxed);
        }
        assert!(!mutex.take_in_passing(&mut wait));
        assert_eq!(state(&mutex), (FREE, SLEEPERS));
    });
}

#[test]
fn room_is_not_announced_over_a_wish() {
    let mutex = with::<Sound>(FREE, CLAIMED | TO_BE_ALONE);
    behind_another(&mutex, || {
        assert!(mutex.take_in_passing(&mut in_turns(1, true)))
    });
    assert_eq!(state(&mutex), (HELD, CLAIMED | TO_BE_ALONE));
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

#[test]
fn a_wish_goes_with_the_claim() {
    let mutex = with::<Sound>(HELD, SLEEPERS);
    for wish in [ROOM, TO_BE_ALONE] {
        let mut wait = at_front();
        assert!(mutex.claim(&mut wait, wish));
        assert_eq!(state(&mutex).1, CLAIMED | SLEEPERS | wish);
        assert!(!mutex.withdraw(&mut wait));
        assert_eq!(state(&mutex).1, SLEEPERS | UNLOCKS);
    }
}

/// What a claimant leaves of the holder's note.
fn granted_with(wish: u8, turns: u16) -> u16 {
    let mutex = with::<Sound>(HELD, UNLOCKS);
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
    assert_eq!(state(&mutex).1 & (CLAIMED | GRANTED), GRANTED);
    let left = Note(note.load(Relaxed)).about(mutex.key());
    left.expect("it is about this lock").turns
}

/// Threads that keep slots make a crowd, here and for tests beside this one.
#[test]
fn a_grant_out_of_a_crowded_queue_ends_a_seat_that_is_contended_or_any() {
    let threads = crate::topology::CpuSet::of_process().len() + 1;
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
        let left =
            [0, ROOM, TO_BE_ALONE].map(|wish| [SEAT, 7].map(|turns| granted_with(wish, turns)));
        go.wait();
        assert_eq!(left, [[SEAT, 7], [SEAT, 0], [0, 0]]);
    });
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

#[test]
fn looks_tell_how_a_lock_is_best_taken() {
    let judged = |before, looks: &[(u64, u64, bool)]| {
        let mut wait = Wait {
            habit: before,
            ..at_front()
        };
        for &(unlocks, nanos, free) in looks {
            wait.judge(unlocks, nanos, free);
        }
        wait.habit
    };
    let nothing = Habit::default();
    let confirmed = {
        let mut habit = nothing;
        habit.confirm();
        habit
    };
    for (looks, habit) in [
        (&[(3, 250, true)][..], Habit::FAST),
        (&[(7, 500, true)], Habit::FAST),
        (&[(2, 250, true)], confirmed),
        (&[(5, 500, true)], confirmed),
        // Held: it may cycle more slowly and is fast, or else nobody takes turns.
        (&[(4, 500, false)], Habit::FAST),
        (&[(2, 250, false)], nothing),
        // Nothing has happened, or it is not known how often.
        (&[(0, 250, true)], nothing),
        (&[(7, 900, true)], nothing),
        (&[(1, 500, true)], nothing),
        // Free at one look of three.
        (
            &[(1, 250, false), (0, 400, false), (2, 500, true)],
            confirmed,
        ),
        // Later looks say whether it is fast, no more.
        (
            &[
                (1, 250, false),
                (1, 400, false),
                (0, 400, false),
                (2, 500, true),
            ],
            nothing,
        ),
        (&[(1, 500, true), (2, 500, true)], nothing),
        (&[(1, 250, false), (4, 500, true)], Habit::FAST),
    ] {
        assert_eq!(judged(nothing, looks), habit, "{looks:?}");
        assert_eq!(
            judged(Habit::FAST, looks),
            habit,
            "{looks:?}, and it was fast"
        );
    }
    let mut doubted = confirmed;
    doubted.doubt();
    let held = [(2, 250, false); 3];
    assert_eq!(judged(confirmed, &held[..2]), confirmed);
    assert_eq!(judged(confirmed, &held), doubted);
    assert_eq!(
        judged(confirmed, &[(2, 250, false); 6]),
        doubted,
        "once in a wait"
    );
    // Still the same critical section: that says something when it has become a long one.
    assert_eq!(judged(confirmed, &[(0, 250, false); 9]), confirmed);
    assert_eq!(judged(confirmed, &[(0, 400, false); 3]), doubted);
    // Fast, but turns have been taken.
    let mut gone = confirmed;
    gone.doubt_more();
    assert_eq!(judged(confirmed, &[(7, 300, true)]), gone);
    assert_eq!(judged(gone, &[(7, 300, true)]), Habit::FAST);
    let mut trusted = confirmed;
    for _ in 0..6 {
        trusted.confirm();
    }
    let mut less = trusted;
    less.doubt_more();
    assert_eq!(
        judged(trusted, &[(7, 300, true); 6]),
        less,
        "once in a wait"
    );
    // Nothing has happened: as before.
    let mut used_up = confirmed;
    used_up.turns = 0;
    assert!(used_up.trusts_turns() && !nothing.trusts_turns() && !Habit::FAST.trusts_turns());
    assert_eq!(judged(used_up, &[(0, 250, true)]), confirmed);
    assert_eq!(judged(used_up, &[(7, 900, true)]), used_up);
    assert_eq!(judged(used_up, &[(1, 500, true)]), used_up);
}

#[test]
fn one_look_of_many_does_not_tell_that_a_lock_is_not_fast_any_more() {
    let mut wait = at_front();
    let (fast, slow) = (4, 1);
    for (unlocks, still) in [
        (fast, true),
        (slow, true),
        (fast, true),
        (slow, true),
        (slow, false),
        (slow, false),
    ] {
        wait.judge(unlocks, 300, true);
        assert_eq!(wait.habit.fast, still);
    }
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

/// A head sleeps on the word. The wake-up meant for it goes to a waiter that a broadcast has moved there, and before that one comes, somebody takes the lock. Returns
/// whether both get it in the end.
fn a_requeued_waiter_takes_the_wake_up_of_the_head<C: MutexConfig>() -> bool {
    let mutex = Mutex::<C>::new();
    let (done, finished) = mpsc::channel();
    mutex.lock();
    std::thread::scope(|s| {
        let enter = |lock: fn(&Mutex<C>)| {
            let (done, mutex) = (done.clone(), &mutex);
            s.spawn(move || {
                lock(mutex);
                unlock(mutex);
                done.send(()).expect("somebody listens");
            });
        };
        let pause = || std::thread::sleep(Duration::from_millis(30));
        enter(Mutex::lock);
        while mutex.flags.load(Relaxed) & SLEEPERS == 0 {
            std::thread::yield_now();
        }
        pause();
        // The unlock has cleared the flag, and woken the other one.
        mutex.flags.fetch_and(!SLEEPERS, Relaxed);
        let head = mutex.spinners.last();
        enter(Mutex::lock_after_sleep);
        while mutex.spinners.last() == head {
            std::thread::yield_now();
        }
        pause();
        unlock(&mutex);
        let wait = |millis| finished.recv_timeout(Duration::from_millis(millis)).is_ok();
        let both = wait(2_000) && wait(2_000);
        if !both {
            // So that the test can end.
            mutex.flags.fetch_or(SLEEPERS, SeqCst);
            mutex.wake();
        }
        both
    })
}

#[test]
fn a_requeued_waiter_forgets_nobody_who_sleeps_in_front_of_it() {
    assert!(a_requeued_waiter_takes_the_wake_up_of_the_head::<Sound>());
    assert!(!a_requeued_waiter_takes_the_wake_up_of_the_head::<
        SilentRequeue,
    >());
}
