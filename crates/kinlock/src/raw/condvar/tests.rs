//! What the words become, step by step, and wake-ups sent by hand.

use super::*;
use crate::config::Tuning;
use crate::platform::Native;
use core::sync::atomic::AtomicU32;
use std::time::Duration;

#[derive(Clone, Copy, Debug)]
struct Plain;

impl MutexConfig for Plain {
    fn tuning() -> Tuning {
        Tuning::DEFAULT
    }
}

#[derive(Clone, Copy, Debug)]
struct Spinning;

impl MutexConfig for Spinning {
    const PARK: bool = false;
    fn tuning() -> Tuning {
        Tuning::DEFAULT
    }
}

type Condvar = QueuedCondvar<Native>;
type Mutex = QueuedMutex<Native, Plain>;

/// A condition variable that has come as far as `count`.
fn at(count: u32) -> Condvar {
    let condvar = Condvar::new();
    condvar.sequence.store(count.wrapping_mul(ONE), Relaxed);
    condvar
}

fn word(condvar: &Condvar) -> (u32, u32) {
    let sequence = condvar.sequence.load(Relaxed);
    (sequence / ONE, sequence & FLAGS)
}

#[test]
fn notifying_nobody_changes_nothing() {
    let condvar = at(7);
    condvar.notify_one();
    condvar.notify_all();
    assert_eq!(word(&condvar), (7, 0));
}

#[test]
fn a_notification_that_wakes_nobody_says_that_nobody_waits() {
    let condvar = at(7);
    let ticket = condvar.register(5);
    assert_eq!(word(&condvar), (7, FLAGS));
    condvar.notify_one();
    assert_eq!(word(&condvar), (8, 0));
    // The one that had registered does not fall asleep.
    assert!(condvar.sleep_once(ticket, NEVER));
}

#[test]
fn a_broadcast_is_told_from_the_other_kind() {
    let condvar = at(7);
    let ticket = condvar.register(5);
    condvar.notify_one();
    assert!(condvar.since(ticket) < ALL);
    condvar.register(5);
    condvar.notify_all();
    assert!(condvar.since(ticket) >= ALL);
    assert_eq!(word(&condvar), (7 + 1 + 64, 0));
}

#[test]
fn the_count_wraps_around() {
    let last = u32::MAX / ONE;
    let condvar = at(last);
    let ticket = condvar.register(5);
    condvar.notify_one();
    assert_eq!((word(&condvar), condvar.since(ticket)), ((0, 0), ONE));
    let condvar = at(last);
    let ticket = condvar.register(5);
    condvar.notify_all();
    assert_eq!((word(&condvar), condvar.since(ticket)), ((63, 0), ALL));
}

#[test]
fn the_second_mutex_changes_the_count_and_stays_known() {
    let condvar = at(0);
    condvar.register(5);
    condvar.register(5);
    assert_eq!((word(&condvar).0, condvar.mutex.load(Relaxed)), (0, 5));
    condvar.register(6);
    assert_eq!(
        (word(&condvar).0, condvar.mutex.load(Relaxed)),
        (1, SEVERAL)
    );
    condvar.register(5);
    assert_eq!(
        (word(&condvar).0, condvar.mutex.load(Relaxed)),
        (2, SEVERAL)
    );
}

#[test]
fn nobody_is_moved_to_a_mutex_that_is_far_or_wakes_nobody() {
    let condvar = at(0);
    let near: Mutex = QueuedMutex::new();
    let spinning: QueuedMutex<Native, Spinning> = QueuedMutex::new();
    assert_eq!(condvar.distance(&spinning), FAR);
    let distance = condvar.distance(&near);
    assert_eq!(
        condvar
            .key()
            .wrapping_offset(distance as i32 as isize)
            .addr(),
        near.key().addr()
    );
    condvar.register(FAR);
    condvar.register(6);
    condvar.register(FAR);
    assert_eq!((word(&condvar).0, condvar.mutex.load(Relaxed)), (0, FAR));
}

/// Starts `n` waiters without a condition, and lets `act` act on them once they are asleep.
fn with_sleepers(condvar: &Condvar, n: usize, act: impl FnOnce(&AtomicU32)) {
    let (mutex, returned): (Mutex, _) = (QueuedMutex::new(), AtomicU32::new(0));
    std::thread::scope(|s| {
        for _ in 0..n {
            s.spawn(|| {
                mutex.lock();
                // SAFETY: taken above.
                unsafe { condvar.wait(&mutex) };
                returned.fetch_add(1, Relaxed);
                // SAFETY: a wait ends with the mutex held.
                unsafe { mutex.unlock() };
            });
        }
        while condvar.sequence.load(Relaxed) & FLAGS != FLAGS {
            std::thread::yield_now();
        }
        std::thread::sleep(Duration::from_millis(50));
        act(&returned);
    });
    assert_eq!(returned.into_inner(), n as u32);
}

/// If the latecomer kept the wake-up for itself, the others would sleep on, and the test would not end.
#[test]
fn a_wake_up_that_a_latecomer_catches_is_passed_on() {
    let condvar = at(0);
    with_sleepers(&condvar, 3, |_| {
        assert_eq!(Native::unpark_in(condvar.key(), 1, OTHERS), 1);
    });
    assert_eq!(word(&condvar), (64, 0));
}

#[test]
fn notify_one_wakes_one() {
    let condvar = at(0);
    with_sleepers(&condvar, 3, |returned| {
        condvar.notify_one();
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(returned.load(Relaxed), 1);
        assert_eq!(word(&condvar), (1, WAITERS));
        condvar.notify_all();
    });
}
