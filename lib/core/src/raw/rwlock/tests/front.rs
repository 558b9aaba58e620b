//! Several waiters at the front: how many of them an event wakes.

use super::scripted::{Scripted, ScriptedLock, in_a_sleep, lock, sleeps, wakes};
use super::*;
use crate::raw::contend::QueueKind;

/// A configuration in which every waiter is at the front.
#[derive(Clone, Copy, Debug)]
struct Beside;

impl LockConfig for Beside {
    const TRIALS: u32 = 0;

    fn queue() -> QueueKind {
        QueueKind::Unqueued
    }
}

type Shared<P = Scripted> = &'static ScriptedLock<Beside, P>;

/// How many wake-ups `event` sends to waiters at the front, and how many threads they may wake.
fn woken_by(event: impl FnOnce()) -> [u32; 2] {
    let before = wakes();
    event();
    let after = wakes();
    [after[0] - before[0], after[1] - before[1]]
}

/// A lock with this number of `others` at its front, held as `held` says.
fn crowded<P: Platform>(others: u32, held: u32) -> Shared<P> {
    let lock = lock::<Beside, P>();
    (0..others).for_each(|_| _ = lock.hints.come_beside());
    lock.state.set(held | FRONT_SLEEPS);
    lock
}

#[test]
fn each_release_wakes_one() {
    for others in [1, 2, 500, 600] {
        let written: Shared = crowded(others, WRITER);
        assert_eq!(
            woken_by(|| end(written, ScriptedLock::unlock_write)),
            [1, 1]
        );
        let read: Shared = crowded(others, 2 * READER);
        assert_eq!(woken_by(|| end(read, ScriptedLock::unlock_read)), [0, 0]);
        assert_eq!(woken_by(|| end(read, ScriptedLock::unlock_read)), [1, 1]);
        let upgradable: Shared = crowded(others, UPGRADABLE);
        let left = || end(upgradable, ScriptedLock::unlock_upgradable);
        assert_eq!(woken_by(left), [1, 1]);
    }
}

/// One of several sleepers was woken, and takes the lock. Its release wakes the next sleeper.
pub(super) fn flag_after_the_woken_one<P: Platform>(others: u32) -> u32 {
    let lock = crowded::<P>(others, WRITER);
    in_a_sleep(0, || end(lock, ScriptedLock::unlock_write));
    lock.write();
    word(lock)
}

#[test]
fn who_takes_the_lock_marks_it_for_the_others_at_the_front() {
    assert_eq!(flag_after_the_woken_one::<Scripted>(0), WRITER);
    assert_eq!(
        flag_after_the_woken_one::<Scripted>(3),
        WRITER | FRONT_SLEEPS
    );
}

#[test]
fn who_gives_up_wakes_one_if_others_are_there() {
    for (others, woken) in [(0, [0, 0]), (1, [1, 1]), (300, [1, 1])] {
        let lock: Shared = crowded(others, READER);
        let limit = Scripted::now() + 5_000_000;
        assert_eq!(woken_by(|| assert!(!lock.write_until(limit))), woken);
        assert_eq!(word(lock), READER, "nothing is left of it");
    }
}

#[test]
fn a_writer_that_gives_up_wakes_the_readers_that_wait_for_its_turn() {
    let lock: Shared = lock::<Beside, Scripted>();
    lock.state.set(READER | REQUEST);
    in_a_sleep(0, || {
        lock.leave_front(false);
        let asleep = Scripted::unpark_in(lock.key(), 1, READERS);
        assert_eq!(asleep, 0, "the reader has been woken");
    });
    assert!(lock.read());
    assert_eq!(word(lock), 2 * READER);
}

/// A waiter that was woken and does not run is no longer among the sleepers.
#[test]
fn a_waiter_at_the_front_looks_again_after_its_patience() {
    let lock: Shared = crowded(1, WRITER);
    let begun = sleeps().len();
    let start = Scripted::now();
    // The release during the second sleep of this waiter wakes the other waiter.
    in_a_sleep(1, || {});
    // Patience is per thread that has queued, including threads of other tests.
    let limit = start + 100 * Scripted::patience();
    assert!(!lock.write_until(limit));
    assert!(sleeps().len() - begun > 4, "it looked several times");
}

#[test]
fn the_number_beside_the_queue_ends_at_its_limit_and_in_a_child() {
    let hints = Hints::<Scripted>::new();
    assert!(!hints.has_beside());
    hints.keep();
    assert!((0..3).all(|_| hints.come_beside()));
    for others in [true, true, false] {
        hints.leave_beside();
        assert_eq!(hints.has_beside(), others);
    }
    assert!(hints.is_kept());
    assert!(hints.come_beside());
    super::scripted::forked(1);
    assert!(!hints.has_beside(), "they are in another process");
    hints.leave_beside();
    assert!(hints.come_beside() && hints.has_beside());
    hints.leave_beside();
    assert!(!hints.has_beside());
    super::scripted::forked(0);
    let counted = (0..1000).filter(|_| hints.come_beside()).count();
    assert_eq!(counted, 511);
    (0..counted).for_each(|_| hints.leave_beside());
    assert!(!hints.has_beside() && hints.is_kept());
}

/// A waiter that gives up is counted among the waiters at the front until then.
#[test]
fn a_fair_release_for_a_waiter_that_has_given_up_leaves_a_lock_for_all() {
    let ends: [(u32, fn(Shared)); 3] = [
        (WRITER, |lock| end(lock, ScriptedLock::unlock_write_fair)),
        (UPGRADABLE, |lock| {
            end(lock, ScriptedLock::unlock_upgradable_fair)
        }),
        (READER, |lock| end(lock, ScriptedLock::unlock_read_fair)),
    ];
    for (held, leave) in ends {
        let lock = crowded(0, held);
        leave(lock);
        assert_eq!(word(lock) & (REQUEST | WRITER | UPGRADABLE), 0);
        assert!(lock.try_read(false), "{held:#x}");
    }
}

/// A waiter with a request already is the next, so the release leaves the request alone.
#[test]
fn a_fair_release_takes_no_standing_request_back() {
    let lock = crowded::<Scripted>(0, 2 * READER);
    lock.state.set(REQUEST);
    end(lock, ScriptedLock::unlock_read_fair);
    assert_eq!(word(lock), READER | FRONT_SLEEPS | REQUEST);
}

/// No wake-up would come to it: a holder that looks for waiters beside the queue would not see it.
#[test]
fn a_waiter_that_cannot_be_counted_looks_again_and_again() {
    let lock: Shared = crowded(511, WRITER);
    in_a_sleep(2, || end(lock, ScriptedLock::unlock_write));
    lock.write();
    assert_eq!(word(lock), WRITER | FRONT_SLEEPS, "the others are there");
    assert!(!lock.hints.come_beside(), "it is not counted");
    let limit = Scripted::now() + 3_000_000;
    assert!(!lock.write_until(limit));
}
