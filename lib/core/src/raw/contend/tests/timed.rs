//! A platform with a clock that tests set, and a lock that does what tests say. No thread wakes
//! another: sleeps last until their time limit, or for half of that time if a test says so.

use crate::bare::Bare;
use crate::platform::{Atomics, Clock, Parked, Parking, Platform, Spinning};
use crate::raw::contend::{Next, Sight, Target, Wait};
use crate::slots::{Table, Waiters};
use std::cell::Cell;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64};

/// A platform whose clock advances only by tests, pauses and sleeps.
#[derive(Clone, Copy, Debug)]
pub(in crate::raw) struct Timed;

static TABLE: Table<Timed, 2, 1> = Table::new();
static WAITERS: Waiters<Timed> = TABLE.waiters();

/// Held by tests that claim slots, and by tests that depend on the number of claimed slots.
pub(in crate::raw) static SLOTS: Mutex<()> = Mutex::new(());

thread_local! {
    pub(in crate::raw) static NOW: Cell<u64> = const { Cell::new(0) };
    /// How many of the next sleeps end early.
    pub(in crate::raw) static WAKE_UPS: Cell<u32> = const { Cell::new(0) };
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

    fn back_off(nanos: u64) {
        NOW.set(NOW.get() + nanos);
    }
}

impl Parking for Timed {
    const CAN_PARK: bool = true;

    fn park_in(_: *const u32, _: u32, until: u64, _: u32, _: impl Fn() -> u32) -> Parked {
        if WAKE_UPS.get() == 0 {
            NOW.set(until);
            return Parked::Unwoken;
        }
        WAKE_UPS.set(WAKE_UPS.get() - 1);
        NOW.set(NOW.get() + (until - NOW.get()) / 2);
        Parked::Woken
    }
}

impl Platform for Timed {
    type Clock = Self;
    type Spinning = Self;
    type Parking = Self;
    type Fences = Bare;
    type Place = Bare;

    fn waiters() -> &'static Waiters<Self> {
        &WAITERS
    }
}

/// What a waiter sees of a lock that is held, and that no other waiter has requested.
pub(super) const HELD: Sight = Sight {
    free: false,
    no_unlock: false,
    kept: false,
    reserved: false,
    unclaimed: false,
    requested: false,
};

/// A lock for which a test says what a waiter sees and does. The first sleep ends the wait. A
/// request panics.
pub(super) struct Lock<'a, const PARKS: bool = true, const ALONE: bool = false> {
    pub(super) sight: &'a dyn Fn() -> Sight,
    pub(super) is_taken: &'a dyn Fn() -> bool,
    pub(super) wait_until_free: &'a dyn Fn(u64) -> bool,
    pub(super) sleep: &'a dyn Fn(u64),
}

impl<P: Platform, const PARKS: bool, const ALONE: bool> Target<P> for Lock<'_, PARKS, ALONE> {
    type Look = ();
    type Taken = ();
    const PARKS: bool = PARKS;
    const SLEEPS_ALONE: bool = ALONE;

    fn look(&self) {}

    fn sight(&self, (): ()) -> Sight {
        (self.sight)()
    }

    fn take(&mut self) -> Option<()> {
        (self.is_taken)().then_some(())
    }

    fn wait_until_free(&self, nanos: u64) -> bool {
        (self.wait_until_free)(nanos)
    }

    fn watch(&self) {}
    fn keep(&self) {}
    fn share(&self) {}

    fn sleep(&mut self, _: &Wait, until: u64) -> Next<()> {
        (self.sleep)(until);
        Next::End(None)
    }

    fn request(&mut self, _: &Wait, _: u64) -> Next<()> {
        unreachable!("it only looks, barges or sleeps")
    }
}
