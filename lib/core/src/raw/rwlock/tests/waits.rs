//! How long waits last, with a clock that each test controls.

use super::scripted::{Scripted, ScriptedLock, in_a_sleep, lock, pass_time, sleeps};
use super::*;

/// A configuration with the usual quantum.
#[derive(Clone, Copy, Debug)]
struct Usual;

impl LockConfig for Usual {
    const TRIALS: u32 = 0;
}

type Shared = &'static ScriptedLock<Usual>;

const MICRO: u64 = 1_000;

#[test]
fn a_writer_whose_limit_is_below_the_quantum_asks_for_its_turn_in_time() {
    assert!(Tuning::DEFAULT.quantum.nanos() >= 1_000 * MICRO);
    for limit in [300 * MICRO, 900 * MICRO, 3_000 * MICRO] {
        let lock = lock::<Usual, Scripted>();
        // Two readers, of which one always reads while the other leaves and comes back, so the lock
        // is never free.
        lock.state.set(2 * READER);
        let begun = sleeps().len();
        let start = Scripted::now();
        assert!(!lock.write_until(start + limit));
        assert_eq!(word(lock), 2 * READER, "nothing is left");
        let sleeps = sleeps();
        let asked = sleeps[begun..]
            .iter()
            .find(|sleep| sleep.word & REQUEST != 0);
        let asked = asked.expect("it asked to go next").at - start;
        assert!(asked < limit / 2, "{asked} of {limit}");
    }
}

#[test]
fn a_writer_without_a_limit_leaves_readers_the_quantum() {
    let lock = lock::<Usual, Scripted>();
    lock.state.set(2 * READER);
    let start = Scripted::now();
    in_a_sleep(1, || {
        end(lock, ScriptedLock::unlock_read);
        end(lock, ScriptedLock::unlock_read);
    });
    lock.write();
    let asked = sleeps().into_iter().find(|sleep| sleep.word & REQUEST != 0);
    let asked = asked.expect("it asked to go next").at - start;
    assert!(asked >= Tuning::DEFAULT.quantum.nanos(), "{asked}");
}

/// The waiter at the front has requested to go next, and does not run.
#[test]
fn a_reader_passes_a_front_that_does_not_come_for_a_free_lock() {
    let patience = Scripted::patience();
    let lock = lock::<Usual, Scripted>();
    lock.state
        .set(REQUEST | FRONT_SLEEPS | generation::<Scripted>());
    let start = Scripted::now();
    assert!(lock.read());
    // Patience is per thread that has queued, including threads of other tests.
    assert!((patience..300 * patience).contains(&(Scripted::now() - start)));
    assert_eq!(word(lock), READER);
    // As long as another thread holds the lock, the waiter at the front may well run.
    lock.state.set(REQUEST);
    let limit = Scripted::now() + 5 * patience;
    assert!(!lock.read_until(limit, false));
    assert_eq!(word(lock) & !READERS_SLEEP, READER | REQUEST);
    // The lock becomes free right before the reader looks: the waiter may be about to take it.
    let begun = sleeps().len();
    in_a_sleep(0, move || {
        end(lock, ScriptedLock::unlock_read);
        pass_time(2 * patience);
    });
    assert!(lock.read());
    assert_eq!(
        sleeps().len(),
        begun + 2,
        "it sleeps again before it passes"
    );
    assert_eq!(word(lock), READER);
}

#[test]
fn a_writer_whose_request_was_ended_does_not_sleep_without_one() {
    let lock = lock::<Usual, Scripted>();
    lock.state.set(2 * READER);
    let begun = sleeps().len();
    lock.sleep_in_turn(Want::Write, NEVER);
    assert_eq!(sleeps().len(), begun);
    lock.state.set(REQUEST);
    lock.sleep_in_turn(Want::Write, Scripted::now() + MICRO);
    assert_eq!(sleeps().len(), begun + 1);
}

/// The writer finds the lock taken at each look, which does not mean that the front waiter runs.
#[test]
fn a_writer_leaves_at_a_later_look_although_the_lock_is_held() {
    let lock = lock::<Usual, Scripted>();
    let front = Scripted::waiters().take_node();
    let front = front.expect("a slot is free");
    assert!(lock.writers.join(&front, true, NEVER), "nobody else queues");
    lock.state.set(2 * READER);
    let (begun, start) = (sleeps().len(), Scripted::now());
    assert!(!lock.write_until(start + 100 * Scripted::patience()));
    let asked = sleeps()[begun..]
        .iter()
        .find(|sleep| sleep.word & REQUEST != 0)
        .map(|s| s.at);
    let asked = asked.expect("it asked to go next") - start;
    assert!(
        asked > 5 * Scripted::patience(),
        "{asked}: the holders may have been at work"
    );
    lock.writers.leave(&front);
}

#[test]
fn a_writer_goes_on_beside_a_front_that_does_not_run() {
    let lock = lock::<Usual, Scripted>();
    let front = Scripted::waiters().take_node().expect("a slot is free");
    assert!(lock.writers.join(&front, true, NEVER), "nobody else queues");
    lock.state
        .set(REQUEST | FRONT_SLEEPS | generation::<Scripted>());
    lock.write();
    assert_eq!(
        word(lock),
        WRITER | FRONT_SLEEPS,
        "its release wakes that one"
    );
    lock.writers.leave(&front);
    assert_eq!(lock.writers.last(), 0);
}

#[test]
fn a_writer_that_a_fair_release_makes_the_next_takes_no_timed_sleep() {
    let lock = lock::<Usual, Scripted>();
    lock.state.set(3 * READER);
    in_a_sleep(0, || {
        end(lock, ScriptedLock::unlock_read_fair);
        assert_eq!(word(lock), (2 * READER) | REQUEST);
        in_a_sleep(0, || {
            end(lock, ScriptedLock::unlock_read);
            end(lock, ScriptedLock::unlock_read);
        });
    });
    lock.write();
    let keys: Vec<_> = sleeps().iter().map(|sleep| sleep.key).collect();
    // A timed sleep would be at another address.
    assert_eq!(keys, [lock.key().addr(); 2]);
}

#[test]
fn a_fair_release_makes_a_sleeping_waiter_the_next() {
    let ends: [(u32, fn(Shared)); 3] = [
        (WRITER, |lock| end(lock, ScriptedLock::unlock_write_fair)),
        (READER, |lock| end(lock, ScriptedLock::unlock_read_fair)),
        (UPGRADABLE, |lock| {
            end(lock, ScriptedLock::unlock_upgradable_fair)
        }),
    ];
    for (held, leave) in ends {
        let lock = lock::<Usual, Scripted>();
        lock.state.set(held);
        in_a_sleep(0, move || {
            leave(lock);
            assert_eq!(word(lock), REQUEST);
            assert!(!lock.try_write() && !lock.try_read(false) && !lock.try_upgradable());
        });
        lock.write();
        assert_eq!(word(lock), WRITER);
    }
}

#[test]
fn a_full_lock_refuses_readers_without_a_sleep() {
    for others in [0, REQUEST, FRONT_SLEEPS] {
        let full = lock::<Usual, Scripted>();
        full.state.set(LIMIT | others);
        let begun = sleeps().len();
        assert!(!full.read() && !full.upgradable());
        let limit = Scripted::now() + 100_000 * MICRO;
        assert!(!full.read_until(limit, false) && !full.upgradable_until(limit));
        assert!(Scripted::now() < limit);
        assert!(!full.read_passing() && !full.try_read(true) && !full.try_upgradable());
        assert_eq!(sleeps().len(), begun);
        assert_eq!(count(word(full)), LIMIT);
    }
}

/// It waits for another upgradable reader, which goes on as the last reader that can be counted.
#[test]
fn an_upgradable_reader_gives_up_when_the_lock_becomes_full() {
    let lock = lock::<Usual, Scripted>();
    lock.state.set(UPGRADABLE | (LIMIT - (2 * READER)));
    in_a_sleep(0, || {
        assert!(lock.try_read(false) && lock.is_full());
        end(lock, ScriptedLock::downgrade_upgradable);
    });
    let begun = sleeps().len();
    assert!(!lock.upgradable());
    assert_eq!(sleeps().len(), begun + 1);
    assert_eq!(word(lock), LIMIT, "nothing is left of the wait");
}

/// Between the two steps of a reader that leaves in place of another reader, the count is below
/// zero. The reader may be preempted there for long.
#[test]
fn readers_enter_where_the_count_is_below_zero_and_writers_do_not() {
    let lock = lock::<Usual, Scripted>();
    let below = |by: u32| BIASED | FRONT_SLEEPS | 0_u32.wrapping_sub(by * READER);
    for by in [1, 2] {
        lock.state
            .fetch_update(Relaxed, |_| Some(below(by)))
            .unwrap();
        assert!(!lock.try_write() && !lock.is_full());
        assert_eq!(lock.enter(true), Some(Counted::Reads));
        assert_eq!(word(lock), below(by - 1));
    }
}
