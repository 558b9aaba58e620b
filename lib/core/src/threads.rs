//! The platform of this crate's unit tests: threads of the standard library.
//!
//! It parks in a table behind a mutex, and its fences are full ones. So Miri can interpret it. What
//! a real machine adds, such as futexes and membarrier, is tested in the crate `kinlock-linux`.
//!
//! # Invariants cited by `SAFETY` comments
//!
//! 1. Functions registered with the C library are `extern "C"`, do not unwind, and live as long as
//!    the program.
//! 2. The slot is the one that this thread keeps. It uses it no more, since it ends.

use crate::events::{self, Event};
use crate::platform::{
    Atomics, Clock, EVERY_SET, Fences, NEVER, Parked, Parking, Place, Platform, Spinning,
};
use crate::slots::{MAX_SLOTS, Table, Waiters};
use crate::visible_readers::{Row, VisibleReaders};
use std::cell::Cell;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering::*};
use std::sync::{Condvar, LazyLock, Mutex};
use std::time::{Duration, Instant};

/// Threads of the standard library.
#[derive(Clone, Copy, Debug)]
pub struct Threads;

static TABLE: Table<Threads, MAX_SLOTS, { MAX_SLOTS.div_ceil(32) }> = Table::new();
static WAITERS: Waiters<Threads> = TABLE.waiters();
static ROWS: [Row<Threads>; 256] = [const { Row::new() }; 256];
static ROWS_IN_USE: AtomicU32 = AtomicU32::new(0);
static ANNOUNCED: VisibleReaders<Threads> = VisibleReaders::new(&ROWS, &ROWS_IN_USE);

/// Who sleeps: in this process, and in the child of a fork, where another thread of the parent may
/// have held the first table's mutex.
static SLEEPERS: [Sleepers; 2] = [const { Sleepers::NONE }; 2];

static FORKS: AtomicU8 = AtomicU8::new(0);

struct Sleepers {
    asleep: Mutex<Vec<Sleeper>>,
    changed: Condvar,
}

struct Sleeper {
    key: usize,
    me: u64,
    sets: u32,
}

impl Sleepers {
    const NONE: Self = Sleepers {
        asleep: Mutex::new(Vec::new()),
        changed: Condvar::new(),
    };

    fn here() -> &'static Self {
        &SLEEPERS[usize::from(Threads::forked())]
    }

    fn wake(&self, asleep: &mut Vec<Sleeper>, key: *const u32, n: u32, sets: u32) -> u32 {
        let mut woken = 0;
        asleep.retain(|s| {
            let leave = s.key == key.addr() && s.sets & sets != 0 && woken < n;
            woken += u32::from(leave);
            !leave
        });
        self.changed.notify_all();
        woken
    }
}

/// Counts forks in the child.
#[cfg(not(miri))]
extern "C" fn register() {
    extern "C" fn in_child() {
        FORKS.fetch_add(1, Relaxed);
    }
    // SAFETY: invariant 1.
    unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
}

#[cfg(not(miri))]
#[used]
#[unsafe(link_section = ".init_array")]
static REGISTER: extern "C" fn() = register;

/// The slot that a thread keeps until it ends.
struct Kept(Cell<u16>);

impl Drop for Kept {
    fn drop(&mut self) {
        let slot = self.0.get();
        if slot != 0 {
            // SAFETY: invariant 2.
            unsafe { WAITERS.release(slot) };
        }
    }
}

thread_local! {
    static KEPT: Kept = const { Kept(Cell::new(0)) };
    static ROW: usize = ANNOUNCED.assign();
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
        static NUMBERS: AtomicU64 = AtomicU64::new(0);

        let table = Sleepers::here();
        let mut asleep = table.asleep.lock().unwrap();
        if current() != expected {
            return Parked::Differed;
        }
        let me = NUMBERS.fetch_add(1, Relaxed);
        let key = key.addr();
        asleep.push(Sleeper { key, me, sets });
        let left = match until {
            NEVER => Duration::from_secs(1 << 32),
            until => Duration::from_nanos(until.saturating_sub(now())),
        };
        let is_asleep = |asleep: &mut Vec<Sleeper>| asleep.iter().any(|s| s.me == me);
        let waited = table.changed.wait_timeout_while(asleep, left, is_asleep);
        let (mut asleep, _) = waited.unwrap();
        let before = asleep.len();
        asleep.retain(|s| s.me != me);
        if asleep.len() == before {
            Parked::Woken
        } else {
            Parked::Unwoken
        }
    }

    fn unpark_in(key: *const u32, n: u32, sets: u32) -> u32 {
        let table = Sleepers::here();
        table.wake(&mut table.asleep.lock().unwrap(), key, n, sets)
    }

    fn unpark_some(key: *const u32, n: u32) -> u32 {
        let table = Sleepers::here();
        let mut asleep = table.asleep.lock().unwrap();
        let woken = table.wake(&mut asleep, key, n, EVERY_SET);
        woken + u32::from(asleep.iter().any(|s| s.key == key.addr()))
    }

    fn requeue_but(
        woken: u32,
        from: *const u32,
        expected: u32,
        to: *const u32,
        current: impl Fn() -> u32,
    ) -> u32 {
        let table = Sleepers::here();
        let mut asleep = table.asleep.lock().unwrap();
        if current() != expected {
            return table.wake(&mut asleep, from, u32::MAX, EVERY_SET);
        }
        let mut reached = table.wake(&mut asleep, from, woken, EVERY_SET);
        for sleeper in asleep.iter_mut().filter(|s| s.key == from.addr()) {
            sleeper.key = to.addr();
            reached += 1;
        }
        reached
    }
}

impl Fences for Threads {}

std::thread_local! {
    static SLICES: Cell<Slices> = const { Cell::new(Slices { extended: 0, ended: 0 }) };
}

/// How often this thread has asked for more time, and has ended that.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slices {
    pub extended: u32,
    pub ended: u32,
}

impl Slices {
    /// Of the calling thread, while it does this.
    pub fn during(action: impl FnOnce()) -> Self {
        SLICES.set(Slices {
            extended: 0,
            ended: 0,
        });
        action();
        SLICES.get()
    }
}

impl Place for Threads {
    fn forks() -> u8 {
        FORKS.load(Relaxed)
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
