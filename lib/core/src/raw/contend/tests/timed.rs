//! A platform with a clock that tests set.

use crate::bare::Bare;
use crate::platform::{Atomics, Clock, Platform, Spinning};
use crate::slots::{Table, Waiters};
use std::cell::Cell;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64};

/// A platform whose time passes where a test says so, and in pauses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timed;

static TABLE: Table<Timed, 2, 1> = Table::new();
static WAITERS: Waiters<Timed> = TABLE.waiters();

thread_local! {
    pub(super) static NOW: Cell<u64> = const { Cell::new(0) };
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
