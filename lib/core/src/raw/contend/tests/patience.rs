//! When a waiter that sleeps in the queue checks whether a thread comes for the lock.

use super::timed::{HELD, Lock, NOW, SLOTS, Timed};
use crate::platform::Platform;
use crate::platform::{NEVER, PATIENCE_NS};
use crate::raw::contend::constants::{BARGE_NS, SPIN_NS};
use crate::raw::contend::wait::is_stuck;
use crate::raw::contend::{QueueKind, Sight, Wait, queue_up};
use crate::raw::osq::Osq;
use crate::raw::patience::Patience;
use crate::tuning::Tuning;

/// When each waiter comes.
const BEGUN: u64 = 1_000_000;
const EACH: u64 = PATIENCE_NS;

/// For each of the first looks of a waiter: the time since it came, and whether it has looked
/// before. No look ends the wait, and each is late by `late`. In nanoseconds.
fn looks(ahead: Option<u64>, late: u64) -> Vec<(u64, bool)> {
    NOW.set(BEGUN);
    let mut patience = Patience::begin::<Timed>();
    patience.count_ahead(ahead);
    let mut looks = Vec::new();
    while looks.len() < 3 {
        NOW.set(patience.or(NEVER) - 1);
        assert_eq!(patience.look_is_due::<Timed>(), None, "too early");
        NOW.set(patience.or(NEVER) + late);
        let at = NOW.get() - BEGUN;
        looks.push((at, patience.look_is_due::<Timed>().expect("it is time")));
    }
    looks
}

#[test]
fn a_waiter_looks_after_a_time_for_each_ahead() {
    for ahead in 1..=8 {
        let length = ahead * EACH;
        let expected = [(length, false), (9 * length, true), (41 * length, true)];
        assert_eq!(looks(Some(ahead), 0), expected, "{ahead} ahead");
    }
    // After a late look the next interval has its full length.
    let late = looks(Some(1), 50_000);
    assert_eq!(late[1], (9 * EACH + 100_000, true));
}

/// A waiter that does not know how many are ahead counts all threads that have ever queued.
#[test]
fn a_waiter_with_many_ahead_counts_the_threads() {
    let _alone = SLOTS.lock();
    let first = |ahead| looks(ahead, 0)[0].0;
    assert_eq!(first(None), EACH, "none has queued");
    let threads = [(); 2].map(|()| Timed::waiters().claim().expect("a slot is free"));
    assert_eq!(first(None), 2 * EACH);
    assert_eq!(first(Some(1)), EACH);
    for slot in threads {
        Timed::waiters().drop_reference(slot);
    }
}

/// The waiter leaves the queue at its first look. Two threads have queued, and only one of them is
/// ahead.
#[test]
fn a_waiter_in_the_queue_counts_before_it_sleeps() {
    let _alone = SLOTS.lock();
    let node = || Timed::waiters().take_node().expect("a slot is free");
    let (queue, head) = (Osq::<Timed>::new(), node());
    assert!(queue.join(&head, true, NEVER), "no other queues");
    NOW.set(BEGUN);
    let mut lock: Lock<'_, true> = Lock {
        sight: &|| Sight { free: true, ..HELD },
        is_taken: &|| unreachable!("it only looks"),
        wait_until_free: &|_| unreachable!("it only looks"),
        sleep: &|_| unreachable!("it only looks"),
    };
    let wait = Wait {
        deadline: NEVER,
        tuning: Tuning::DEFAULT,
        trial: false,
        spin: SPIN_NS,
    };
    let place = queue_up(&mut lock, &queue, QueueKind::Osq, &wait).expect("no time limit");
    assert!(place.is_beside());
    assert_eq!(NOW.get() - BEGUN, EACH + BARGE_NS);
    queue.leave(&head);
}

#[test]
fn patience_without_end_stays_so() {
    NOW.set(BEGUN);
    let mut patience = Patience::ENDLESS;
    patience.count_ahead(Some(1));
    assert_eq!(patience.or(NEVER), NEVER);
    assert_eq!(patience.or(7), 7);
}

/// Whether a waiter that sees `sight` leaves the queue.
fn is_stuck_as(looked: bool, sight: impl Fn() -> Sight) -> bool {
    NOW.set(BEGUN);
    let lock: Lock<'_> = Lock {
        sight: &sight,
        is_taken: &|| unreachable!("it only looks"),
        wait_until_free: &|_| unreachable!("it only looks"),
        sleep: &|_| unreachable!("it only looks"),
    };
    is_stuck::<Timed, _>(&lock, looked)
}

/// Whether a waiter leaves the queue of a lock that is free for `nanos` nanoseconds, and is then
/// taken, or handed over to a waiter that has not picked it up yet.
fn stuck(looked: bool, nanos: u64, handed_over: bool) -> bool {
    is_stuck_as(looked, || {
        let free = NOW.get() < BEGUN.saturating_add(nanos);
        Sight {
            free,
            unclaimed: free || handed_over,
            ..HELD
        }
    })
}

#[test]
fn the_first_look_wants_a_lock_that_stays_free() {
    assert!(stuck(false, NEVER, false));
    assert_eq!(NOW.get() - BEGUN, BARGE_NS, "for no longer than that");
    for nanos in [0, 1, BARGE_NS / 5, BARGE_NS - 50, BARGE_NS] {
        assert!(!stuck(false, nanos, false), "free for {nanos} ns");
        assert!(!stuck(false, nanos, true), "the same, handed over");
    }
    assert!(stuck(false, BARGE_NS + 1, false));
}

#[test]
fn a_later_look_wants_a_lock_that_no_waiter_has_asked_for_or_comes_for() {
    for nanos in [0, 1, NEVER] {
        for handed_over in [false, true] {
            assert!(stuck(true, nanos, handed_over), "{nanos} {handed_over}");
        }
    }
    assert!(!is_stuck_as(true, || Sight {
        requested: true,
        ..HELD
    }));
}
