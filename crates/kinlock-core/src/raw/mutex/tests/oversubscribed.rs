//! More threads than CPUs: samples, the active set, and the modes of hand-off requests.

use super::super::classifier::{FreeSamples, LONG_PICKUP, MOST_UNLOCKS, SAMPLES};
use super::super::front::FIRST_TIMED_SLEEP;
use super::super::prediction::{ACTIVE_WAITS, StoredPrediction};
use super::*;
use std::sync::atomic::AtomicBool;

#[test]
fn a_member_passes_sleepers_and_stays_while_none_of_them_comes() {
    let counted = SAMPLING | (3 * UNLOCK);
    let mutex = with::<Sound>(FREE, SLEEPERS | counted);
    let mut wait = expecting(2, true);
    behind_another(&mutex, || {
        for (flags, budget) in [
            (SLEEPERS | counted, 1),
            (SLEEPERS, 0),
            (SLEEPERS | UNLOCKS, ACTIVE_WAITS - 1),
        ] {
            assert!(mutex.barge(&mut wait));
            assert_eq!(state(&mutex), (HELD, flags));
            assert_eq!(wait.prediction.budget, budget);
            mutex.locked.store(FREE, Relaxed);
        }
    });
}

/// Or never was a member.
#[test]
fn a_former_member_queues_once_its_vacancy_is_filled() {
    for taken in [UNLOCKS, SAMPLING, HANDOFF | SHARE] {
        let mutex = with::<Sound>(FREE, taken);
        let mut wait = expecting(0, true);
        behind_another(&mutex, || assert!(!mutex.barge(&mut wait)));
        assert_eq!((state(&mutex), wait.prediction.budget), ((FREE, taken), 0));
    }
}

#[test]
fn a_vacancy_is_not_announced_where_nobody_queues() {
    let mutex = with::<Sound>(FREE, UNLOCKS);
    let mut wait = expecting(1, true);
    assert!(mutex.barge(&mut wait));
    assert_eq!(
        (state(&mutex), wait.prediction.budget),
        ((HELD, UNLOCKS), 0)
    );
}

/// A request that is not served, a pickup that never comes, and a request of another thread, which
/// shows that one more thread runs.
#[test]
fn a_member_that_waits_in_vain_leaves_its_place_to_the_head() {
    for (flags, after) in [
        (UNLOCKS, 0),
        (PICKUP | UNLOCKS, PICKUP),
        (HANDOFF | UNLOCKS, HANDOFF | UNLOCKS),
    ] {
        let mutex = with::<Sound>(HELD, flags);
        behind_another(&mutex, || assert!(!mutex.barge(&mut expecting(2, true))));
        assert_eq!(state(&mutex), (HELD, after));
    }
}

#[test]
fn a_vacancy_is_not_announced_over_a_mode() {
    let watched = HANDOFF | SAMPLING | UNLOCK;
    for (flags, after) in [
        (HANDOFF | SHARE, HANDOFF | SHARE),
        (HANDOFF | EXCLUSIVE, HANDOFF | EXCLUSIVE),
        (watched, HANDOFF),
    ] {
        let mutex = with::<Sound>(FREE, flags);
        behind_another(&mutex, || assert!(mutex.barge(&mut expecting(1, true))));
        assert_eq!(state(&mutex), (HELD, after));
    }
}

/// The holder does not run, or keeps taking the lock.
#[test]
fn sampling_beside_the_queue_ends_while_oversubscribed() {
    for flags in [0, UNLOCKS] {
        let mutex = with::<Sound>(HELD, flags);
        let mut wait = expecting(0, true);
        assert!(!mutex.sample_beside_queue(&mut wait));
        assert_eq!(state(&mutex).0, HELD);
    }
}

/// A lock that is held for long. A head that has found a vacancy requests the lock at once, and has
/// joined even before it gets it.
#[test]
fn a_head_fills_a_vacancy_visibly() {
    for (budget, vacancy, joins) in [(1, true, true), (1, false, false), (0, true, false)] {
        let mutex = with::<Sound>(HELD, if vacancy { 0 } else { UNLOCKS });
        let mut wait = expecting(1, true);
        if budget == 0 {
            wait.prediction = Prediction::default();
        }
        assert!(!mutex.observe(&mut wait));
        assert_eq!((wait.vacancy, wait.joins), (vacancy, joins));
        assert!(!wait.requested);
        assert_eq!(state(&mutex).1 == UNLOCKS, joins);
    }
}

/// The budget that a hand-off with this mode leaves the holder.
fn budget_after_hand_off(request_mode: u8, budget: u16) -> u16 {
    // A sample, whose count must not be taken for a mode.
    let mutex = with::<Sound>(HELD, SAMPLING | UNLOCK);
    let mut wait = Wait {
        oversubscribed: true,
        ..at_front()
    };
    let cell = Native::waiters().enter().expect("a slot is free").note();
    let mut member = Prediction::barging(1);
    member.join_active_set();
    member.budget = budget;
    cell.store(StoredPrediction::new(mutex.key(), member).0, Relaxed);
    assert!(mutex.request_handoff(&mut wait, request_mode));
    unlock(&mutex);
    let sample = if request_mode == 0 {
        SAMPLING | (2 * UNLOCK)
    } else {
        UNLOCKS
    };
    assert_eq!(state(&mutex), (HELD, PICKUP | sample));
    let left = StoredPrediction(cell.load(Relaxed)).for_lock(mutex.key());
    left.expect("it is about this lock").budget
}

/// Runs `work` while more threads than CPUs keep slots: oversubscribed, also for tests that run at
/// the same time.
fn oversubscribed<T>(work: impl FnOnce() -> T) -> T {
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
fn a_share_request_ends_a_contended_membership_and_an_exclusive_one_any() {
    let left = oversubscribed(|| {
        [0, SHARE, EXCLUSIVE].map(|request_mode| {
            [ACTIVE_WAITS, 7].map(|budget| budget_after_hand_off(request_mode, budget))
        })
    });
    assert_eq!(left, [[ACTIVE_WAITS, 7], [ACTIVE_WAITS, 0], [0, 0]]);
}

#[test]
fn a_head_that_leaves_an_oversubscribed_queue_joins_the_active_set() {
    // Known to cycle fast, so a newcomer does not try it first, and free when its head samples it.
    let mutex = with::<Sound>(FREE, UNLOCKS);
    let cell = oversubscribed(|| {
        assert!(mutex.lock_slow(NEVER, None));
        Native::waiters()
            .own_prediction_cell()
            .expect("it has queued")
            .load(Relaxed)
    });
    let prediction = StoredPrediction(cell).for_lock(mutex.key());
    assert_eq!(
        prediction.expect("it is about this lock").budget,
        ACTIVE_WAITS
    );
}

#[test]
fn a_thread_outside_the_active_set_stays_behind_the_queue() {
    let mutex = with::<Sound>(FREE, 0);
    let soon = Native::now() + 1_000_000;
    let taken = oversubscribed(|| {
        let mut taken = true;
        behind_another(&mutex, || taken = mutex.lock_slow(soon, None));
        taken
    });
    assert!(!taken);
    assert_eq!(mutex.locked.load(Relaxed), FREE);
}

/// Waking the next head while the lock is held would delay all waiters.
#[test]
fn an_oversubscribed_head_departs_before_it_takes_the_lock() {
    // It has found a vacancy, or has waited long enough.
    for (vacancy, quantum) in [(true, u64::MAX >> 4), (false, 1_000)] {
        let mutex = with::<Sound>(FREE, if vacancy { 0 } else { UNLOCKS });
        let mut wait = Wait {
            is_head: true,
            quantum,
            since: 0,
            ..expecting(1, true)
        };
        assert!(!mutex.observe(&mut wait));
        assert!(wait.departs && !wait.requested);
        assert_eq!(mutex.locked.load(Relaxed), FREE);
        wait.is_head = false;
        assert!(mutex.observe(&mut wait));
        assert_eq!(mutex.locked.load(Relaxed), HELD);
    }
}

/// Whatever the prediction: the running threads hardly need the lock.
#[test]
fn an_oversubscribed_head_departs_at_once_for_a_mostly_free_lock_if_there_is_a_quantum() {
    for (locked, quantum, departs) in [(FREE, 1, true), (FREE, 0, false), (HELD, 1, false)] {
        let mutex = with::<Sound>(locked, UNLOCKS);
        let mut wait = Wait {
            is_head: true,
            // Over in an hour, or at once.
            quantum: quantum * 3_600_000_000_000,
            prediction: Prediction::FAST,
            since: Native::now(),
            deadline: Native::now() + 1_000_000,
            ..expecting(0, true)
        };
        let taken = mutex.observe(&mut wait);
        assert_eq!(
            (wait.departs, taken),
            (departs, locked == FREE && quantum == 0)
        );
        assert_eq!(wait.prediction.expects_barging(), locked == FREE);
        if departs {
            assert_eq!(wait.paused, 0, "it has not been looked at in other ways");
            assert_eq!(mutex.locked.load(Relaxed), FREE);
        }
    }
}

#[test]
fn a_head_that_departs_for_a_free_lock_asks_nobody_to_leave_and_sees_a_vacancy() {
    let mutex = with::<Sound>(FREE, 0);
    let mut wait = Wait {
        is_head: true,
        quantum: u64::MAX >> 4,
        since: Native::now(),
        ..expecting(1, true)
    };
    mutex.locked.store(HELD, Relaxed);
    assert!(!mutex.departs_for_free_lock(&mut wait));
    assert!(wait.vacancy, "it had been announced");
    mutex.locked.store(FREE, Relaxed);
    wait.vacancy = false;
    assert!(mutex.departs_for_free_lock(&mut wait));
    // The lock is taken again after all.
    mutex.locked.store(HELD, Relaxed);
    wait.is_head = false;
    let modes = std::thread::scope(|scope| {
        let holder = scope.spawn(|| {
            let mut flags = 0;
            while flags & HANDOFF == 0 {
                std::thread::yield_now();
                flags = state(&mutex).1;
            }
            request_mode(flags)
        });
        // The request is withdrawn whenever nothing happens for long.
        while !holder.is_finished() {
            assert!(!mutex.observe(&mut wait));
        }
        holder.join().unwrap()
    });
    assert_eq!(modes, 0);
}

/// Not at each later step: while another's request has a mode nothing is counted, and the head
/// would never find that nothing happens.
#[test]
fn a_head_checks_once_after_a_timed_sleep_whether_the_lock_is_mostly_free() {
    let mutex = with::<Sound>(HELD, HANDOFF | SHARE);
    let mut wait = Wait {
        is_head: true,
        quantum: 1_000,
        since: Native::now(),
        deadline: Native::now() + 2_000_000_000,
        ..expecting(1, true)
    };
    // More confidence than a few samples can undo, so the head starts a timed sleep.
    (0..3).for_each(|_| wait.prediction.confirm());
    assert!(!mutex.observe(&mut wait));
    // A few times the stall limit. A clock would say more where others have the CPU.
    assert!(wait.paused < 50_000, "{} ns", wait.paused);
}

#[test]
fn a_lock_is_mostly_free_after_four_free_samples_and_three_more_for_each_taken_one() {
    let verdict = |samples: &str| {
        let mut found = FreeSamples::default();
        let mut verdicts = samples
            .chars()
            .map(|sample| found.add(sample == 'f', 0, FreeRule::DEFAULT));
        let last = verdicts.by_ref().find(Option::is_some).flatten();
        assert_eq!(verdicts.next(), None, "decided before the end of {samples}");
        last
    };
    for samples in [
        "ffff",
        "tfffffff",
        "ffftffff",
        "ttffffffffff",
        "tfffffftffff",
    ] {
        assert_eq!(verdict(samples), Some(true), "{samples}");
    }
    for samples in ["ttt", "ftftft", "ffftffftt", "fttfffffft"] {
        assert_eq!(verdict(samples), Some(false), "{samples}");
    }
    for samples in ["", "fff", "tffffff", "ttfffffffff"] {
        assert_eq!(verdict(samples), None, "{samples}");
    }
}

/// Half of the samples find such a lock free. Later samples leave time for as many unlocks by
/// threads that barge.
#[test]
fn a_lock_that_one_thread_keeps_is_not_mostly_free() {
    for (first, then, mostly_free) in [(4, MOST_UNLOCKS, true), (5, 5, false)] {
        let mut found = FreeSamples::default();
        let verdict = [first, then, then, then]
            .into_iter()
            .find_map(|unlocks| found.add(true, unlocks, FreeRule::DEFAULT));
        assert_eq!(verdict, Some(mostly_free));
    }
}

/// The count in the word is what matters.
#[test]
fn unlocks_between_samples_tell_a_head_that_one_thread_keeps_the_lock() {
    // On one CPU the other thread comes in between a few times in a hundred milliseconds.
    const TRIES: usize = 2_000_000;
    const COUNTED: u8 = SAMPLING | (6 * UNLOCK);
    let mutex = with::<Sound>(FREE, 0);
    let over = AtomicBool::new(false);
    let kept = std::thread::scope(|s| {
        s.spawn(|| {
            while !over.load(Relaxed) {
                let _ = mutex
                    .flags
                    .compare_exchange(SAMPLING, COUNTED, Relaxed, Relaxed);
            }
        });
        // It depends on the scheduler which sample is the first to find the count.
        let kept = (0..TRIES).any(|_| {
            // No sample: the other thread does not come in between, and the sample begins.
            mutex.flags.store(0, Relaxed);
            !mutex.is_mostly_free() && state(&mutex).1 == COUNTED
        });
        over.store(true, Relaxed);
        kept
    });
    assert!(kept, "it was free at every sample, and that was believed");
}

/// The request is made from within the queue: it may be long before it is served.
#[test]
fn an_oversubscribed_head_that_requests_stays_in_the_queue() {
    let mutex = with::<Sound>(HELD, UNLOCKS);
    let mut wait = Wait {
        is_head: true,
        quantum: 1_000,
        since: 0,
        ..expecting(1, true)
    };
    assert!(!mutex.observe(&mut wait));
    assert!(wait.requested && !wait.departs);
}

/// For at least so long, since a preempted holder gets its CPU back. A head that expects no barging
/// sleeps on the word at once.
#[test]
fn an_oversubscribed_head_steps_back_before_it_sleeps_where_barging_is_expected() {
    let mutex = with::<Sound>(HELD, UNLOCKS);
    let start = Native::now();
    assert!(!mutex.observe(&mut expecting(1, true)));
    assert!(Native::now() - start >= FIRST_TIMED_SLEEP);
    assert_eq!(state(&mutex), (HELD, SAMPLING));
}

/// The lock is held for some microseconds at a time. A wake-up per unlock would cost as much.
#[test]
fn an_oversubscribed_head_woken_in_vain_twice_starts_a_timed_sleep() {
    for (vain_wakeups, sleeps_timed) in [(1, false), (2, true)] {
        let mutex = with::<Sound>(HELD, UNLOCKS);
        let mut wait = Wait {
            prediction: Prediction::default(),
            slept: true,
            vain_wakeups,
            ..expecting(0, true)
        };
        assert!(!mutex.observe(&mut wait));
        // Before a timed sleep the head passes the wake-up on, and counts as not having slept.
        assert_eq!(wait.slept, !sleeps_timed);
    }
}

/// Beside the queue, where barging is only presumed.
#[test]
fn a_long_pickup_counts_for_many_waits() {
    for (pickup_wait, oversubscribed, long) in [
        (LONG_PICKUP - 1, true, false),
        (LONG_PICKUP, true, true),
        (LONG_PICKUP, false, false),
    ] {
        let mut wait = Wait {
            pickup_wait,
            ..expecting(ACTIVE_WAITS, oversubscribed)
        };
        wait.picked_up();
        assert_eq!(wait.prediction.budget < ACTIVE_WAITS, long);
    }
    let mutex = with::<Sound>(HELD, HANDOFF);
    let mut wait = requester();
    assert!(!mutex.await_handoff(&mut wait, LONG_PICKUP));
    assert!(wait.pickup_wait >= LONG_PICKUP);
}

/// The head's own mark must not be taken for unlocks.
#[test]
fn a_head_that_joins_learns_nothing_from_its_own_mark() {
    let mutex = with::<Sound>(HELD, 0);
    let mut wait = expecting(1, true);
    for _ in 0..2 {
        assert!(!mutex.observe(&mut wait));
        assert!(wait.joins && wait.prediction == Prediction::barging(1));
    }
}

/// The mode that a head requests after its quantum.
#[test]
fn an_oversubscribed_head_requests_share_or_exclusive() {
    for (prediction, flags, left) in [
        (Prediction::barging(1), UNLOCKS, SHARE),
        (Prediction::default(), UNLOCKS, EXCLUSIVE),
        // There is a vacancy, so no member need leave.
        (Prediction::barging(1), 0, UNLOCKS),
    ] {
        let mutex = with::<Sound>(HELD, flags);
        let mut wait = Wait {
            quantum: 1_000,
            prediction,
            // For so long that the request stays.
            since: 0,
            ..expecting(0, true)
        };
        assert!(!mutex.observe(&mut wait));
        assert_eq!(state(&mutex).1, HANDOFF | left);
    }
}

/// Another request stands, and the lock is taken again and again. The head must sleep where it is
/// woken, and start no more timed sleeps.
#[test]
fn a_head_whose_quantum_is_over_starts_no_timed_sleep() {
    let busy = HANDOFF | UNLOCKS;
    let mutex = with::<Sound>(HELD, HANDOFF);
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
            prediction: Prediction::FAST,
            deadline: long,
            ..expecting(0, true)
        };
        assert!(!mutex.observe(&mut wait));
        over.store(true, Relaxed);
    });
    assert!(Native::now() < long);
}

#[test]
fn a_free_lock_is_left_alone_for_one_sample_and_by_a_woken_head_for_none() {
    let paused = [true, false].map(|slept| {
        let mutex = with::<Sound>(FREE, UNLOCKS);
        let mut wait = Wait {
            prediction: Prediction::FAST,
            slept,
            ..expecting(0, true)
        };
        assert!(mutex.observe(&mut wait));
        assert!(
            wait.prediction.expects_barging(),
            "it was free: that is presumed"
        );
        wait.paused
    });
    assert_eq!(paused[1], 2 * paused[0]);
}

/// All the threads that the lock needs already run.
#[test]
fn a_busy_lock_is_left_alone_until_two_samples_contradict() {
    let (busy, idle) = ((2, 400), (0, 400));
    let mut wait = expecting(0, true);
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
        wait.classify(unlocks, nanos, false);
        assert_eq!(wait.leaves_alone(), left_alone, "{unlocks} in {nanos}");
    }
}

#[test]
fn oversubscribed_samples_tell_whether_barging_pays() {
    let none = Prediction::default();
    let seen = |samples: &[(u64, u64, bool)]| {
        let mut wait = Wait {
            prediction: none,
            ..expecting(0, true)
        };
        for &(unlocks, nanos, free) in samples {
            wait.classify(unlocks, nanos, free);
        }
        (wait.prediction.budget, wait.samples)
    };
    // Free and often taken: barging pays. Free and seldom taken: it does not.
    assert_eq!(seen(&[(1, 400, true)]), (3, SAMPLES));
    assert_eq!(seen(&[(1, 401, true)]), (0, SAMPLES));
    // No unlock, or a full count, tells nothing.
    assert_eq!(
        seen(&[(0, 400, true), (7, 50_000, true), (0, 9_000, false)]),
        (0, 0)
    );
    // Held, held again, and then free: as beside the queue.
    assert_eq!(
        seen(&[(1, 400, false), (1, 400, false), (1, 400, true)]),
        (3, SAMPLES)
    );
    assert_eq!(seen(&[(1, 400, false); 3]), (0, SAMPLES));
    assert_eq!(
        seen(&[
            (1, 400, false),
            (1, 400, false),
            (1, 400, false),
            (1, 400, true)
        ]),
        (0, SAMPLES)
    );
    // Fast.
    assert_eq!(seen(&[(7, 400, true), (1, 400, true)]), (0, SAMPLES));
}
