//! The simulated machine as an algorithm sees it: [`Sim`], a [`Platform`] whose every access takes simulated time.

use crate::world::{self, How, Noted, World, with};
use kinlock_core::events::Event;
use kinlock_core::platform::{Atomic, Atomics, NEVER, Ordering, Parked, Platform};
use kinlock_core::raw::waiter::{Slot, Waiters};
use kinlock_core::topology::DomainKind;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering::Relaxed};

/// The simulated machine. All its functions may be called from the threads of a simulation only.
#[derive(Clone, Copy, Debug)]
pub struct Sim;

macro_rules! simulated_atomic {
    ($(#[$doc:meta])* $name:ident, $hardware:ty, $value:ty) => {
        $(#[$doc])*
        ///
        /// Of the size and alignment of the hardware's. All orderings are sequentially consistent.
        #[derive(Debug)]
        #[repr(transparent)]
        pub struct $name($hardware);

        impl $name {
            #[inline(always)]
            fn locked(&self, change: impl FnOnce($value) -> Option<$value>) -> $value {
                world::access(self.0.as_ptr().addr(), How::Locked);
                // All threads of a simulation share one host thread: nobody comes between.
                let old = self.0.load(Relaxed);
                if let Some(new) = change(old) {
                    self.0.store(new, Relaxed);
                }
                old
            }
        }

        impl Atomic for $name {
            type Value = $value;

            fn new(value: $value) -> Self {
                Self(<$hardware>::new(value))
            }
            #[inline(always)]
            fn load(&self, _: Ordering) -> $value {
                world::access(self.0.as_ptr().addr(), How::Load);
                self.0.load(Relaxed)
            }
            #[inline(always)]
            fn glance(&self, _: Ordering) -> $value {
                world::access(self.0.as_ptr().addr(), How::Glance);
                self.0.load(Relaxed)
            }
            #[inline(always)]
            fn store(&self, value: $value, _: Ordering) {
                world::access(self.0.as_ptr().addr(), How::Store);
                self.0.store(value, Relaxed);
            }
            #[inline(always)]
            fn swap(&self, value: $value, _: Ordering) -> $value {
                self.locked(|_| Some(value))
            }
            #[inline(always)]
            fn compare_exchange(&self, current: $value, new: $value, _: Ordering, _: Ordering) -> Result<$value, $value> {
                let old = self.locked(|old| (old == current).then_some(new));
                if old == current { Ok(old) } else { Err(old) }
            }
            #[inline(always)]
            fn fetch_add(&self, value: $value, _: Ordering) -> $value {
                self.locked(|old| Some(old.wrapping_add(value)))
            }
            #[inline(always)]
            fn fetch_or(&self, value: $value, _: Ordering) -> $value {
                self.locked(|old| Some(old | value))
            }
            #[inline(always)]
            fn fetch_and(&self, value: $value, _: Ordering) -> $value {
                self.locked(|old| Some(old & value))
            }
        }
    };
}

simulated_atomic!(
    /// One simulated byte.
    SimU8, AtomicU8, u8
);
simulated_atomic!(
    /// Two simulated bytes.
    SimU16, AtomicU16, u16
);
simulated_atomic!(
    /// Four simulated bytes.
    SimU32, AtomicU32, u32
);
simulated_atomic!(
    /// Eight simulated bytes.
    SimU64, AtomicU64, u64
);

impl SimU64 {
    /// Adds one to plain data that nobody else writes meanwhile.
    ///
    /// The processor does not wait for the line: the addition is retired when it arrives, and later stores (the unlock,
    /// say) become visible after it.
    pub fn increment(&self) {
        world::access(self.0.as_ptr().addr(), How::Store);
        self.0.store(self.0.load(Relaxed) + 1, Relaxed);
    }
}

impl Atomics for Sim {
    type AtomicU8 = SimU8;
    type AtomicU16 = SimU16;
    type AtomicU32 = SimU32;
    type AtomicU64 = SimU64;
}

impl Platform for Sim {
    const CAN_PARK: bool = true;

    fn wait<A: Atomic>(word: &A, order: Ordering, done: impl FnMut(A::Value) -> bool) -> A::Value {
        match Self::wait_for(word, order, NEVER, done) {
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
            with(|w| w.now() + w.costs().cycles(nanos as f64))
        };
        // Nobody has written since the load: other threads run before an access, never after it.
        let content = world::spin_on((&raw const *word).addr(), until, || {
            value = word.load(order);
            done(value)
        });
        if !content {
            return Err(word.load(order));
        }
        world::compute(with(|w| w.costs().spin_exit));
        Ok(value)
    }

    fn relax() {
        world::compute(with(|w| w.costs().pause));
    }

    fn crowded() -> bool {
        if let Some(crowded) = with(World::crowded_by_chance) {
            return crowded;
        }
        Self::waiters().in_use() as usize > with(|w| w.machine().shape.cpus())
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

    fn unpark_some(key: *const u32, n: u32) -> bool {
        world::unpark_some(key.addr(), n as usize)
    }

    fn requeue_but(
        woken: u32,
        from: *const u32,
        expected: u32,
        to: *const u32,
        current: impl Fn() -> u32,
    ) {
        world::requeue_but(woken as usize, from.addr(), to.addr(), || {
            current() == expected
        });
    }

    fn back_off(nanos: u64) {
        world::compute(with(|w| w.costs().cycles(nanos as f64)));
    }

    fn light_fence() {}

    fn heavy_fence() -> bool {
        // Values are sequentially consistent anyway: only its price matters.
        world::compute(with(|w| w.costs().membarrier));
        with(|w| w.disturbance.as_ref().is_none_or(|d| d.heavy_fence))
    }

    fn domain() -> u16 {
        with(|w| {
            let (cache, socket) = w.whereabouts();
            match w.domain {
                DomainKind::LastLevelCache => cache as u16,
                _ => socket as u16,
            }
        })
    }

    fn cpu() -> u16 {
        with(|w| w.current_cpu() as u16)
    }

    fn is_priority() -> bool {
        with(|w| w.disturbed(|d| d.priority))
    }

    fn now() -> u64 {
        with(|w| w.costs().nanos(w.now()) as u64)
    }

    fn random() -> u32 {
        with(|w| w.random() as u32)
    }

    fn waiters() -> &'static Waiters<Self> {
        with(|w| w.waiters).expect("a run makes the table first")
    }

    fn kept_slot() -> u16 {
        with(|w| w.current().slot)
    }

    fn keep_slot(slot: u16) -> bool {
        with(|w| {
            // A handler may have been faster.
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

/// Makes a table of so many waiter slots.
pub(crate) fn make_waiters(slots: usize) {
    let table = Waiters::new(
        crate::place_slice(slots, |_| Slot::<Sim>::new()),
        crate::place_slice(slots.div_ceil(32), |_| SimU32::new(0)),
        crate::place(SimU32::new(0)),
    );
    let table = crate::place(table);
    with(|w| w.waiters = Some(table));
}

/// Gives back the slot of a thread that ends.
pub(crate) fn release_slot(slot: u16) {
    Sim::waiters().release(slot);
}
