//! When a waiter that sleeps in the queue looks whether anybody comes for the lock.

use super::timed::{NOW, Timed};
use crate::platform::{NEVER, PATIENCE_NS};
use crate::raw::contend::constants::BARGE_NS;
use crate::raw::contend::patience::Patience;
use crate::raw::contend::wait::stays_unclaimed;
use crate::raw::contend::{Next, Sight, Target, Wait};

/// When each waiter comes.
const BEGUN: u64 = 1_000_000;
/// In microseconds.
const WHOLE: u64 = PATIENCE_NS / 1000;

/// The looks of a waiter that finds the lock taken each time: when, in microseconds since it came,
/// and for how many nanoseconds nobody must have come for the lock. At the last one it leaves.
fn looks(ahead: Option<u64>) -> Vec<(u64, u64)> {
    NOW.set(BEGUN);
    let mut patience = Patience::begin::<Timed>();
    patience.count_ahead(|limit| ahead.filter(|&ahead| ahead <= limit));
    let mut looks = Vec::new();
    loop {
        NOW.set(patience.or(NEVER) - 1);
        assert!(!patience.is_lost::<Timed>(|_| unreachable!("too early")));
        NOW.set(patience.or(NEVER));
        let at = (NOW.get() - BEGUN) / 1000;
        let lost = patience.is_lost::<Timed>(|nanos| {
            looks.push((at, nanos));
            false
        });
        if lost {
            return looks;
        }
    }
}

#[test]
fn only_a_waiter_near_the_front_looks_early() {
    let usual = [WHOLE, 3 * WHOLE, 7 * WHOLE].map(|at| (at, 0));
    for ahead in [None, Some(9), Some(1000)] {
        assert_eq!(looks(ahead), usual, "{ahead:?}");
    }
    for (ahead, early) in [
        (1, &[200, 600, 1400, 3000, 6200][..]),
        (2, &[400, 1200, 2800, 6000]),
        (3, &[600, 1800, 4200, 9000]),
        (8, &[1600, 4800]),
    ] {
        let early = early.iter().map(|&at| (at, BARGE_NS));
        let expected: Vec<_> = early.chain(usual).collect();
        assert_eq!(looks(Some(ahead)), expected, "{ahead} ahead");
    }
}

#[test]
fn a_look_that_finds_nobody_ends_the_patience() {
    for ahead in [None, Some(1)] {
        NOW.set(BEGUN);
        let mut patience = Patience::begin::<Timed>();
        patience.count_ahead(|_| ahead);
        NOW.set(patience.or(NEVER));
        assert!(patience.is_lost::<Timed>(|_| true), "{ahead:?}");
    }
}

#[test]
fn patience_without_end_stays_so() {
    NOW.set(BEGUN);
    let mut patience = Patience::ENDLESS;
    patience.count_ahead(|_| unreachable!("it does not matter"));
    assert_eq!(patience.or(NEVER), NEVER);
    assert_eq!(patience.or(7), 7);
}

/// A lock that is unclaimed from `BEGUN` on, but not at this time.
struct Lock {
    claimed: u64,
}

impl Target<Timed> for Lock {
    type Look = ();
    type Taken = ();
    const PARKS: bool = true;

    fn look(&self) {}

    fn sight(&self, (): ()) -> Sight {
        Sight {
            free: false,
            watched: false,
            kept: false,
            reserved: false,
            unclaimed: NOW.get() != self.claimed,
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

/// Whether a lock that is claimed after so many nanoseconds is unclaimed for `nanos` on end.
fn is_stuck(claimed: u64, nanos: u64) -> bool {
    NOW.set(BEGUN);
    let claimed = BEGUN.saturating_add(claimed);
    stays_unclaimed::<Timed, _>(&Lock { claimed }, nanos)
}

#[test]
fn a_lock_that_is_free_between_two_sections_is_not_stuck() {
    assert!(is_stuck(NEVER, BARGE_NS));
    assert_eq!(NOW.get() - BEGUN, BARGE_NS, "for no longer than that");
    assert!(!is_stuck(0, BARGE_NS));
    assert!(!is_stuck(1_000, BARGE_NS));
    assert!(!is_stuck(BARGE_NS, BARGE_NS));
    assert!(is_stuck(BARGE_NS + 100, BARGE_NS));
    // A late look is one look.
    assert!(is_stuck(1_000, 0));
    assert!(!is_stuck(0, 0));
}
