//! The loom model checker as a platform (`RUSTFLAGS="--cfg loom"`).
//!
//! * A thread's clock starts at 0 and advances whenever a wait of the thread ends by itself: by
//!   [`LATE`], or by the step that the thread [chose](set_step).
//! * Waiters give up spinning at once, so that parking is explored wherever it can happen.
//! * A thread belongs to the locality domain that it [chose](set_domain).
//! * The machine counts as oversubscribed unless the thread
//!   [chose otherwise](set_oversubscribed).
//! * A reader announces itself in the row that the thread [chose](set_row).
//! * Each slow path claims a slot, so that claiming and recycling are explored, too.
//!
//! # Invariant cited by `SAFETY` comments
//!
//! 1. The tables' boxes are never replaced, and live until the end of the execution that made them:
//!    loom drops its statics after all threads of the execution have ended.

extern crate std;

use crate::events::Event;
use crate::platform::{
    Atomic, Atomics, Clock, EVERY_SET, Fences, NEVER, Ordering, Parked, Parking, Place, Platform,
    Spinning, Ticket,
};
use crate::slots::{Slot, Waiters};
use crate::visible_readers::{Row, VisibleReaders};
use loom::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, fence};
use loom::sync::{Arc, Condvar, Mutex};
use std::boxed::Box;
use std::cell::Cell;
use std::vec::Vec;

/// The model checker.
#[derive(Clone, Copy, Debug)]
pub struct Loom;

/// How far a wait that ends by itself advances the clock: beyond every time limit.
pub const LATE: u64 = 1 << 40;

fn wait_in_vain() {
    NOW.with(|n| n.set(n.get() + STEP.with(Cell::get)));
}

/// One slot for each thread of the largest model.
const SLOTS: usize = 4;

loom::thread_local! {
    static DOMAIN: Cell<u16> = Cell::new(0);
    static NOW: Cell<u64> = Cell::new(0);
    static STEP: Cell<u64> = Cell::new(LATE);
    static OVERSUBSCRIBED: Cell<bool> = Cell::new(true);
    static ROW: Cell<usize> = Cell::new(0);
    static PATIENCE: Cell<u64> = Cell::new(NEVER);
}

loom::lazy_static! {
    static ref TABLE: Table = Table::new();
    static ref READERS: Readers = Readers::new();
    static ref SLEEPERS: Mutex<Sleepers> = Mutex::new(Sleepers { next: 0, asleep: Vec::new() });
}

/// Sets the [patience](Parking::patience) of the calling model thread.
pub fn set_patience(nanos: u64) {
    PATIENCE.with(|p| p.set(nanos));
}

/// Puts the calling model thread into a locality domain.
pub fn set_domain(domain: u16) {
    DOMAIN.with(|d| d.set(domain));
}

/// Sets whether the machine counts as oversubscribed for the calling model thread.
pub fn set_oversubscribed(oversubscribed: bool) {
    OVERSUBSCRIBED.with(|c| c.set(oversubscribed));
}

/// Chooses the row of the calling model thread; see [`Platform::row`].
pub fn set_row(row: usize) {
    ROW.with(|r| r.set(row));
}

/// Sets how far a wait that ends by itself advances the clock of the calling model thread, in
/// nanoseconds.
pub fn set_step(nanos: u64) {
    STEP.with(|s| s.set(nanos));
}

struct Table {
    waiters: Waiters<Loom>,
    _slots: Box<[Slot<Loom>]>,
    _claimed: Box<[AtomicU32]>,
    _in_use: Box<AtomicU32>,
}

impl Table {
    fn new() -> Self {
        let slots: Box<[Slot<Loom>]> = (0..SLOTS).map(|_| Slot::new()).collect();
        let claimed: Box<[AtomicU32]> = Box::new([Atomic::new(0)]);
        let in_use = Box::new(AtomicU32::new(0));
        let (s, c, n): (*const [Slot<Loom>], *const [AtomicU32], *const AtomicU32) =
            (&*slots, &*claimed, &*in_use);
        // SAFETY: invariant 1.
        let waiters = unsafe { Waiters::new(&*s, &*c, &*n) };
        Table {
            waiters,
            _slots: slots,
            _claimed: claimed,
            _in_use: in_use,
        }
    }
}

struct Readers {
    announced: VisibleReaders<Loom>,
    _rows: Box<[Row<Loom>]>,
    _in_use: Box<AtomicU32>,
}

/// How many rows there are.
const ROWS: usize = 2;

impl Readers {
    fn new() -> Self {
        let rows: Box<[Row<Loom>]> = (0..ROWS).map(|_| Row::default()).collect();
        let in_use = Box::new(AtomicU32::new(ROWS as u32));
        let (r, n): (*const [Row<Loom>], *const AtomicU32) = (&*rows, &*in_use);
        // SAFETY: invariant 1.
        let announced = unsafe { VisibleReaders::new(&*r, &*n) };
        Readers {
            announced,
            _rows: rows,
            _in_use: in_use,
        }
    }
}

/// The sleepers and their keys: what a kernel keeps in its futex hash table.
struct Sleepers {
    next: usize,
    asleep: Vec<Sleeper>,
}

struct Sleeper {
    key: usize,
    me: usize,
    sets: u32,
    wake: Arc<Condvar>,
}

impl Sleepers {
    fn wake(&mut self, key: usize, n: u32, sets: u32) -> u32 {
        let mut woken = 0;
        self.asleep.retain(|s| {
            let leave = s.key == key && s.sets & sets != 0 && woken < n;
            if leave {
                woken += 1;
                s.wake.notify_one();
            }
            !leave
        });
        woken
    }
}

impl Atomics for Loom {
    type AtomicU8 = AtomicU8;
    type AtomicU16 = AtomicU16;
    type AtomicU32 = AtomicU32;
    type AtomicU64 = AtomicU64;
}

impl Clock for Loom {
    fn now() -> u64 {
        NOW.with(|n| n.get())
    }

    fn random() -> u32 {
        0
    }
}

impl Spinning for Loom {
    type Clock = Self;

    fn wait<A: Atomic>(
        word: &A,
        order: Ordering,
        mut done: impl FnMut(A::Value) -> bool,
    ) -> A::Value {
        loop {
            let value = word.load(order);
            if done(value) {
                return value;
            }
            loom::thread::yield_now();
        }
    }

    fn wait_for<A: Atomic>(
        word: &A,
        order: Ordering,
        nanos: u64,
        mut done: impl FnMut(A::Value) -> bool,
    ) -> Result<A::Value, A::Value> {
        if nanos == NEVER {
            return Ok(<Self as Spinning>::wait(word, order, done));
        }
        let value = word.load(order);
        if done(value) {
            return Ok(value);
        }
        wait_in_vain();
        Err(value)
    }

    fn relax() {
        loom::thread::yield_now();
    }

    fn oversubscribed() -> bool {
        OVERSUBSCRIBED.with(|c| c.get())
    }

    fn back_off(_: u64) {
        wait_in_vain();
        loom::thread::yield_now();
    }
}

impl Parking for Loom {
    const CAN_PARK: bool = true;

    /// Endless, unless the model [sets it](set_patience): in a model every time limit passes, so
    /// with a patience no thread would depend on being woken in the queue.
    fn patience() -> u64 {
        PATIENCE.with(Cell::get)
    }

    fn park_in(
        key: *const u32,
        expected: u32,
        until: u64,
        sets: u32,
        current: impl Fn() -> u32,
    ) -> Parked {
        let mut sleepers = SLEEPERS.lock().unwrap();
        if current() != expected {
            return Parked::Differed;
        }
        let me = sleepers.next;
        sleepers.next += 1;
        let wake = Arc::new(Condvar::new());
        sleepers.asleep.push(Sleeper {
            key: key as usize,
            me,
            sets,
            wake: wake.clone(),
        });
        if until != NEVER {
            // The time limit always passes. Another thread may run before that, and wake this one.
            drop(sleepers);
            wait_in_vain();
            loom::thread::yield_now();
            sleepers = SLEEPERS.lock().unwrap();
            let woken = sleepers.asleep.iter().all(|s| s.me != me);
            sleepers.asleep.retain(|s| s.me != me);
            return if woken {
                Parked::Woken
            } else {
                Parked::Unwoken
            };
        }
        while sleepers.asleep.iter().any(|s| s.me == me) {
            sleepers = wake.wait(sleepers).unwrap();
        }
        Parked::Woken
    }

    fn unpark_in(key: *const u32, n: u32, sets: u32) -> u32 {
        SLEEPERS.lock().unwrap().wake(key as usize, n, sets)
    }

    fn unpark_some(key: *const u32, n: u32) -> u32 {
        let mut sleepers = SLEEPERS.lock().unwrap();
        let woken = sleepers.wake(key as usize, n, EVERY_SET);
        woken + u32::from(sleepers.asleep.iter().any(|s| s.key == key as usize))
    }

    fn requeue_but(
        woken: u32,
        from: *const u32,
        expected: u32,
        to: *const u32,
        current: impl Fn() -> u32,
    ) -> u32 {
        let mut sleepers = SLEEPERS.lock().unwrap();
        if current() != expected {
            return sleepers.wake(from as usize, u32::MAX, EVERY_SET);
        }
        let mut reached = sleepers.wake(from as usize, woken, EVERY_SET);
        for sleeper in sleepers.asleep.iter_mut() {
            if sleeper.key == from as usize {
                sleeper.key = to as usize;
                reached += 1;
            }
        }
        reached
    }
}

impl Fences for Loom {
    fn light_fence() {
        fence(Ordering::SeqCst);
    }

    fn heavy_fence(_: &mut Ticket) -> bool {
        fence(Ordering::SeqCst);
        true
    }
}

impl Place for Loom {
    fn domain() -> u16 {
        DOMAIN.with(|d| d.get())
    }

    fn is_priority() -> bool {
        false
    }
}

impl Platform for Loom {
    type Clock = Self;
    type Spinning = Self;
    type Parking = Self;
    type Fences = Self;
    type Place = Self;

    fn waiters() -> &'static Waiters<Self> {
        &TABLE.waiters
    }

    fn kept_slot() -> u16 {
        0
    }

    unsafe fn keep_slot(_: u16) -> bool {
        false
    }

    fn visible_readers() -> Option<&'static VisibleReaders<Self>> {
        Some(&READERS.announced)
    }

    fn row() -> Option<&'static Row<Self>> {
        Some(READERS.announced.row(ROW.with(|r| r.get())))
    }

    fn count(_: Event) {}
}

macro_rules! model_atomic {
    ($($atomic:ty: $value:ty),*) => {$(
        impl Atomic for $atomic {
            type Value = $value;

            fn new(value: $value) -> Self {
                <$atomic>::new(value)
            }
            fn load(&self, order: Ordering) -> $value {
                self.load(order)
            }
            fn store(&self, value: $value, order: Ordering) {
                self.store(value, order)
            }
            fn overwrite(&self, value: $value, order: Ordering) {
                // loom allows a store between the two halves of another thread's read-modify-write.
                self.swap(value, order);
            }
            fn swap(&self, value: $value, order: Ordering) -> $value {
                self.swap(value, order)
            }
            fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                self.compare_exchange(current, new, success, failure)
            }
            fn fetch_add(&self, value: $value, order: Ordering) -> $value {
                self.fetch_add(value, order)
            }
            fn fetch_or(&self, value: $value, order: Ordering) -> $value {
                self.fetch_or(value, order)
            }
            fn fetch_and(&self, value: $value, order: Ordering) -> $value {
                self.fetch_and(value, order)
            }
        }
    )*};
}

model_atomic!(AtomicU8: u8, AtomicU16: u16, AtomicU32: u32, AtomicU64: u64);
