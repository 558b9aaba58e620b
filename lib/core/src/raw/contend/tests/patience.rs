//! When a waiter that sleeps in the queue looks whether anybody comes for the lock.

use super::timed::{NOW, Timed};
use crate::platform::{NEVER, PATIENCE_NS};
use crate::raw::contend::constants::BARGE_NS;
use crate::raw::contend::patience::{Glance, Patience};
use crate::raw::contend::wait::{is_stuck, patience};
use crate::raw::contend::{Next, Sight, Target, Wait};
use crate::tuning::{Quantum, Tuning};

/// When each waiter comes.
const BEGUN: u64 = 1_000_000;
/// In microseconds.
const WHOLE: u64 = PATIENCE_NS / 1000;

/// The looks of a waiter that finds the lock taken each time, in microseconds since it came. At the
/// last one it leaves. It is late for each by `late`, in nanoseconds.
fn looks(ahead: Option<u64>, late: u64) -> Vec<(u64, Glance)> {
    NOW.set(BEGUN);
    let mut patience = Patience::begin_in_queue::<Timed>();
    patience.count_ahead(|limit| ahead.filter(|&ahead| ahead <= limit));
    let mut looks = Vec::new();
    loop {
        NOW.set(patience.or(NEVER) - 1);
        assert!(!patience.is_lost::<Timed>(|_| unreachable!("too early")));
        NOW.set(patience.or(NEVER) + late);
        let at = (NOW.get() - BEGUN) / 1000;
        let lost = patience.is_lost::<Timed>(|glance| {
            looks.push((at, glance));
            glance == Glance::Last
        });
        if lost {
            return looks;
        }
    }
}

#[test]
fn only_a_waiter_near_the_front_looks_early() {
    let usual = [
        (WHOLE, Glance::Late),
        (3 * WHOLE, Glance::Late),
        (7 * WHOLE, Glance::Last),
    ];
    for ahead in [None, Some(9), Some(1000)] {
        assert_eq!(looks(ahead, 0), usual, "{ahead:?}");
    }
    for (ahead, early) in [
        (1, &[200, 600, 1400, 3000, 6200][..]),
        (2, &[400, 1200, 2800, 6000]),
        (3, &[600, 1800, 4200, 9000]),
        (8, &[1600, 4800]),
    ] {
        let early = early.iter().map(|&at| (at, Glance::Early));
        let expected: Vec<_> = early.chain(usual).collect();
        assert_eq!(looks(Some(ahead), 0), expected, "{ahead} ahead");
    }
    // A look that comes late is followed by a whole interval.
    let late = looks(Some(1), 50_000);
    let early = [250, 700, 1550, 3200, 6450].map(|at| (at, Glance::Early));
    assert_eq!(late[..5], early);
}

#[test]
fn a_look_that_finds_nobody_ends_the_patience() {
    for ahead in [None, Some(1)] {
        NOW.set(BEGUN);
        let mut patience = Patience::begin_in_queue::<Timed>();
        patience.count_ahead(|_| ahead);
        NOW.set(patience.or(NEVER));
        assert!(patience.is_lost::<Timed>(|_| true), "{ahead:?}");
    }
}

#[test]
fn a_waiter_whose_last_looks_find_that_the_queue_moves_looks_on() {
    NOW.set(BEGUN);
    let mut patience = Patience::begin::<Timed>();
    let mut last = Vec::new();
    while last.len() < 3 {
        NOW.set(patience.or(NEVER));
        let at = (NOW.get() - BEGUN) / 1000;
        assert!(!patience.is_lost::<Timed>(|glance| {
            last.extend((glance == Glance::Last).then_some(at));
            false
        }));
    }
    assert_eq!(last, [7 * WHOLE, 15 * WHOLE, 31 * WHOLE]);
}

#[test]
fn patience_without_end_stays_so() {
    NOW.set(BEGUN);
    let mut patience = Patience::ENDLESS;
    patience.count_ahead(|_| unreachable!("it does not matter"));
    assert_eq!(patience.or(NEVER), NEVER);
    assert_eq!(patience.or(7), 7);
}

/// A lock that is free from `BEGUN` on until this time. After that it is taken, or was handed over
/// to a waiter that has not come yet.
struct Lock {
    free_until: u64,
    handed_over: bool,
}

impl Target<Timed> for Lock {
    type Look = ();
    type Taken = ();
    const PARKS: bool = true;

    fn look(&self) {}

    fn sight(&self, (): ()) -> Sight {
        Sight {
            free: NOW.get() < self.free_until,
            watched: false,
            kept: false,
            reserved: false,
            unclaimed: NOW.get() < self.free_until || self.handed_over,
            requested: self.handed_over,
        }
    }

    fn take(&mut self) -> Option<()> {
        unreachable!("it only looks")
    }

    fn wait_until_free(&self, _: u64) -> bool {
        unreachable!("it only looks")
    }

    fn watch(&self) {}
    fn keep(&self) {}
    fn share(&self) {}

    fn sleep(&mut self, _: &Wait, _: u64) -> Next<()> {
        unreachable!("it only looks")
    }

    fn request(&mut self, _: &Wait, _: u64) -> Next<()> {
        unreachable!("it only looks")
    }
}

/// Whether a lock that is free for so long, and then handed over or taken, is stuck.
fn stuck(glance: Glance, nanos: u64, handed_over: bool) -> bool {
    NOW.set(BEGUN);
    let lock = Lock {
        free_until: BEGUN.saturating_add(nanos),
        handed_over,
    };
    is_stuck::<Timed, _>(&lock, glance)
}

#[test]
fn an_early_look_wants_a_lock_that_stays_free() {
    use Glance::{Early, Last, Late};
    assert!(stuck(Early, NEVER, false));
    assert_eq!(NOW.get() - BEGUN, BARGE_NS, "for no longer than that");
    for nanos in [0, 1, 1_000, 4_950, BARGE_NS] {
        assert!(!stuck(Early, nanos, false), "free for {nanos} ns");
        assert!(!stuck(Early, nanos, true), "the same, handed over");
        assert_eq!(stuck(Late, nanos, false), nanos > 0);
        assert!(stuck(Late, nanos, true));
    }
    assert!(stuck(Early, BARGE_NS + 1, false));
    assert!(
        stuck(Last, 0, false),
        "held, and nobody has asked to go next"
    );
}

#[test]
fn waiters_look_early_unless_each_is_to_have_its_turn() {
    let wait = |quantum| Wait {
        deadline: NEVER,
        tuning: Tuning {
            quantum,
            ..Tuning::DEFAULT
        },
        trial: false,
    };
    for (quantum, early) in [
        (Tuning::DEFAULT.quantum, true),
        (Quantum::from_micros(1).unwrap(), true),
        (Quantum::FAIR, false),
    ] {
        NOW.set(BEGUN);
        let mut patience = patience::<Timed, Lock>(&wait(quantum));
        patience.count_ahead(|_| Some(1));
        let next = patience.or(NEVER) - BEGUN;
        assert_eq!(next, if early { 200_000 } else { PATIENCE_NS });
    }
}
