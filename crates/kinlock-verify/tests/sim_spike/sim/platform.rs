//! The machine as an algorithm sees it: atomics whose every access is a step, and the services of [`Platform`].

use super::{State, step, suspend, with_world};
use kinlock::events::Event;
use kinlock::platform::{Atomic, NEVER, Ordering, Platform};
use kinlock::raw::waiter::{Slot, Waiters};
use std::sync::atomic::Ordering::Relaxed;

/// Virtual CPUs per locality domain.
const CPUS_PER_DOMAIN: usize = 2;
const CACHE_LINE: usize = 64;

/// The simulated machine.
#[derive(Clone, Copy, Debug)]
pub struct Sim;

macro_rules! simulated_atomic {
    ($(#[$doc:meta])* $name:ident, $hardware:ty, $value:ty) => {
        $(#[$doc])*
        #[derive(Debug)]
        #[repr(transparent)]
        pub struct $name($hardware);

        impl $name {
            fn write<R>(&self, write: impl FnOnce(&$hardware) -> R) -> R {
                step();
                with_world(|w| w.wake_line(line_of(self)));
                write(&self.0)
            }
        }

        impl Atomic for $name {
            type Value = $value;
            fn new(value: $value) -> Self {
                Self(<$hardware>::new(value))
            }
            fn load(&self, _: Ordering) -> $value {
                step();
                self.0.load(Relaxed)
            }
            fn store(&self, value: $value, _: Ordering) {
                self.write(|a| a.store(value, Relaxed));
            }
            fn swap(&self, value: $value, _: Ordering) -> $value {
                self.write(|a| a.swap(value, Relaxed))
            }
            fn compare_exchange(&self, current: $value, new: $value, _: Ordering, _: Ordering) -> Result<$value, $value> {
                self.write(|a| a.compare_exchange(current, new, Relaxed, Relaxed))
            }
            fn fetch_add(&self, value: $value, _: Ordering) -> $value {
                self.write(|a| a.fetch_add(value, Relaxed))
            }
            fn fetch_or(&self, value: $value, _: Ordering) -> $value {
                self.write(|a| a.fetch_or(value, Relaxed))
            }
            fn fetch_and(&self, value: $value, _: Ordering) -> $value {
                self.write(|a| a.fetch_and(value, Relaxed))
            }
        }
    };
}

simulated_atomic!(
    /// One simulated byte.
    SimU8, std::sync::atomic::AtomicU8, u8
);
simulated_atomic!(
    /// Two simulated bytes.
    SimU16, std::sync::atomic::AtomicU16, u16
);
simulated_atomic!(
    /// Four simulated bytes.
    SimU32, std::sync::atomic::AtomicU32, u32
);

impl Platform for Sim {
    type AtomicU8 = SimU8;
    type AtomicU16 = SimU16;
    type AtomicU32 = SimU32;

    const CAN_PARK: bool = true;

    fn wait<A: Atomic>(word: &A, order: Ordering, done: impl FnMut(A::Value) -> bool) -> A::Value {
        Self::wait_for(word, order, NEVER, done).unwrap_or_else(|_| unreachable!("NEVER has come"))
    }

    fn wait_for<A: Atomic>(
        word: &A,
        order: Ordering,
        nanos: u64,
        mut done: impl FnMut(A::Value) -> bool,
    ) -> Result<A::Value, A::Value> {
        let until = with_world(|w| w.now.saturating_add(nanos));
        loop {
            // Nobody writes between this load and blocking: a CPU is preempted before an access, never after.
            let value = word.load(order);
            if done(value) {
                return Ok(value);
            }
            if with_world(|w| w.now >= until) {
                return Err(value);
            }
            suspend(State::OnLine(line_of(word), until));
        }
    }

    fn relax() {
        step();
    }

    /// Sometimes none, and always short enough that many waiters park within a run.
    fn crowded() -> bool {
        with_world(|w| w.random.below(2) == 0)
    }

    fn park(key: *const u32, expected: u32, until: u64, current: impl Fn() -> u32) {
        let spurious = with_world(|w| w.random.below(32) == 0);
        if atomically(current) == expected && !spurious {
            with_world(|w| w.report.parks += 1);
            suspend(State::Parked(key.addr(), until));
        }
    }

    fn unpark(key: *const u32, n: u32) {
        step();
        with_world(|w| {
            let parked = w
                .cpus
                .iter_mut()
                .filter(|c| matches!(c.state, State::Parked(k, _) if k == key.addr()));
            parked.take(n as usize).for_each(|c| c.state = State::Ready);
        });
    }

    fn requeue(from: *const u32, expected: u32, to: *const u32, current: impl Fn() -> u32) {
        if atomically(current) != expected {
            return;
        }
        with_world(|w| {
            for cpu in &mut w.cpus {
                if let State::Parked(key, until) = cpu.state {
                    if key == from.addr() {
                        cpu.state = State::Parked(to.addr(), until);
                    }
                }
            }
        });
    }

    fn light_fence() {}

    fn heavy_fence() -> bool {
        true
    }

    fn domain() -> u16 {
        with_world(|w| (w.current / CPUS_PER_DOMAIN) as u16)
    }

    fn is_priority() -> bool {
        false
    }

    fn now() -> u64 {
        step();
        with_world(|w| w.now)
    }

    fn random() -> u32 {
        with_world(|w| w.random.next() as u32)
    }

    fn waiters() -> &'static Waiters<Self> {
        WAITERS.with(|w| *w)
    }

    fn kept_slot() -> u16 {
        with_world(|w| w.cpus[w.current].kept_slot)
    }

    fn keep_slot(slot: u16) -> bool {
        with_world(|w| w.cpus[w.current].kept_slot = slot);
        true
    }

    fn count(_: Event) {}
}

/// Runs `f` with no other CPU in between, but for one at the start.
fn atomically<R>(f: impl FnOnce() -> R) -> R {
    step();
    with_world(|w| w.atomic_section = true);
    let result = f();
    with_world(|w| w.atomic_section = false);
    result
}

thread_local! {
    /// The slots of this host thread's runs: a finished run leaves them all free.
    static WAITERS: &'static Waiters<Sim> = new_waiters();
}

/// Far fewer slots than hardware has: only [`Waiters::new`]'s slices say how many.
fn new_waiters() -> &'static Waiters<Sim> {
    let slots: Vec<Slot<Sim>> = (0..16).map(|_| Slot::new()).collect();
    let claimed = vec![SimU32::new(0)];
    let in_use = Box::leak(Box::new(SimU32::new(0)));
    Box::leak(Box::new(Waiters::new(slots.leak(), claimed.leak(), in_use)))
}

fn line_of<T>(word: *const T) -> usize {
    word.addr() / CACHE_LINE
}
