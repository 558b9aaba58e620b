//! How long a newcomer tries to do without the queue, as a table.

use crate::bare::Bare;
use crate::platform::{Atomics, Clock, NEVER, Platform, Spinning};
use crate::raw::contend::constants::{BARGE_NS as BARGE, SPIN_NS as SPIN};
use crate::raw::contend::{Next, Sight, Target, Wait, barge};
use crate::raw::osq::Osq;
use crate::slots::{Table, Waiters};
use crate::tuning::Tuning;
use std::cell::Cell;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64};

/// A platform whose time passes in the waits of a [`Newcomer`] alone.
#[derive(Clone, Copy, Debug)]
struct Timed;

static TABLE: Table<Timed, 2, 1> = Table::FREE;
static WAITERS: Waiters<Timed> = TABLE.waiters();

thread_local! {
    static NOW: Cell<u64> = const { Cell::new(0) };
}

impl Atomics for Timed {
    type AtomicU8 = AtomicU8;
    type AtomicU16 = AtomicU16;
    type AtomicU32 = AtomicU32;
    type AtomicU64 = AtomicU64;
}

impl Clock for Timed {
    fn now() -> u64 {
        NOW.get()
    }
}

impl Spinning for Timed {
    type Clock = Self;
}

impl Platform for Timed {
    type Clock = Self;
    type Spinning = Self;
    type Parking = Bare;
    type Fences = Bare;
    type Place = Bare;

    fn waiters() -> &'static Waiters<Self> {
        &WAITERS
    }
}

/// A thread that finds the lock taken, and what happens to the lock.
struct Newcomer {
    /// When it is free for a moment, in ascending order, and whether this thread is the fastest.
    free: &'static [(u64, bool)],
}

impl Target<Timed> for Newcomer {
    type Look = ();
    type Taken = u64;
    const PARKS: bool = true;

    fn look(&self) {}

    fn sight(&self, (): ()) -> Sight {
        Sight {
            free: false,
            watched: false,
            kept: false,
            reserved: false,
            unclaimed: false,
        }
    }

    fn take(&mut self) -> Option<u64> {
        let (at, fastest) = self.free[0];
        self.free = &self.free[1..];
        fastest.then_some(at)
    }

    fn wait_until_free(&self, nanos: u64) -> bool {
        let until = NOW.get() + nanos;
        let free = self.free.first().is_some_and(|&(at, _)| at < until);
        NOW.set(if free { self.free[0].0 } else { until });
        free
    }

    fn watch(&self) {}
    fn keep(&self) {}
    fn share(&self) {}

    fn sleep(&mut self, _: &Wait, _: u64) -> Next<u64> {
        unreachable!("it barges")
    }

    fn request(&mut self, _: &Wait, _: u64) -> Next<u64> {
        unreachable!("it barges")
    }
}

#[test]
fn a_newcomer_waits_for_the_end_of_the_section_that_it_finds() {
    let queue = Osq::<Timed>::new();
    for (name, free, deadline, taken, queues_at) in [
        ("short", &[(3_000, true)][..], NEVER, true, 3_000),
        ("long", &[(SPIN - 1, true)], NEVER, true, SPIN - 1),
        ("too long", &[(SPIN, true)], NEVER, false, SPIN),
        ("a time limit", &[(SPIN - 1, true)], 9_000, false, 9_000),
        (
            "lost, but soon free again",
            &[(100, false), (BARGE - 1, true)],
            NEVER,
            true,
            BARGE - 1,
        ),
        ("lost", &[(100, false), (BARGE, true)], NEVER, false, BARGE),
        (
            "lost after a long section",
            &[(12_000, false), (12_100, true)],
            NEVER,
            false,
            12_000,
        ),
    ] {
        NOW.set(0);
        let wait = Wait {
            deadline,
            tuning: Tuning::DEFAULT,
            trial: false,
        };
        let got = barge(&mut Newcomer { free }, &queue, &wait);
        assert_eq!((got.is_some(), NOW.get()), (taken, queues_at), "{name}");
    }
}
