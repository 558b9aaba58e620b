//! The real machine, but with as many locality domains as a test wants, however few CPUs there are.
//!
//! The platform is [`Native`], except for the domain, the tables of waiters and of readers, and two
//! things that a thread can ask for. First, it can be held up inside algorithms: where they call
//! the kernel, spin, count an event or look at the table of readers, because there they rely on
//! what they have just read. Second, it can be told whether the machine is oversubscribed.
//!
//! # Invariant cited by `SAFETY` comments
//!
//! 1. A thread's [`KeptSlot`] names a slot that the thread has claimed, and is dropped when that
//!    ends.

use crate::injector::Injector;
use kinlock_core::events::Event;
use kinlock_core::platform::{
    Atomic, Atomics, Fences, Ordering, Parked, Parking, Place, Platform, Spinning, Ticket,
};
use kinlock_core::raw::waiter::{Slot, Waiters};
use kinlock_core::visible_readers::{Row, VisibleReaders};
use kinlock_linux::Native;
use std::cell::Cell;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64};

/// How many threads can wait at a time. Further threads take the path for threads without a slot.
const SLOTS: usize = 1024;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Pretend;

thread_local! {
    static DOMAIN: Cell<u16> = const { Cell::new(0) };
    static OVERSUBSCRIBED: Cell<Option<bool>> = const { Cell::new(None) };
    static INJECTOR: Cell<Option<Injector>> = const { Cell::new(None) };
    static ROW: Cell<Option<&'static Row<Pretend>>> = const { Cell::new(None) };
    static SLOT: KeptSlot = const { KeptSlot(Cell::new(0)) };
}

/// From now on the platform says that the calling thread runs in `domain`.
pub(crate) fn set_domain(domain: u16) {
    DOMAIN.set(domain);
}

/// From now on the platform tells the calling thread that the machine is oversubscribed, or that it
/// is not.
pub(crate) fn set_oversubscribed(oversubscribed: bool) {
    OVERSUBSCRIBED.set(Some(oversubscribed));
}

/// From now on `injector` holds the calling thread up inside algorithms.
pub(crate) fn hold_up(injector: Injector) {
    INJECTOR.set(Some(injector));
}

/// A point inside an algorithm. A signal handler that interrupts the injector is not held up.
fn point() {
    if let Some(mut injector) = INJECTOR.take() {
        injector.point();
        INJECTOR.set(Some(injector));
    }
}

/// A thread's slot, which is given back when the thread ends.
struct KeptSlot(Cell<u16>);

impl Drop for KeptSlot {
    fn drop(&mut self) {
        if self.0.get() != 0 {
            // SAFETY: invariant 1.
            unsafe { WAITERS.release(self.0.get()) };
        }
    }
}

static TABLE: [Slot<Pretend>; SLOTS] = [const { Slot::new() }; SLOTS];
static CLAIMED: [AtomicU32; SLOTS / 32] = [const { AtomicU32::new(0) }; SLOTS / 32];
static IN_USE: AtomicU32 = AtomicU32::new(0);
static WAITERS: Waiters<Pretend> = Waiters::new(&TABLE, &CLAIMED, &IN_USE);

static ROWS: [Row<Pretend>; 256] = [const { Row::new() }; 256];
static ROWS_IN_USE: AtomicU32 = AtomicU32::new(256);
static ANNOUNCED: VisibleReaders<Pretend> = VisibleReaders::new(&ROWS, &ROWS_IN_USE);

impl Atomics for Pretend {
    type AtomicU8 = AtomicU8;
    type AtomicU16 = AtomicU16;
    type AtomicU32 = AtomicU32;
    type AtomicU64 = AtomicU64;
}

/// Functions that call [`Native`]: plainly, with a point before the call, or with a point before
/// and one after it.
macro_rules! native {
    ($(
        $points:ident $part:ident::$name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)?;
    )*) => {$(
        fn $name($($argument: $type),*) $(-> $result)? {
            native!(@$points <Native as $part>::$name($($argument),*))
        }
    )*};
    (@plain $call:expr) => { $call };
    (@before $call:expr) => {{
        point();
        $call
    }};
    (@around $call:expr) => {{
        point();
        let result = $call;
        point();
        result
    }};
}

impl Spinning for Pretend {
    type Clock = Native;

    fn wait_yielding<A: Atomic>(
        word: &A,
        order: Ordering,
        nanos: u64,
        done: impl FnMut(A::Value) -> bool,
    ) -> Result<A::Value, A::Value> {
        point();
        <Native as Spinning>::wait_yielding(word, order, nanos, done)
    }

    fn wait_for<A: Atomic>(
        word: &A,
        order: Ordering,
        nanos: u64,
        done: impl FnMut(A::Value) -> bool,
    ) -> Result<A::Value, A::Value> {
        <Native as Spinning>::wait_for(word, order, nanos, done)
    }

    fn oversubscribed() -> bool {
        point();
        let asked = OVERSUBSCRIBED.get();
        asked.unwrap_or_else(<Native as Spinning>::oversubscribed)
    }

    native! {
        plain Spinning::yield_now();
        before Spinning::relax();
        before Spinning::back_off(nanos: u64);
    }
}

impl Parking for Pretend {
    const CAN_PARK: bool = true;

    fn park_in(
        key: *const u32,
        expected: u32,
        until: u64,
        sets: u32,
        current: impl Fn() -> u32,
    ) -> Parked {
        point();
        let parked = <Native as Parking>::park_in(key, expected, until, sets, current);
        point();
        parked
    }

    fn requeue_but(
        woken: u32,
        from: *const u32,
        expected: u32,
        to: *const u32,
        current: impl Fn() -> u32,
    ) -> u32 {
        point();
        <Native as Parking>::requeue_but(woken, from, expected, to, current)
    }

    native! {
        around Parking::unpark_in(key: *const u32, n: u32, sets: u32) -> u32;
        around Parking::unpark_some(key: *const u32, n: u32) -> u32;
    }
}

impl Fences for Pretend {
    native! {
        plain Fences::light_fence();
        before Fences::heavy_fence(ticket: &mut Ticket) -> bool;
    }
}

impl Place for Pretend {
    fn domain() -> u16 {
        DOMAIN.get()
    }

    native! {
        plain Place::forks() -> u8;
        plain Place::is_priority() -> bool;
        plain Place::extend_slice();
        plain Place::end_slice();
    }
}

impl Platform for Pretend {
    type Clock = Native;
    type Spinning = Self;
    type Parking = Self;
    type Fences = Self;
    type Place = Self;

    fn waiters() -> &'static Waiters<Self> {
        &WAITERS
    }

    fn kept_slot() -> u16 {
        SLOT.try_with(|slot| slot.0.get()).unwrap_or(0)
    }

    unsafe fn keep_slot(slot: u16) -> bool {
        SLOT.try_with(|kept| kept.0.set(slot)).is_ok()
    }

    fn visible_readers() -> Option<&'static VisibleReaders<Self>> {
        point();
        Some(&ANNOUNCED)
    }

    fn row() -> Option<&'static Row<Self>> {
        if ROW.get().is_none() {
            ROW.set(Some(ANNOUNCED.row(ANNOUNCED.assign())));
        }
        ROW.get()
    }

    fn count(event: Event) {
        point();
        Native::count(event);
    }
}
