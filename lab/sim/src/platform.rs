//! The simulated machine as an algorithm sees it: [`Sim`], a [`Platform`] on which every access
//! takes time.
//!
//! # Invariants
//!
//! 1. References that [`place`] and [`place_slice`] return point into the arena of the run under
//!    way. They are used only as long as the run's `World` exists (invariant 2 of `world`).
//! 2. A simulated thread's `slot` is the one that it has claimed and keeps. The field is cleared
//!    before the slot is released.

mod atomic;
#[cfg(test)]
mod tests;

pub use atomic::{SimU8, SimU16, SimU32, SimU64};

use crate::trace::Part;
use crate::world::{self, FencesDisturbed, How, Noted, Setup, Stuck, World, with};
use kinlock_core::events::Event;
use kinlock_core::platform::{
    Atomic, Atomics, Clock, Fences, NEVER, Ordering, Parked, Parking, Place, Platform, Spinning,
    Ticket,
};
use kinlock_core::raw::waiter::{Slot, Waiters};
use kinlock_core::visible_readers::{Row, VisibleReaders};
use kinlock_linux::topology::DomainKind;
use std::rc::Rc;

/// The simulated machine. Only the threads of a simulation may call its functions.
#[derive(Clone, Copy, Debug)]
pub struct Sim;

/// Places `value` in the memory of the simulation under way, on cache lines of its own, until the
/// simulation ends.
///
/// # Panics
///
/// Outside of a simulation, if its memory is full, or if `T` needs to be dropped.
pub fn place<T>(value: T) -> &'static T {
    let at = world::with(|w| {
        let at = w.arena.place(value);
        w.placed(at.addr(), size_of::<T>(), None);
        at
    });
    // SAFETY: `Arena::place` wrote the value, and invariant 1.
    unsafe { &*at }
}

/// As [`place`], `n` values side by side, the first at the start of a cache line.
pub fn place_slice<T>(n: usize, value: impl FnMut(usize) -> T) -> &'static [T] {
    let at = world::with(|w| {
        let at = w.arena.place_slice(n, value);
        w.placed(at.addr(), size_of::<T>(), Some(n));
        at
    });
    // SAFETY: `Arena::place_slice` wrote the values, and invariant 1.
    unsafe { &*at }
}

/// The calling thread of a simulation computes for `nanos` nanoseconds, longer while its sibling
/// hardware thread is busy.
pub fn compute(nanos: f64) {
    world::compute(with(|w| w.costs().cycles(nanos)));
}

/// As [`world::run`], with a table of `slots` waiter slots. A thread that ends gives back the slot
/// it kept.
pub(crate) fn run<S: Clone + 'static, R>(
    setup: &Setup,
    slots: usize,
    prepare: impl FnOnce() -> S,
    body: impl Fn(&S, usize) + Copy + 'static,
    check: impl FnOnce(&S, &Result<(), Stuck>) -> R,
) -> (Box<World>, Result<(), Stuck>, R) {
    let prepare = || {
        make_waiters(slots);
        prepare()
    };
    let body = move |shared: &S, thread| {
        body(shared, thread);
        // The field is cleared before the slot is released, since an interrupt's handler may run in
        // between and wait. That handler may keep another slot, hence the loop.
        loop {
            match with(|w| std::mem::take(&mut w.current().slot)) {
                0 => break,
                // SAFETY: invariant 2.
                slot => unsafe { Sim::waiters().release(slot) },
            }
        }
    };
    world::run(setup, prepare, body, check)
}

fn make_waiters(slots: usize) {
    with(|w| w.place_part(Part::Node));
    let slots_placed = place_slice(slots, |_| Slot::<Sim>::new());
    with(|w| w.place_part(Part::Other));
    let table = Waiters::new(
        slots_placed,
        place_slice(slots.div_ceil(32), |_| SimU32::new(0)),
        place(SimU32::new(0)),
    );
    let table: &'static Waiters<Sim> = place(table);
    with(|w| w.waiters = Some(table));
}

/// Rows of the visible readers table. If there are more threads, they share rows.
const ROWS: usize = 256;

/// Makes the visible readers table when it is first needed: most simulations do not need it.
fn make_visible_readers() -> &'static VisibleReaders<Sim> {
    let table = VisibleReaders::new(
        place_slice(ROWS, |_| Row::<Sim>::default()),
        place(SimU32::new(0)),
    );
    let table: &'static VisibleReaders<Sim> = place(table);
    with(|w| w.announced = Some(table));
    table
}

impl Atomics for Sim {
    type AtomicU8 = SimU8;
    type AtomicU16 = SimU16;
    type AtomicU32 = SimU32;
    type AtomicU64 = SimU64;
}

impl Clock for Sim {
    fn now() -> u64 {
        match with(|w| w.costs().clock) {
            0 => {}
            cycles => world::compute(cycles),
        }
        with(|w| w.costs().nanos(w.now()) as u64)
    }

    fn random() -> u32 {
        with(|w| w.random() as u32)
    }
}

impl Spinning for Sim {
    type Clock = Self;

    fn wait<A: Atomic>(word: &A, order: Ordering, done: impl FnMut(A::Value) -> bool) -> A::Value {
        match <Self as Spinning>::wait_for(word, order, NEVER, done) {
            Ok(value) | Err(value) => value,
        }
    }

    fn wait_for<A: Atomic>(
        word: &A,
        order: Ordering,
        nanos: u64,
        mut done: impl FnMut(A::Value) -> bool,
    ) -> Result<A::Value, A::Value> {
        let mut value = word.load(order);
        if done(value) {
            return Ok(value);
        }
        let until = if nanos == NEVER {
            NEVER
        } else {
            with(|w| w.now().saturating_add(w.costs().cycles(nanos as f64)))
        };
        while with(|w| w.now()) < until {
            // Other threads run before an access, never after it: the word has not changed since it
            // was loaded.
            world::spin((&raw const *word).addr(), until);
            value = word.load(order);
            if done(value) {
                world::leave_spin();
                return Ok(value);
            }
        }
        Err(word.load(order))
    }

    fn prefetch_for_writing<A: Atomic>(word: &A) {
        world::access((&raw const *word).addr(), How::Prefetch);
    }

    fn relax() {
        world::compute(with(|w| w.costs().pause));
    }

    fn oversubscribed() -> bool {
        if let Some(answer) = with(World::oversubscribed_by_chance) {
            return answer;
        }
        Self::waiters().in_use() as usize > with(|w| w.usable_cpus)
    }

    fn back_off(nanos: u64) {
        compute(nanos as f64);
    }
}

impl Parking for Sim {
    const CAN_PARK: bool = true;

    fn patience() -> u64 {
        with(|w| w.setup.patience)
    }

    fn park_in(
        key: *const u32,
        expected: u32,
        until: u64,
        sets: u32,
        current: impl Fn() -> u32,
    ) -> Parked {
        let until = if until == NEVER {
            NEVER
        } else {
            with(|w| w.costs().cycles(until as f64))
        };
        world::park(key.addr(), until, sets, || current() == expected)
    }

    fn unpark_in(key: *const u32, n: u32, sets: u32) -> u32 {
        world::unpark(key.addr(), n as usize, sets) as u32
    }

    fn unpark_some(key: *const u32, n: u32) -> u32 {
        world::unpark_some(key.addr(), n as usize) as u32
    }

    fn requeue_but(
        woken: u32,
        from: *const u32,
        expected: u32,
        to: *const u32,
        current: impl Fn() -> u32,
    ) -> u32 {
        let still = || current() == expected;
        world::requeue_but(woken as usize, from.addr(), to.addr(), still) as u32
    }
}

impl Fences for Sim {
    fn light_fence() {}

    fn heavy_fence(ticket: &mut Ticket) -> bool {
        let call = || {
            // The fence is at the beginning of the call: values written during the call may be
            // missed.
            with(World::fence_all);
            world::compute(with(|w| w.costs().membarrier));
            true
        };
        match with(|w| w.fences_disturbed()) {
            FencesDisturbed::Granted => call(),
            FencesDisturbed::Limited => {
                let fences = with(|w| Rc::clone(&w.fences));
                fences.cover(ticket, <Self as Clock>::now, call)
            }
            FencesDisturbed::Refused => false,
        }
    }
}

impl Place for Sim {
    fn domain() -> u16 {
        with(|w| {
            let here = w.here();
            match w.setup.domain {
                DomainKind::LastLevelCache => here.cache as u16,
                _ => here.socket as u16,
            }
        })
    }

    fn is_priority() -> bool {
        with(|w| w.disturbed(|d| d.priority))
    }
}

impl Platform for Sim {
    type Clock = Self;
    type Spinning = Self;
    type Parking = Self;
    type Fences = Self;
    type Place = Self;

    fn waiters() -> &'static Waiters<Self> {
        let table = with(|w| w.waiters).expect("a run makes the table first");
        table.downcast_ref().expect("`run` made it")
    }

    fn visible_readers() -> Option<&'static VisibleReaders<Self>> {
        match with(|w| w.announced) {
            Some(table) => table.downcast_ref(),
            None => Some(make_visible_readers()),
        }
    }

    fn row() -> Option<&'static Row<Self>> {
        let table = Self::visible_readers()?;
        let number = match with(|w| w.current().row) {
            Some(number) => number,
            None => {
                let number = table.assign();
                with(|w| w.current().row = Some(number));
                number
            }
        };
        Some(table.row(number))
    }

    fn kept_slot() -> u16 {
        with(|w| w.current().slot)
    }

    unsafe fn keep_slot(slot: u16) -> bool {
        with(|w| {
            // An interrupt's handler may have kept one already.
            let kept = w.current().slot == 0 && !w.disturbed(|d| d.forgetful);
            if kept {
                w.current().slot = slot;
            }
            kept
        })
    }

    fn count(event: Event) {
        with(|w| {
            w.counted[event as usize] += 1;
            w.current().in_line |= matches!(event, Event::Queued | Event::Pending);
            w.note(Noted::Counted(event));
        });
    }
}
