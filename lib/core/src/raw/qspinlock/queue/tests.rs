//! Single steps of waiters, on words and queues in a prepared state.

use super::*;
use crate::Native;
use crate::atomic::Atomics;
use crate::bare::Bare;
use crate::platform::{Parked, Parking};
use crate::raw::waiter::{Table, Waiters};
use crate::tuning::Tuning;
use core::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64};

/// Every waiter queues. `PARK`: whether it may sleep.
#[derive(Clone, Copy, Debug)]
struct Queueing<const PARK: bool>;

impl<const PARK: bool> LockConfig for Queueing<PARK> {
    const PENDING_BIT: bool = false;
    const PARK: bool = PARK;
    fn tuning() -> Tuning {
        let mut tuning = Tuning::DEFAULT;
        tuning.reorder = true;
        tuning
    }
}

/// The native platform, with an observer.
#[derive(Clone, Copy, Debug)]
struct Observed;

static TABLE: Table<Observed, 64, 2> = Table::new();
static WAITERS: Waiters<Observed> = TABLE.waiters();
static LOCK: QueuedSpinLock<Observed, Queueing<true>> = QueuedSpinLock::new();
/// The pending byte of `LOCK` when a head began to scan.
static SEEN_BY_SCAN: AtomicU8 = AtomicU8::new(u8::MAX);

impl Atomics for Observed {
    type AtomicU8 = AtomicU8;
    type AtomicU16 = AtomicU16;
    type AtomicU32 = AtomicU32;
    type AtomicU64 = AtomicU64;
}

impl Parking for Observed {
    const CAN_PARK: bool = true;

    fn park_in(_: *const u32, _: u32, _: u64, _: u32, _: impl Fn() -> u32) -> Parked {
        panic!("a waiter that must not sleep does")
    }
}

impl Platform for Observed {
    type Clock = Native;
    type Spinning = Native;
    type Parking = Self;
    type Fences = Native;
    type Place = Bare;

    fn waiters() -> &'static Waiters<Self> {
        &WAITERS
    }

    fn count(event: Event) {
        if event == Event::Scan {
            SEEN_BY_SCAN.store(LOCK.pending.load(Relaxed), Relaxed);
        }
    }
}

fn terms(deadline: u64) -> Terms {
    Terms {
        tuning: Queueing::<true>::tuning(),
        deadline,
        oversubscribed: true,
    }
}

#[test]
fn a_head_that_has_slept_forbids_stealing_before_it_scans() {
    let place = WAITERS.take_node().unwrap();
    place.node().prepare(0, false);
    LOCK.tail.store(place.id().encode(), Relaxed);
    LOCK.pending.store(STEAL, Relaxed);
    let headship = Headship {
        state: GO,
        slept: true,
    };
    assert!(LOCK.lead(place, headship, 0, terms(NEVER)));
    assert_eq!(SEEN_BY_SCAN.load(Relaxed), 0);
}

#[test]
fn a_waiter_without_a_node_does_not_sleep_where_none_may() {
    let lock = QueuedSpinLock::<Observed, Queueing<false>>::new();
    assert!(lock.try_lock());
    assert!(!lock.lock_beside(Native::now() + 2_000_000));
}

#[test]
fn a_head_whose_time_is_up_leaves_no_flag_behind() {
    let lock = QueuedSpinLock::<Native, Queueing<true>>::new();
    assert!(lock.try_lock());
    // The time limit is longer than the spin.
    assert!(!lock.lock_until(Native::now() + 3_000_000));
    // This is an unlock that has missed the flag.
    lock.locked.store(0, Relaxed);
    assert!(lock.try_lock());
}

/// Rouses a sleeper of a lock with this pending byte. Returns whether the sleeper has passed the
/// rouse on to the waiter behind it.
fn passes_a_rouse_on(guarded: bool, pending: u8) -> bool {
    type Lock = QueuedSpinLock<Native, Queueing<true>>;
    let waiters = Native::waiters();
    let behind = waiters.take_node().unwrap();
    behind.node().prepare(0, false);
    behind.node().drowsy.store(DROWSY, Relaxed);
    let (sent, received) = std::sync::mpsc::channel();
    let link = Link::new(behind.id(), false, 0);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let place = waiters.take_node().unwrap();
            place.node().prepare(0, false);
            assert!(!waiters.link(place.id(), link));
            sent.send(place.id()).unwrap();
            let lock = Lock::new();
            lock.pending.store(pending, Relaxed);
            assert!(
                lock.wait_for_headship(place, guarded, true, terms(NEVER))
                    .is_ok()
            );
        });
        let sleeper = waiters.node(received.recv().unwrap());
        let asleep =
            || sleeper.drowsy.load(Relaxed) == DROWSY && sleeper.state.load(Relaxed) == NODE_PARKED;
        while !asleep() {
            std::thread::yield_now();
        }
        Lock::rouse(sleeper);
        // In a loop, since the sleeper may not have been asleep yet.
        while !asleep() {
            Native::unpark(key::<Native>(&sleeper.state), 1);
        }
        sleeper.state.swap(GO, AcqRel);
        Native::unpark(key::<Native>(&sleeper.state), 1);
    });
    behind.node().drowsy.swap(AWAKE, Relaxed) == ROUSED
}

#[test]
fn only_a_waiter_that_is_not_guarded_passes_a_rouse_on_behind_a_front_that_is_awake() {
    assert!(passes_a_rouse_on(false, 0));
    assert!(!passes_a_rouse_on(true, 0));
    assert!(!passes_a_rouse_on(false, PARKED));
}

/// How long a waiter that never becomes the head spins in the queue, with this pending byte.
/// `moves`: whether others queue behind it all the time.
fn spins(pending: u8, moves: bool) -> u64 {
    let lock = QueuedSpinLock::<Native, Queueing<true>>::new();
    lock.pending.store(pending, Relaxed);
    lock.tail.store(1, Relaxed);
    let place = Native::waiters().take_node().unwrap();
    place.node().prepare(0, false);
    let terms = Terms {
        oversubscribed: false,
        ..terms(NEVER)
    };
    let done = core::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        if moves {
            scope.spawn(|| {
                while !done.load(Relaxed) {
                    lock.tail.fetch_add(1, Relaxed);
                }
            });
        }
        let begin = Native::now();
        let headship = lock.spin_for_headship(place.node(), SPINS_BEHIND, terms);
        done.store(true, Relaxed);
        assert_eq!(headship, None);
        Native::now() - begin
    })
}

/// In a queue that stands still, waiters sleep soon: the front waiter has spun without success,
/// too. In a queue that moves they do not, even if a sleeper was made the head.
#[test]
fn waiters_sleep_soon_in_a_queue_that_stands_still() {
    let whole = u64::from(SPINS_BEHIND) * spin_limit::<Native, Queueing<true>>(false);
    // A spin takes longer if other threads want the CPU, and ends early if this thread notices
    // that.
    let any =
        |pending, moves, is: &dyn Fn(u64) -> bool| (0..10_000).any(|_| is(spins(pending, moves)));
    assert!(any(0, false, &|nanos| nanos >= whole));
    assert!(any(STEAL, false, &|nanos| nanos >= whole));
    assert!(any(PARKED, true, &|nanos| nanos >= whole));
    assert!(any(PARKED, false, &|nanos| nanos < whole / 2));
}
