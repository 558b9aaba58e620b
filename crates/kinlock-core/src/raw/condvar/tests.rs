//! What the words become, step by step, and wake-ups sent by hand.

use super::*;
use crate::Native;
use crate::tuning::Tuning;
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

#[derive(Clone, Copy, Debug)]
struct Lingering;

impl CondvarConfig for Lingering {
    const FAULT: CondvarFault = CondvarFault::LingeringSpinner;
}

#[derive(Clone, Copy, Debug)]
struct TwoAtOnce;

impl CondvarConfig for TwoAtOnce {
    const AT_ONCE: u32 = 2;
}

#[derive(Clone, Copy, Debug)]
struct Stale;

impl CondvarConfig for Stale {
    const FAULT: CondvarFault = CondvarFault::StaleFlags;
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
    (sequence / ONE, sequence & FLAGS & !VAIN)
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
    let (ticket, _) = condvar.register(5);
    assert_eq!(word(&condvar), (7, REGISTERED));
    condvar.notify_one();
    assert_eq!(word(&condvar), (8, 0));
    // The waiter that had registered does not fall asleep.
    let with_flags = ticket | REGISTERED;
    assert_eq!(condvar.sleep_once(with_flags, NEVER), Parked::Differed);
    assert!(condvar.sleep(ticket, NEVER, || None) == End::Awake);
}

#[test]
fn a_broadcast_that_may_requeue_is_told_from_the_other_kind() {
    let condvar = at(7);
    let (ticket, _) = condvar.register(5);
    condvar.notify_one();
    condvar.register(5);
    condvar.notify_all();
    // No waiter slept, so none was requeued onto the mutex.
    assert!(condvar.since(ticket) < ALL);
    assert_eq!(word(&condvar), (9, 0));
    // As many slept as are woken at once.
    let few: QueuedCondvar<Native, TwoAtOnce> = QueuedCondvar::new();
    with_sleepers(&few, 2, |_| few.notify_all());
    assert_eq!(few.since(0), ONE);
    let many: QueuedCondvar<Native, TwoAtOnce> = QueuedCondvar::new();
    with_sleepers(&many, 4, |_| many.notify_all());
    assert_eq!(many.since(0), ONE + ALL);
}

/// A waiter that registers after the announcement has to change the word, so that the requeueing
/// fails.
#[test]
fn a_broadcast_that_requeues_notices_newcomers() {
    let condvar = at(7);
    condvar.register(5);
    condvar.sequence.fetch_or(SPINNER | VAIN, Relaxed);
    let now = condvar.announce_requeueing();
    assert_eq!(now, 7 * ONE + ALL + VAIN);
    condvar.register(5);
    assert_ne!(condvar.sequence.load(Relaxed), now);
    let broken: QueuedCondvar<Native, Stale> = QueuedCondvar::new();
    broken.register(5);
    let now = broken.announce_requeueing();
    broken.register(5);
    assert_eq!(broken.sequence.load(Relaxed), now);
}

#[test]
fn the_count_wraps_around() {
    let last = u32::MAX / ONE;
    let condvar = at(last);
    let (ticket, _) = condvar.register(5);
    condvar.notify_one();
    assert_eq!((word(&condvar), condvar.since(ticket)), ((0, 0), ONE));
    let condvar = at(last);
    let (ticket, _) = condvar.register(5);
    condvar.sequence.fetch_add(ALL, Relaxed);
    assert_eq!(condvar.since(ticket), ALL);
}

#[test]
fn the_second_mutex_stays_known() {
    let condvar = at(0);
    assert!(condvar.register(5).1);
    assert!(condvar.register(5).1);
    assert_eq!(condvar.mutex.load(Relaxed), 5);
    for distance in [6, 5, 6] {
        assert!(!condvar.register(distance).1, "nobody will be moved");
        assert_eq!(condvar.mutex.load(Relaxed), SEVERAL);
    }
    // Tickets stay valid: a spinner would leave its flag behind.
    assert_eq!(word(&condvar).0, 0);
}

/// Otherwise they would never be served while two threads alternate quickly.
#[test]
fn sleepers_are_served_although_a_waiter_spins() {
    let condvar = at(62);
    with_sleepers(&condvar, 1, |returned| {
        let spin = || condvar.sequence.fetch_or(WAITERS | SPINNER, Relaxed);
        spin();
        condvar.notify_one();
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(returned.load(Relaxed), 0);
        spin();
        condvar.notify_one();
    });
    assert_eq!(word(&condvar).0, 64);
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

#[test]
fn the_spinner_takes_a_notification_without_a_wake_up() {
    let condvar = at(7);
    let (ticket, _) = condvar.register(5);
    condvar.sequence.fetch_or(SPINNER, Relaxed);
    condvar.notify_one();
    // Not the word of a notification that has found nobody: others may sleep.
    assert_eq!(word(&condvar), (8, WAITERS));
    // Its time is up at that moment. It has been notified all the same, and leaves the flag to the
    // next spinner.
    condvar.sequence.fetch_or(SPINNER, Relaxed);
    assert!(!condvar.stop_spinning(ticket | SPINNER, ticket));
    assert_eq!(word(&condvar), (8, WAITERS | SPINNER));
}

#[test]
fn a_vain_spin_sets_the_hint() {
    let condvar = at(7);
    let (ticket, _) = condvar.register(5);
    assert!(!condvar.spin(ticket, NEVER));
    let seen = condvar.sequence.load(Relaxed);
    assert_eq!(seen, ticket | REGISTERED | VAIN);
    let broken: QueuedCondvar<Native, Lingering> = QueuedCondvar::new();
    let (ticket, _) = broken.register(5);
    assert!(!broken.spin(ticket, NEVER));
    assert_ne!(broken.sequence.load(Relaxed) & SPINNER, 0);
}

#[test]
fn one_spins_at_a_time() {
    let condvar = at(7);
    let (ticket, _) = condvar.register(5);
    condvar.sequence.fetch_or(SPINNER, Relaxed);
    let start = Native::now();
    assert!(!condvar.spin(ticket, start + 60_000_000_000));
    assert_eq!(word(&condvar), (7, REGISTERED | SPINNER));
}

/// In a forked child, where the thread that spun does not exist.
#[cfg(not(miri))]
#[test]
fn a_spinner_that_does_not_exist_takes_nothing() {
    let condvar = at(0);
    condvar.sequence.store(REGISTERED | SPINNER, Relaxed);
    // SAFETY: the child starts threads of its own and ends without unwinding; glibc allows that
    // after a fork.
    match unsafe { libc::fork() } {
        0 => {
            std::thread::spawn(|| {
                std::thread::sleep(Duration::from_secs(10));
                // SAFETY: ends the process, wherever its threads are.
                unsafe { libc::_exit(1) };
            });
            with_sleepers(&condvar, 1, |_| condvar.notify_one());
            // SAFETY: as above.
            unsafe { libc::_exit(0) };
        }
        child => {
            let mut status = -1;
            // SAFETY: `status` is live.
            assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
            assert_eq!(status, 0, "the waiter was not woken");
        }
    }
}

/// Starts `n` waiters without a condition, and runs `act` once they are asleep.
fn with_sleepers<C: CondvarConfig>(
    condvar: &QueuedCondvar<Native, C>,
    n: usize,
    act: impl FnOnce(&AtomicU32),
) {
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
        while condvar.sequence.load(Relaxed) & REGISTERED != REGISTERED {
            std::thread::yield_now();
        }
        std::thread::sleep(Duration::from_millis(50));
        act(&returned);
    });
    assert_eq!(returned.into_inner(), n as u32);
}

/// If the latecomer kept the wake-up, the others would sleep on, and the test would not end.
#[test]
fn a_wake_up_that_a_latecomer_catches_is_passed_on() {
    let condvar = at(0);
    with_sleepers(&condvar, 3, |_| {
        assert_eq!(Native::unpark_in(condvar.key(), 1, OTHERS), 1);
    });
    assert_eq!(word(&condvar), (1, 0));
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
