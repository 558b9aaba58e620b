//! The platform of this crate's unit tests: threads of the standard library.
//!
//! Its fences are full fences, and threads park in a table, so Miri can interpret it. The crate
//! `kinlock-linux` tests what a real machine adds, such as futexes and membarrier.
//!
//! # Invariant cited by `SAFETY` comments
//!
//! 1. The slot is the one that this thread keeps. The thread no longer uses it, since it ends.

use crate::events::{self, Event};
use crate::platform::{Atomics, Clock, Fences, Parked, Parking, Place, Platform, Spinning};
use crate::sleepers::Sleepers;
use crate::slots::{MAX_SLOTS, Table, Waiters};
use crate::visible_readers::{Row, VisibleReaders};
use std::cell::Cell;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64};
use std::time::Instant;

/// Threads of the standard library.
#[derive(Clone, Copy, Debug)]
pub struct Threads;

static TABLE: Table<Threads, MAX_SLOTS, { MAX_SLOTS.div_ceil(32) }> = Table::new();
static WAITERS: Waiters<Threads> = TABLE.waiters();
static ROWS: [Row<Threads>; 256] = [const { Row::new() }; 256];
static ROWS_IN_USE: AtomicU32 = AtomicU32::new(0);
static ANNOUNCED: VisibleReaders<Threads> = VisibleReaders::new(&ROWS, &ROWS_IN_USE);

static SLEEPERS: Sleepers = Sleepers::NONE;

/// The slot that a thread keeps until it ends.
struct Kept(Cell<u16>);

impl Drop for Kept {
    fn drop(&mut self) {
        let slot = self.0.get();
        if slot != 0 {
            // SAFETY: invariant 1.
            unsafe { WAITERS.release(slot) };
        }
    }
}

thread_local! {
    static KEPT: Kept = const { Kept(Cell::new(0)) };
    static ROW: usize = ANNOUNCED.assign();
    static FORKS: Cell<u8> = const { Cell::new(0) };
}

fn now() -> u64 {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    // Not near 0: an absolute time limit may lie before the first reading.
    START.elapsed().as_nanos() as u64 + 1_000_000_000
}

impl Atomics for Threads {
    type AtomicU8 = AtomicU8;
    type AtomicU16 = AtomicU16;
    type AtomicU32 = AtomicU32;
    type AtomicU64 = AtomicU64;
}

impl Clock for Threads {
    fn now() -> u64 {
        now()
    }

    fn random() -> u32 {
        thread_local!(static STATE: Cell<u32> = const { Cell::new(0x9e37_79b9) });
        let mut x = STATE.get();
        x ^= x << 13;
        x ^= x >> 17;
        x ^= x << 5;
        STATE.set(x);
        x
    }
}

impl Spinning for Threads {
    type Clock = Self;

    fn yield_now() {
        std::thread::yield_now();
    }

    fn back_off(nanos: u64) {
        let until = now().saturating_add(nanos);
        while now() < until {
            core::hint::spin_loop();
        }
    }
}

impl Parking for Threads {
    const CAN_PARK: bool = true;

    fn park_in(
        key: *const u32,
        expected: u32,
        until: u64,
        sets: u32,
        current: impl Fn() -> u32,
    ) -> Parked {
        let left = until.saturating_sub(now());
        SLEEPERS.park_for(key, expected, left, sets, current)
    }

    fn unpark_in(key: *const u32, n: u32, sets: u32) -> u32 {
        SLEEPERS.unpark_in(key, n, sets)
    }

    fn unpark_some(key: *const u32, n: u32) -> u32 {
        SLEEPERS.unpark_some(key, n)
    }

    fn requeue_but(
        woken: u32,
        from: *const u32,
        expected: u32,
        to: *const u32,
        current: impl Fn() -> u32,
    ) -> u32 {
        let (woken, moved) = SLEEPERS.requeue_but(woken, from, expected, to, current);
        woken + moved
    }
}

impl Fences for Threads {}

std::thread_local! {
    static SLICES: Cell<Slices> = const { Cell::new(Slices { extended: 0, ended: 0 }) };
}

/// How often this thread has asked for a longer time slice, and has ended that.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slices {
    pub extended: u32,
    pub ended: u32,
}

impl Slices {
    /// The numbers of the calling thread during `action`.
    pub fn during(action: impl FnOnce()) -> Self {
        SLICES.set(Slices {
            extended: 0,
            ended: 0,
        });
        action();
        SLICES.get()
    }
}

/// Runs `body` as the child of a fork, in which other threads do not exist.
pub fn in_a_child<R>(body: impl FnOnce() -> R) -> R {
    FORKS.set(1);
    let result = body();
    FORKS.set(0);
    result
}

impl Place for Threads {
    fn forks() -> u8 {
        FORKS.get()
    }

    fn extend_slice() {
        let slices = SLICES.get();
        SLICES.set(Slices {
            extended: slices.extended + 1,
            ..slices
        });
    }

    fn end_slice() {
        let slices = SLICES.get();
        SLICES.set(Slices {
            ended: slices.ended + 1,
            ..slices
        });
    }
}

impl Platform for Threads {
    type Clock = Self;
    type Spinning = Self;
    type Parking = Self;
    type Fences = Self;
    type Place = Self;

    fn waiters() -> &'static Waiters<Self> {
        &WAITERS
    }

    fn kept_slot() -> u16 {
        KEPT.try_with(|kept| kept.0.get()).unwrap_or(0)
    }

    unsafe fn keep_slot(slot: u16) -> bool {
        KEPT.try_with(|kept| kept.0.set(slot)).is_ok()
    }

    fn visible_readers() -> Option<&'static VisibleReaders<Self>> {
        Some(&ANNOUNCED)
    }

    fn row() -> Option<&'static Row<Self>> {
        Some(ANNOUNCED.row(ROW.with(|row| *row)))
    }

    fn count(event: Event) {
        events::count(event, 1, || Self::kept_slot().into());
    }
}
