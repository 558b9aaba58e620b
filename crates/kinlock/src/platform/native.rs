//! The hardware: core atomics, futex, membarrier, rseq.
//!
//! # Invariant cited by `SAFETY` comments
//!
//! 1. A prefetch neither accesses memory, as far as a program can tell, nor faults, and changes no flags.

#[cfg(feature = "std")]
mod account;
mod atomic;
#[cfg(feature = "std")]
pub(crate) mod futex;
#[cfg(feature = "std")]
pub(crate) mod rseq;
#[cfg(feature = "std")]
mod thread;

#[cfg(all(test, not(loom)))]
pub(crate) use thread::keeps_slots;
#[cfg(feature = "std")]
pub(crate) use thread::{keep_no_slot, reset_in_child, set_priority};

use super::{Atomic, NEVER, Ordering, Parked, Platform};
use crate::events::{self, Event};
use crate::raw::waiter::{MAX_SLOTS, Slot, Waiters};
use core::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64};

/// The machine we run on.
///
/// With the `std` feature threads park on futexes and the machine's locality domains are known. Without it waiters
/// only spin, in first-in-first-out order.
#[derive(Clone, Copy, Debug)]
pub struct Native;

/// All zeros, so it occupies address space, and memory only for slots in use.
static SLOTS: [Slot<Native>; MAX_SLOTS] = [const { Slot::FREE }; MAX_SLOTS];
static CLAIMED: [AtomicU32; MAX_SLOTS.div_ceil(32)] =
    [const { AtomicU32::new(0) }; MAX_SLOTS.div_ceil(32)];
static IN_USE: AtomicU32 = AtomicU32::new(0);
static WAITERS: Waiters<Native> = Waiters::new(&SLOTS, &CLAIMED, &IN_USE);

/// Whether as many slots are in use as are said to be, and the calling thread's is one of them. For the child of a fork, while it has one thread and no queues.
#[cfg(all(test, not(any(loom, miri))))]
pub(crate) fn slots_are_right() -> bool {
    let claimed = |word: &AtomicU32| word.load(Ordering::Relaxed);
    let count: u32 = CLAIMED.iter().map(|word| claimed(word).count_ones()).sum();
    let own = thread::kept_slot() as usize;
    let kept = own == 0 || claimed(&CLAIMED[(own - 1) / 32]) & 1 << ((own - 1) % 32) != 0;
    kept && count == WAITERS.in_use()
}

/// The moment, on the clock of [`Platform::now`], at which `timeout` has passed. A timeout beyond the end of time is none.
#[cfg(feature = "std")]
pub(crate) fn deadline(timeout: std::time::Duration) -> u64 {
    let nanos = u64::try_from(timeout.as_nanos()).unwrap_or(NEVER);
    Native::now().saturating_add(nanos)
}

/// Pauses between two looks at the clock.
const PAUSES: u32 = 32;

impl Platform for Native {
    type AtomicU8 = AtomicU8;
    type AtomicU16 = AtomicU16;
    type AtomicU32 = AtomicU32;
    type AtomicU64 = AtomicU64;

    #[inline]
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
            word.pause_while(value);
        }
    }

    #[inline]
    fn wait_for<A: Atomic>(
        word: &A,
        order: Ordering,
        nanos: u64,
        mut done: impl FnMut(A::Value) -> bool,
    ) -> Result<A::Value, A::Value> {
        if nanos == NEVER {
            return Ok(Self::wait(word, order, done));
        }
        let mut until = None;
        loop {
            let mut value = word.load(order);
            for _ in 0..PAUSES {
                if done(value) {
                    return Ok(value);
                }
                if nanos == 0 {
                    return Err(value);
                }
                // Not `pause_while`: a monitored pause may last longer than the whole limit.
                core::hint::spin_loop();
                value = word.load(order);
            }
            let now = Self::now();
            if now >= *until.get_or_insert(now.saturating_add(nanos)) {
                return Err(value);
            }
        }
    }

    #[cfg(feature = "std")]
    fn wait_yielding<A: Atomic>(
        word: &A,
        order: Ordering,
        nanos: u64,
        mut done: impl FnMut(A::Value) -> bool,
    ) -> Result<A::Value, A::Value> {
        let mut now = Self::now();
        let until = now.saturating_add(nanos);
        loop {
            let value = word.load(order);
            if done(value) {
                return Ok(value);
            }
            if now >= until || !thread::yield_briefly(&mut now) {
                return Err(value);
            }
        }
    }

    #[inline]
    fn prefetch_for_writing<A: Atomic>(word: &A) {
        // SAFETY: invariant 1.
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        unsafe {
            core::arch::asm!("prefetchw [{}]", in(reg) word, options(readonly, nostack, preserves_flags));
        }
        // SAFETY: invariant 1.
        #[cfg(all(target_arch = "aarch64", not(miri)))]
        unsafe {
            core::arch::asm!("prfm pstl1keep, [{}]", in(reg) word, options(readonly, nostack, preserves_flags));
        }
        #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
        let _ = word;
    }

    #[inline]
    fn relax() {
        core::hint::spin_loop();
    }

    #[inline]
    fn light_fence() {
        // Miri has no membarrier, and loads that see old values.
        #[cfg(miri)]
        core::sync::atomic::fence(Ordering::SeqCst);
        core::sync::atomic::compiler_fence(Ordering::SeqCst);
    }

    #[inline]
    fn waiters() -> &'static Waiters<Self> {
        &WAITERS
    }

    #[cfg(feature = "std")]
    fn yield_now() {
        std::thread::yield_now();
    }

    #[cfg(feature = "std")]
    const CAN_PARK: bool = true;

    #[cfg(feature = "std")]
    fn crowded() -> bool {
        thread::crowded(WAITERS.in_use())
    }

    #[cfg(feature = "std")]
    fn park_in(
        key: *const u32,
        expected: u32,
        until: u64,
        sets: u32,
        current: impl Fn() -> u32,
    ) -> Parked {
        let timeout = if until == NEVER {
            None
        } else {
            match until.saturating_sub(Self::now()) {
                0 => return Parked::Unwoken,
                nanos => Some(nanos),
            }
        };
        futex::wait(key, expected, timeout, sets, current)
    }

    #[cfg(feature = "std")]
    fn unpark_in(key: *const u32, n: u32, sets: u32) -> u32 {
        futex::wake(key, n, sets)
    }

    #[cfg(feature = "std")]
    fn unpark_some(key: *const u32, n: u32) -> bool {
        futex::wake_some(key, n)
    }

    #[cfg(feature = "std")]
    fn requeue_but(
        woken: u32,
        from: *const u32,
        expected: u32,
        to: *const u32,
        current: impl Fn() -> u32,
    ) {
        let moved = futex::requeue_but(woken, from, expected, to, current);
        events::count(Event::Requeue, moved, || thread::kept_slot() as u32);
    }

    #[cfg(feature = "std")]
    fn back_off(nanos: u64) {
        let until = Self::now().saturating_add(nanos);
        while Self::now() < until {
            core::hint::spin_loop();
        }
    }

    #[cfg(feature = "std")]
    fn heavy_fence() -> bool {
        futex::membarrier()
    }

    #[cfg(feature = "std")]
    fn domain() -> u16 {
        crate::topology::current_domain()
    }

    #[cfg(feature = "std")]
    fn cpu() -> u16 {
        rseq::current_cpu().map_or(super::NO_CPU, |cpu| (cpu % super::NO_CPU as u32) as u16)
    }

    #[cfg(feature = "std")]
    fn forked() -> bool {
        thread::FORKED.load(core::sync::atomic::Ordering::Relaxed)
    }

    #[cfg(feature = "std")]
    fn is_priority() -> bool {
        thread::is_priority()
    }

    #[cfg(feature = "std")]
    fn now() -> u64 {
        thread::now()
    }

    #[cfg(feature = "std")]
    fn random() -> u32 {
        thread::random()
    }

    #[cfg(feature = "std")]
    #[inline]
    fn kept_slot() -> u16 {
        thread::kept_slot()
    }

    #[cfg(feature = "std")]
    fn keep_slot(slot: u16) -> bool {
        thread::keep_slot(slot)
    }

    #[cfg(feature = "std")]
    #[inline]
    fn count(event: Event) {
        events::count(event, 1, || thread::kept_slot() as u32);
    }

    // ---- without an operating system: spin, in order ---------------------------------------------------------

    #[cfg(not(feature = "std"))]
    const CAN_PARK: bool = false;

    #[cfg(not(feature = "std"))]
    fn crowded() -> bool {
        false
    }

    #[cfg(not(feature = "std"))]
    fn park_in(_: *const u32, _: u32, _: u64, _: u32, _: impl Fn() -> u32) -> Parked {
        Parked::Unwoken
    }

    #[cfg(not(feature = "std"))]
    fn unpark_in(_: *const u32, _: u32, _: u32) -> u32 {
        0
    }

    #[cfg(not(feature = "std"))]
    fn unpark_some(_: *const u32, _: u32) -> bool {
        false
    }

    #[cfg(not(feature = "std"))]
    fn requeue_but(_: u32, _: *const u32, _: u32, _: *const u32, _: impl Fn() -> u32) {}

    #[cfg(not(feature = "std"))]
    fn back_off(nanos: u64) {
        // Without a clock: a pause takes some ten nanoseconds.
        for _ in 0..nanos / 16 + 1 {
            core::hint::spin_loop();
        }
    }

    #[cfg(not(feature = "std"))]
    fn cpu() -> u16 {
        super::NO_CPU
    }

    #[cfg(not(feature = "std"))]
    fn heavy_fence() -> bool {
        false
    }

    #[cfg(not(feature = "std"))]
    fn domain() -> u16 {
        0
    }

    #[cfg(not(feature = "std"))]
    fn is_priority() -> bool {
        false
    }

    #[cfg(not(feature = "std"))]
    fn now() -> u64 {
        0
    }

    #[cfg(not(feature = "std"))]
    fn random() -> u32 {
        0
    }

    #[cfg(not(feature = "std"))]
    fn kept_slot() -> u16 {
        0
    }

    #[cfg(not(feature = "std"))]
    fn keep_slot(_: u16) -> bool {
        false
    }

    #[cfg(not(feature = "std"))]
    #[inline]
    fn count(event: Event) {
        events::count(event, 1, || 0);
    }
}
