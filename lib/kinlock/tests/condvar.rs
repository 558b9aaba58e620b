//! The condition variable: notifications, time limits, broadcasts, several mutexes.
#![cfg(not(loom))]

use kinlock::{Condvar, Mutex};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime};

/// Miri runs one thread at a time, and slowly.
const ROUNDS: u32 = if cfg!(miri) { 10 } else { 5_000 };
const MANY: usize = if cfg!(miri) { 4 } else { 16 };
const MOMENT: Duration = Duration::from_millis(20);
/// Longer than any test takes.
const LONG: Duration = Duration::from_secs(600);

#[derive(Default)]
struct Pair<T> {
    mutex: Mutex<T>,
    condvar: Condvar,
}

#[test]
fn ping_pong() {
    let ball = Pair::<u32>::default();
    let play = |mine: u32| {
        for _ in 0..ROUNDS {
            let mut hits = ball.mutex.lock();
            ball.condvar.wait_while(&mut hits, |hits| *hits % 2 != mine);
            *hits += 1;
            ball.condvar.notify_one();
        }
    };
    std::thread::scope(|s| {
        s.spawn(|| play(0));
        s.spawn(|| play(1));
    });
    assert_eq!(ball.mutex.into_inner(), 2 * ROUNDS);
}

/// In each round one thread starts all others and waits for them. It notifies with the mutex held
/// in every second round.
fn broadcasts<'a>(mutex: &'a Mutex<(u32, usize)>, start: &'a Condvar, done: &'a Condvar) {
    let rounds = ROUNDS.div_ceil(10);
    std::thread::scope(|s| {
        for _ in 0..MANY {
            s.spawn(move || {
                for round in 1..=rounds {
                    let mut state = mutex.lock();
                    start.wait_while(&mut state, |(current, _)| *current < round);
                    state.1 += 1;
                    if state.1 == MANY {
                        done.notify_one();
                    }
                }
            });
        }
        for round in 1..=rounds {
            let mut state = mutex.lock();
            *state = (round, 0);
            if round % 2 == 0 {
                drop(state);
                start.notify_all();
                state = mutex.lock();
            } else {
                start.notify_all();
            }
            done.wait_while(&mut state, |(_, arrived)| *arrived < MANY);
        }
    });
}

#[test]
fn a_broadcast_reaches_all_waiters() {
    let shared = (Mutex::default(), Condvar::new(), Condvar::new());
    broadcasts(&shared.0, &shared.1, &shared.2);
}

#[test]
fn a_broadcast_reaches_all_waiters_with_a_distant_mutex() {
    // Heap and statics may be too far apart for the condition variable to store the distance. If
    // they are not, the result is the same.
    static START: Condvar = Condvar::new();
    let (mutex, done) = (Box::default(), Box::new(Condvar::new()));
    broadcasts(&mutex, &START, &done);
}

#[test]
fn a_wait_times_out_not_before_its_time() {
    let pair = Pair::<()>::default();
    let mut guard = pair.mutex.lock();
    let start = Instant::now();
    while !pair.condvar.wait_for(&mut guard, MOMENT).timed_out() {}
    assert!(start.elapsed() >= MOMENT);
    let until = Instant::now() + MOMENT;
    while !pair.condvar.wait_until(&mut guard, until).timed_out() {}
    assert!(Instant::now() >= until);
}

#[test]
fn a_limit_that_has_passed_gives_the_mutex_away_for_a_moment() {
    let pair = Pair::<bool>::default();
    let mut done = pair.mutex.lock();
    let past = Instant::now();
    std::thread::scope(|s| {
        s.spawn(|| *pair.mutex.lock() = true);
        while !*done {
            assert!(pair.condvar.wait_for(&mut done, Duration::ZERO).timed_out());
            assert!(pair.condvar.wait_until(&mut done, past).timed_out());
            if !cfg!(miri) {
                let long_ago = SystemTime::now() - Duration::from_secs(1);
                let result = pair.condvar.wait_until_system(&mut done, long_ago);
                assert!(result.timed_out());
            }
        }
    });
    drop(done);
    assert!(pair.mutex.try_lock().is_some());
}

#[test]
fn conditions_are_evaluated_first_and_after_notifications() {
    let pair = Pair::<u32>::default();
    let mut value = pair.mutex.lock();
    pair.condvar.wait_while(&mut value, |v| *v != 0);
    let result = pair.condvar.wait_while_for(&mut value, |v| *v != 0, LONG);
    assert!(!result.timed_out(), "nothing to wait for");
    let mut evaluated = 0;
    let never = |_: &mut u32| {
        evaluated += 1;
        true
    };
    let zero = Duration::ZERO;
    assert!((pair.condvar.wait_while_for(&mut value, never, zero)).timed_out());
    assert_eq!(evaluated, 1, "not again after the timeout");
    let mut calls = 0;
    let becomes_true = |_: &mut u32| {
        calls += 1;
        calls < 3
    };
    let until = Instant::now() + LONG;
    let stop = AtomicBool::new(false);
    std::thread::scope(|s| {
        s.spawn(|| {
            while !stop.load(Relaxed) {
                pair.condvar.notify_all();
                std::thread::yield_now();
            }
        });
        let result = pair
            .condvar
            .wait_while_until(&mut value, becomes_true, until);
        stop.store(true, Relaxed);
        assert!(!result.timed_out());
    });
    assert_eq!(calls, 3);
}

#[test]
#[cfg_attr(miri, ignore = "Miri has no time of day")]
fn the_time_of_day_limits_a_wait() {
    let pair = Pair::<bool>::default();
    let mut done = pair.mutex.lock();
    let until = SystemTime::now() + Duration::from_millis(150);
    let result = pair
        .condvar
        .wait_while_until_system(&mut done, |done| !*done, until);
    assert!(result.timed_out());
    assert!(SystemTime::now() >= until);
    std::thread::scope(|s| {
        s.spawn(|| {
            std::thread::sleep(MOMENT);
            *pair.mutex.lock() = true;
            pair.condvar.notify_one();
        });
        let until = SystemTime::now() + LONG;
        let result = pair
            .condvar
            .wait_while_until_system(&mut done, |done| !*done, until);
        assert!(!result.timed_out() && *done);
    });
}

#[test]
fn zeroed_memory_is_a_condition_variable() {
    #[repr(C)]
    union Memory {
        bytes: [u32; 2],
        condvar: std::mem::ManuallyDrop<Condvar>,
    }
    let memory = Memory { bytes: [0; 2] };
    // SAFETY: the documentation promises that all-zero bytes are a condition variable.
    let condvar = unsafe { &memory.condvar };
    condvar.notify_all();
    let mutex = Mutex::new(());
    let result = condvar.wait_for(&mut mutex.lock(), Duration::from_millis(1));
    assert!(result.timed_out());
}

/// A notification without a waiter has no effect on later waits.
#[test]
fn a_notification_without_a_waiter_is_not_kept() {
    let pair = Pair::<()>::default();
    pair.condvar.notify_one();
    pair.condvar.notify_all();
    let mut guard = pair.mutex.lock();
    for _ in 0..2 {
        let short = Duration::from_millis(2);
        assert!(pair.condvar.wait_for(&mut guard, short).timed_out());
        // A thread has waited since the last notification, so this one changes the count.
        pair.condvar.notify_one();
    }
    assert!(pair.condvar.wait_for(&mut guard, MOMENT).timed_out());
}

/// Starts a thread that waits with `mutex`. Returns when it sleeps, or is about to.
fn wait_elsewhere<'s>(
    s: &'s std::thread::Scope<'s, '_>,
    condvar: &'s Condvar,
    mutex: &'s Mutex<bool>,
) {
    let barrier = std::sync::Arc::new(std::sync::Barrier::new(2));
    let started = barrier.clone();
    s.spawn(move || {
        let mut done = mutex.lock();
        started.wait();
        condvar.wait_while(&mut done, |done| !*done);
    });
    barrier.wait();
    drop(mutex.lock());
    // The waiter has released the mutex. The pause lets it fall asleep.
    std::thread::sleep(MOMENT);
}

#[test]
fn two_mutexes_one_after_the_other_are_fine() {
    let condvar = Condvar::new();
    let mutexes = [Mutex::new(false), Mutex::new(false), Mutex::new(false)];
    for mutex in &mutexes {
        let short = Duration::from_millis(2);
        assert!(condvar.wait_for(&mut mutex.lock(), short).timed_out());
        std::thread::scope(|s| {
            (0..3).for_each(|_| wait_elsewhere(s, &condvar, mutex));
            *mutex.lock() = true;
            condvar.notify_all();
        });
    }
}

#[test]
fn two_mutexes_at_the_same_time_are_noticed_or_harmless() {
    let condvar = Condvar::new();
    let mutexes = [Mutex::new(false), Mutex::new(false)];
    std::thread::scope(|s| {
        wait_elsewhere(s, &condvar, &mutexes[0]);
        if cfg!(debug_assertions) {
            let mut guard = mutexes[1].lock();
            let wait = std::panic::AssertUnwindSafe(|| condvar.wait(&mut guard));
            let panic = std::panic::catch_unwind(wait).expect_err("a panic");
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or(panic.downcast_ref::<&str>().copied());
            assert!(text.is_some_and(|t| t.contains("two mutexes")), "{text:?}");
            drop(guard);
            assert!(mutexes[1].try_lock().is_some(), "it was released");
        } else {
            for mutex in mutexes.iter().cycle().take(8) {
                wait_elsewhere(s, &condvar, mutex);
            }
        }
        for mutex in &mutexes {
            *mutex.lock() = true;
        }
        condvar.notify_all();
    });
}

/// A broadcast moves waiters to the mutex, where they sleep while it is held. Their time limits
/// apply there, too.
#[test]
fn a_requeued_waiter_may_run_out_of_time() {
    // More waiters than are woken at once.
    let waiters = if cfg!(miri) { MANY } else { 300 };
    let pair = Pair::<usize>::default();
    std::thread::scope(|s| {
        for i in 0..waiters {
            let pair = &pair;
            s.spawn(move || {
                let mut arrived = pair.mutex.lock();
                *arrived += 1;
                if i % 2 == 0 {
                    pair.condvar.wait_for(&mut arrived, 2 * MOMENT);
                } else {
                    pair.condvar.wait(&mut arrived);
                }
            });
        }
        while *pair.mutex.lock() < waiters {
            std::thread::yield_now();
        }
        let guard = pair.mutex.lock();
        pair.condvar.notify_all();
        std::thread::sleep(4 * MOMENT);
        drop(guard);
    });
    let raw = pair.mutex.try_lock();
    assert_eq!(raw.as_deref(), Some(&waiters));
}
