//! The hardware as a platform: core's atomics, futexes, membarrier, restartable sequences.
//!
//! # Invariant cited by `SAFETY` comments
//!
//! 1. A prefetch has no effect that a program can observe: it neither faults nor changes flags.

#[cfg(feature = "std")]
mod account;
mod atomic;
#[cfg(feature = "std")]
mod copies;
#[cfg(feature = "std")]
mod cpus;
#[cfg(feature = "std")]
pub mod futex;
#[cfg(feature = "std")]
mod load;
#[cfg(feature = "std")]
mod start;
#[cfg(feature = "std")]
mod thread;

#[cfg(feature = "std")]
#[doc(hidden)]
pub use copies::{pretend_other_version, serials};
#[cfg(feature = "std")]
pub use thread::{keep_no_slot, keeps_slots, register_for_fork, set_priority, thread_identity};

#[cfg(feature = "std")]
use crate::announced::{Announced, Row};
use crate::events::{self, Event};
use crate::platform::{Atomic, Atomics, Ordering, Platform};
#[cfg(feature = "std")]
use crate::platform::{NEVER, NO_CPU, Parked};
use crate::slots::{Table, Waiters};
use core::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64};

/// The hardware that the program runs on.
///
/// With the feature `std`, threads park on futexes and the machine's locality domains are known.
/// Without it, waiters only spin, first in, first out.
#[derive(Clone, Copy, Debug)]
pub struct Native;

/// How many threads may have a waiter slot at a time.
#[cfg(feature = "std")]
const SLOTS: usize = crate::slots::MAX_SLOTS;
/// Without an operating system each waiter occupies a CPU, so fewer slots are enough.
#[cfg(not(feature = "std"))]
const SLOTS: usize = 1024;

/// All zeros: it takes address space, but memory only for slots that have been used. This copy of
/// the library may use the table of another one, see `copies`.
static TABLE: Table<Native, SLOTS, { SLOTS.div_ceil(32) }> = Table::FREE;
#[cfg(not(feature = "std"))]
static WAITERS: Waiters<Native> = TABLE.waiters();

/// Where readers announce themselves: 32 KiB. More threads than rows share them.
#[cfg(feature = "std")]
static ROWS: [Row<Native>; 256] = [const { Row::EMPTY }; 256];

/// Where the kind of queue of all mutexes is kept, see [`configured`](crate::configured).
pub(crate) fn kind_of_queue() -> &'static AtomicU8 {
    #[cfg(not(feature = "std"))]
    {
        static KIND: AtomicU8 = AtomicU8::new(0);
        &KIND
    }
    #[cfg(feature = "std")]
    &copies::tables().queue
}

/// The moment on the clock of [`Platform::now`] at which `timeout` has passed. A timeout too long
/// for that clock means [`NEVER`].
#[cfg(feature = "std")]
pub fn deadline(timeout: std::time::Duration) -> u64 {
    let nanos = u64::try_from(timeout.as_nanos()).unwrap_or(NEVER);
    Native::now().saturating_add(nanos)
}

/// As [`Platform::park_in`], with an absolute `CLOCK_REALTIME` deadline: until the time of day is
/// `until`, in nanoseconds since 1970.
///
/// The kernel follows changes of that clock: setting it past `until` ends the sleep, and setting
/// it back prolongs the sleep.
#[cfg(feature = "std")]
pub fn park_until_realtime(
    key: *const u32,
    expected: u32,
    until: u64,
    sets: u32,
    current: impl Fn() -> u32,
) -> Parked {
    futex::wait_until_realtime(key, expected, until, sets, current)
}

impl Atomics for Native {
    type AtomicU8 = AtomicU8;
    type AtomicU16 = AtomicU16;
    type AtomicU32 = AtomicU32;
    type AtomicU64 = AtomicU64;
}

impl Platform for Native {
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
            core::arch::asm!(
                "prefetchw [{}]",
                in(reg) word,
                options(readonly, nostack, preserves_flags),
            );
        }
        // SAFETY: invariant 1.
        #[cfg(all(target_arch = "aarch64", not(miri)))]
        unsafe {
            core::arch::asm!(
                "prfm pstl1keep, [{}]",
                in(reg) word,
                options(readonly, nostack, preserves_flags),
            );
        }
        #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
        let _ = word;
    }

    #[inline]
    fn light_fence() {
        // Miri has no membarrier, but has loads that return old values.
        #[cfg(miri)]
        core::sync::atomic::fence(Ordering::SeqCst);
        core::sync::atomic::compiler_fence(Ordering::SeqCst);
    }

    #[cfg(feature = "std")]
    #[inline]
    fn waiters() -> &'static Waiters<Self> {
        &copies::tables().waiters
    }

    #[cfg(not(feature = "std"))]
    #[inline]
    fn waiters() -> &'static Waiters<Self> {
        &WAITERS
    }

    #[cfg(feature = "std")]
    fn yield_now() {
        thread::yield_now();
    }

    #[cfg(feature = "std")]
    const CAN_PARK: bool = true;

    #[cfg(feature = "std")]
    fn oversubscribed() -> bool {
        load::oversubscribed()
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
    fn unpark_some(key: *const u32, n: u32) -> u32 {
        futex::wake_some(key, n)
    }

    #[cfg(feature = "std")]
    fn requeue_but(
        woken: u32,
        from: *const u32,
        expected: u32,
        to: *const u32,
        current: impl Fn() -> u32,
    ) -> u32 {
        let (woken, moved) = futex::requeue_but(woken, from, expected, to, current);
        events::count(Event::Requeue, moved, || thread::kept_slot() as u32);
        woken + moved
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
        crate::rseq::current_cpu().map_or(NO_CPU, |cpu| (cpu % NO_CPU as u32) as u16)
    }

    #[cfg(feature = "std")]
    #[inline]
    fn forks() -> u8 {
        copies::forks()
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
    unsafe fn keep_slot(slot: u16) -> bool {
        thread::keep_slot(slot)
    }

    #[cfg(feature = "std")]
    #[inline]
    fn count(event: Event) {
        events::count(event, 1, || thread::kept_slot() as u32);
    }

    #[cfg(feature = "std")]
    #[inline]
    fn announced() -> Option<&'static Announced<Self>> {
        copies::announced()
    }

    #[cfg(feature = "std")]
    #[inline]
    fn row() -> Option<&'static Row<Self>> {
        thread::row()
    }

    #[cfg(feature = "std")]
    fn meet_stranger(lock: *const u32) {
        copies::meet_stranger(lock)
    }

    // Without sleepers no fence is needed.
    #[cfg(not(feature = "std"))]
    fn heavy_fence() -> bool {
        false
    }

    #[cfg(not(feature = "std"))]
    #[inline]
    fn count(event: Event) {
        events::count(event, 1, || 0);
    }
}
