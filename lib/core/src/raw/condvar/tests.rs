//! How the words change, step by step, and wake-ups that tests send by hand.

use super::*;
use crate::Native;
use crate::raw::LockConfig;
use crate::raw::mutex::QueuedMutex;
use crate::threads::in_a_child;
use core::sync::atomic::AtomicU32;
use std::time::{Duration, Instant};

#[derive(Clone, Copy, Debug)]
struct Plain;

impl LockConfig for Plain {}

#[derive(Clone, Copy, Debug)]
struct Spinning;

impl LockConfig for Spinning {
    const PARK: bool = false;
}

#[derive(Clone, Copy, Debug)]
struct TwoAtOnce;

impl LockConfig for TwoAtOnce {
    const AT_ONCE: u32 = 2;
}

type Condvar = QueuedCondvar<Native>;
type Mutex = QueuedMutex<Native, Plain>;

/// A condition variable whose count is `count`.
fn at(count: u32) -> Condvar {
    let condvar = Condvar::new();
    condvar.sequence.store(count.wrapping_mul(ONE), Relaxed);
    condvar
}

fn word<C: LockConfig>(condvar: &QueuedCondvar<Native, C>) -> (u32, u32) {
    let sequence = condvar.sequence.load(Relaxed);
    (sequence / ONE, sequence & FLAGS & !LASTING)
}

/// Registers a waiter that does not spin. Returns its ticket.
fn sleeper<C: LockConfig>(condvar: &QueuedCondvar<Native, C>) -> u32 {
    condvar.sequence.fetch_or(SPINNER, Relaxed);
    let (ticket, spins) = condvar.register(false);
    assert!(!spins, "another waiter spins");
    condvar.sequence.fetch_and(!SPINNER, Relaxed);
    ticket
}

#[test]
fn notifying_nobody_changes_nothing() {
    let condvar = at(7);
    assert!(!condvar.notify_one());
    assert_eq!(condvar.notify_all(), 0);
    assert_eq!(word(&condvar), (7, 0));
}

#[test]
fn waiters_on_their_way_are_told_from_waiters_that_have_left() {
    let condvar = at(7);
    let ticket = sleeper(&condvar);
    let past = Native::now();
    assert!(condvar.sleep(&Mutex::default(), ticket, past, || None) == End::TimeUp);
    assert!(!condvar.notify_one(), "its time was up");
    let ticket = sleeper(&condvar);
    assert!(condvar.notify_one());
    assert!(!condvar.notify_one(), "notified already");
    assert!(condvar.sleep(&Mutex::default(), ticket, NEVER, || None) == End::Awake);
    for _ in 0..3 {
        sleeper(&condvar);
    }
    assert!(condvar.register(false).1);
    assert_eq!(condvar.notify_all(), 4);
    assert_eq!(condvar.notify_all(), 0);
}

#[test]
fn a_notified_spinner_is_reported() {
    let condvar = at(7);
    for _ in 0..2 {
        assert!(condvar.register(false).1);
        assert!(condvar.notify_one());
        assert!(!condvar.notify_one());
    }
    let (ticket, spins) = condvar.register(false);
    assert!(spins && condvar.stop_spinning(ticket | REGISTERED | SPINNER, ticket));
    assert_eq!(condvar.place.waiting(), 1);
    assert!(condvar.notify_one());
}

/// The caller does not hold the mutex, so it cannot wait. Another thread sleeps.
#[test]
fn a_spinner_whose_mutex_is_not_released_passes_its_notification_on() {
    let condvar = at(7);
    sleeper(&condvar);
    for (notified, after) in [(false, 7), (true, 9)] {
        let (ticket, spins) = condvar.register(false);
        assert!(spins);
        if notified {
            assert!(condvar.notify_one());
            assert_eq!(word(&condvar).0, 8, "by the spinner");
        }
        condvar.unregister(ticket, spins);
        assert_eq!(word(&condvar).0, after);
        condvar.sequence.fetch_and(!VAIN, Relaxed);
    }
}

#[test]
fn a_notification_that_wakes_nobody_says_that_nobody_waits() {
    let condvar = at(7);
    let ticket = sleeper(&condvar);
    assert_eq!(word(&condvar), (7, REGISTERED));
    condvar.notify_one();
    assert_eq!(word(&condvar), (8, 0));
    // The waiter that had registered does not fall asleep.
    let with_flags = ticket | REGISTERED;
    assert_eq!(
        condvar.sleep_once(&Mutex::default(), with_flags, NEVER),
        Parked::Differed
    );
    assert!(condvar.sleep(&Mutex::default(), ticket, NEVER, || None) == End::Awake);
}

#[test]
fn a_broadcast_that_may_requeue_is_told_from_the_other_kind() {
    let condvar = at(7);
    let ticket = sleeper(&condvar);
    condvar.notify_one();
    sleeper(&condvar);
    condvar.notify_all();
    // No waiter slept, so none was requeued onto the mutex.
    assert_eq!(condvar.sequence.load(Relaxed), ticket + 2 * ONE);
    // The number of sleepers is what a broadcast wakes at once.
    let few: QueuedCondvar<Native, TwoAtOnce> = QueuedCondvar::new();
    with_sleepers(&few, 2, |_| assert_eq!(few.notify_all(), 2));
    assert_eq!((word(&few).0, few.sequence.load(Relaxed) & MOVED), (1, 0));
    let many: QueuedCondvar<Native, TwoAtOnce> = QueuedCondvar::new();
    with_sleepers(&many, 4, |_| assert_eq!(many.notify_all(), 4));
    assert_eq!(word(&many).0, 2);
}

/// A waiter that registers after the announcement must change the word, so that the requeueing
/// fails.
#[test]
fn a_broadcast_that_requeues_notices_newcomers() {
    let condvar = at(7);
    sleeper(&condvar);
    condvar.sequence.fetch_or(SPINNER | VAIN, Relaxed);
    let now = condvar.announce_requeueing();
    assert_eq!(now, 8 * ONE + VAIN + MOVED);
    sleeper(&condvar);
    assert_ne!(condvar.sequence.load(Relaxed), now);
}

#[test]
fn the_count_wraps_around() {
    let last = u32::MAX / ONE;
    let condvar = at(last);
    let ticket = sleeper(&condvar);
    condvar.notify_one();
    assert_eq!((word(&condvar), ticket), ((0, 0), last * ONE));
    assert!(condvar.sleep(&Mutex::default(), ticket, NEVER, || None) == End::Awake);
}

#[test]
fn a_woken_waiter_owes_nothing_once_nobody_is_left_on_the_mutex() {
    let (condvar, mutex) = (at(7), Mutex::default());
    assert!(!condvar.owes(&mutex), "nobody was moved");
    let announced = condvar.announce_requeueing();
    mutex.lock();
    assert!(condvar.owes(&mutex), "an unlock has to wake the next one");
    assert_eq!(condvar.sequence.load(Relaxed), announced);
    // SAFETY: taken above.
    unsafe { mutex.unlock() };
    assert!(!condvar.owes(&mutex));
    // This is not the announced word, so the kernel would refuse the requeueing.
    assert_eq!(condvar.sequence.load(Relaxed), announced & !MOVED);
}

#[test]
fn the_second_mutex_stays_known() {
    let place = Place::<Native>::new();
    let [five, six] = [5, 6].map(|n| n * place::UNIT);
    place.add_one();
    assert_eq!([five, five].map(|d| place.learn(d)), [(five, false); 2]);
    assert_eq!(place.learn(six), (SEVERAL, true));
    assert_eq!([five, six].map(|d| place.learn(d)), [(SEVERAL, false); 2]);
    assert_eq!((place.mutex(&0), place.waiting()), (None, 1));
}

#[cfg(debug_assertions)]
#[test]
#[should_panic = "two mutexes"]
fn a_second_mutex_is_noticed_while_the_first_waiter_spins() {
    let condvar = at(7);
    condvar.learn(5 * place::UNIT);
    assert!(condvar.register(false).1);
    condvar.learn(6 * place::UNIT);
}

/// While it falls asleep, neither the spinner's flag nor the kernel shows the waiter.
#[cfg(debug_assertions)]
#[test]
fn a_second_mutex_is_noticed_while_the_first_waiter_falls_asleep() {
    let condvar = at(7);
    condvar.learn(5 * place::UNIT);
    std::thread::scope(|s| {
        let late = s.spawn(|| {
            condvar.place.add_one();
            condvar.sequence.fetch_or(REGISTERED, Relaxed);
            std::thread::sleep(Duration::from_millis(2));
            condvar.sleep_once(&Mutex::default(), condvar.sequence.load(Relaxed), NEVER);
        });
        while condvar.place.waiting() == 0 {
            std::thread::yield_now();
        }
        // A call looks only for a bounded time, in which a busy machine may not run the other
        // thread.
        let notices =
            |look: &dyn Fn()| std::panic::catch_unwind(std::panic::AssertUnwindSafe(look)).is_err();
        let mut noticed = notices(&|| _ = condvar.learn(6 * place::UNIT));
        let give_up = Instant::now() + Duration::from_secs(300);
        while !noticed && Instant::now() < give_up {
            noticed = notices(&|| condvar.expect_nobody());
        }
        if !noticed {
            condvar.notify_all();
        }
        assert!(noticed);
        late.join().unwrap();
    });
}

#[test]
fn the_number_of_waiters_stays_in_its_bits() {
    let place = Place::<Native>::new();
    place.subtract_one();
    place.learn(3 * place::UNIT);
    (0..5_000).for_each(|_| place.add_one());
    assert_eq!(place.learn(3 * place::UNIT), (3 * place::UNIT, false));
    assert_eq!(place.take_waiting(), place::UNIT - 1);
    assert_eq!(place.learn(3 * place::UNIT), (3 * place::UNIT, false));
}

/// Otherwise sleepers would never be served while two threads alternate quickly.
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
    let near: Mutex = QueuedMutex::default();
    let spinning: QueuedMutex<Native, Spinning> = QueuedMutex::default();
    assert_eq!(condvar.distance(&spinning), FAR);
    condvar.learn(condvar.distance(&near));
    assert_eq!(condvar.place.mutex(condvar.key()), Some(near.key()));
    let from = near.key();
    for (units, is_far) in [((1 << 18) - 1, false), (1 << 18, true), (1 << 60, true)] {
        for to in [from.wrapping_add(units), from.wrapping_sub(units)] {
            let distance = place::distance(from, to);
            assert_eq!(place::is_far(distance), is_far, "{units}");
            let place = Place::<Native>::new();
            assert_eq!(
                [distance; 2].map(|d| place.learn(d)),
                [(distance, false); 2]
            );
            assert_eq!(place.mutex(from), (!is_far).then_some(to));
            assert_eq!(place.learn(6), (SEVERAL, true), "another mutex");
        }
    }
    let [one, other] =
        [1 << 30, 1 << 40].map(|units| place::distance(from, from.wrapping_add(units)));
    assert_ne!(one, other);
}

#[test]
fn the_spinner_takes_a_notification_without_a_wake_up() {
    let condvar = at(7);
    let (ticket, spins) = condvar.register(false);
    assert!(spins);
    condvar.notify_one();
    // `WAITERS` stays set, unlike after a notification that has found no waiter: others may sleep.
    assert_eq!(word(&condvar), (8, WAITERS));
    // The spinner's time is up at that moment. It has been notified all the same, and leaves the
    // flag to the next spinner.
    condvar.sequence.fetch_or(SPINNER, Relaxed);
    assert!(!condvar.stop_spinning(ticket | SPINNER, ticket));
    assert_eq!(word(&condvar), (8, WAITERS | SPINNER));
}

#[test]
fn a_vain_spin_sets_the_hint() {
    let condvar = at(7);
    let (ticket, _) = condvar.register(false);
    assert!(!condvar.spin(ticket, NEVER));
    let seen = condvar.sequence.load(Relaxed);
    assert_eq!(seen, ticket | REGISTERED | VAIN);
}

#[test]
fn one_spins_at_a_time() {
    let condvar = at(7);
    assert!(condvar.register(false).1);
    assert!(!condvar.register(false).1);
    assert_eq!(word(&condvar), (7, REGISTERED | SPINNER));
}

#[test]
fn a_spinner_that_does_not_exist_in_the_child_of_a_fork_takes_nothing() {
    let condvar = at(0);
    with_sleepers(&condvar, 1, |_| {
        condvar.sequence.fetch_or(SPINNER, Relaxed);
        assert!(in_a_child(|| condvar.notify_one()));
    });
}

/// Starts `n` threads that each wait once, and runs `act` when all are asleep.
fn with_sleepers<C: LockConfig>(
    condvar: &QueuedCondvar<Native, C>,
    n: usize,
    act: impl FnOnce(&AtomicU32),
) {
    let (mutex, returned): (Mutex, _) = (QueuedMutex::default(), AtomicU32::new(0));
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
        let may_spin = || condvar.sequence.load(Relaxed) & SPINNER != 0;
        while condvar.place.waiting() < n as u32 || may_spin() {
            std::thread::yield_now();
        }
        // From here on no waiter changes the word.
        while sleeping(condvar) < n as u32 {
            std::thread::yield_now();
        }
        act(&returned);
    });
    assert_eq!(returned.into_inner(), n as u32);
}

/// How many waiters sleep. If the word changes during the call, all wake up.
fn sleeping<C: LockConfig>(condvar: &QueuedCondvar<Native, C>) -> u32 {
    let (key, word) = (condvar.key(), || condvar.sequence.load(Relaxed));
    // This moves the sleepers to the same key, and so counts them.
    Native::requeue_but(0, key, word(), key, word)
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
        assert!(condvar.notify_one());
        while returned.load(Relaxed) == 0 {
            std::thread::yield_now();
        }
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(returned.load(Relaxed), 1);
        assert_eq!(word(&condvar), (1, WAITERS));
        assert_eq!(condvar.notify_all(), 2);
    });
}
