//! Sleepers whose wake-up another waiter takes.

use super::super::sleep::UNNOTICED_SLEEP;
use super::*;
use std::sync::mpsc;
use std::time::Duration;

/// A head sleeps on the word. The wake-up meant for it goes to a waiter that a broadcast has
/// requeued there, and the lock is taken before that waiter comes. Returns whether both get the
/// lock in the end. `None`: the head lost its CPU after its request and sleeps as the requester,
/// another case.
fn a_requeued_waiter_takes_the_wake_up_of_the_head<C: MutexConfig>() -> Option<bool> {
    let mutex = Mutex::<C>::new();
    let (done, finished) = mpsc::channel();
    mutex.lock();
    std::thread::scope(|s| {
        let enter = |lock: fn(&Mutex<C>)| {
            let (done, mutex) = (done.clone(), &mutex);
            s.spawn(move || {
                lock(mutex);
                unlock(mutex);
                done.send(()).expect("the test listens");
            });
        };
        let pause = || std::thread::sleep(Duration::from_millis(30));
        // Not oversubscribed, whatever runs beside this test: the sleep has no time limit.
        enter(|mutex| {
            let place = Native::waiters().enter().expect("a slot is free");
            assert!(mutex.wait_in_queue(place, C::queue(), &mut at_front()).0);
        });
        while mutex.flags.load(Relaxed) & (SLEEPERS | HANDOFF_SLEEPS) == 0 {
            std::thread::yield_now();
        }
        pause();
        if mutex.flags.load(Relaxed) & HANDOFF_SLEEPS != 0 {
            unlock(&mutex);
            return None;
        }
        // As if an unlock had cleared the flag and woken the other waiter.
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
        Some(both)
    })
}

#[test]
fn a_requeued_waiter_forgets_nobody_who_sleeps_in_front_of_it() {
    const TRIES: usize = 20;
    let sound = (0..TRIES).find_map(|_| a_requeued_waiter_takes_the_wake_up_of_the_head::<Sound>());
    assert_eq!(sound, Some(true));
    // A signal may wake its head.
    let caught =
        |_| a_requeued_waiter_takes_the_wake_up_of_the_head::<SilentRequeue>() == Some(false);
    assert!((0..TRIES).any(caught), "the broken one was never caught");
}

/// A wake-up that finds the lock taken counts. A sleep that ends by itself does not.
#[test]
fn vain_wake_ups_are_counted() {
    let mutex = with::<Sound>(HELD, 0);
    let mut alone = expecting(1, true);
    mutex.sleep_on_word(&mut alone);
    assert_eq!((alone.vain_wakeups, state(&mutex)), (0, (HELD, SLEEPERS)));

    let mut woken = expecting(1, false);
    std::thread::scope(|s| {
        let sleeper = s.spawn(|| mutex.sleep_on_word(&mut woken));
        while !sleeper.is_finished() {
            mutex.wake();
            std::thread::yield_now();
        }
    });
    assert_eq!((woken.vain_wakeups, state(&mutex)), (1, (HELD, 0)));
}

/// Without a fence the sleep ends by itself. Each is twice as long as the one before, up to the
/// longest that can be expressed.
#[test]
fn unnoticed_sleeps_end_and_double_until_they_cannot() {
    const MINUTE: u64 = 60_000_000_000;
    const MILLISECOND: u64 = 1_000_000;
    for (flags, before, longest, sleeps, after) in [
        (SLEEPERS, 1_000, MINUTE, 1_000, 2_000),
        (SLEEPERS, u64::MAX, MILLISECOND, MILLISECOND, u64::MAX),
        // The flag was cleared since, and a holder may have missed it: from the beginning.
        (0, 1_000, MINUTE, UNNOTICED_SLEEP, 2 * UNNOTICED_SLEEP),
    ] {
        let mutex = with::<Sound>(HELD, flags);
        let start = Native::now();
        let mut wait = Wait {
            // However long this test waits for its CPU, the thread has only just come.
            since: u64::MAX,
            deadline: start + longest,
            unnoticed_sleep: before,
            ..expecting(1, true)
        };
        mutex.sleep_on_word(&mut wait);
        let slept = Native::now() - start;
        assert!((sleeps..MINUTE).contains(&slept), "{slept} ns");
        assert_eq!(wait.unnoticed_sleep, after);
    }
}
