//! Linux as a platform: the processor's atomics, futexes, membarrier, restartable sequences.

mod account;
mod clock;
mod copies;
mod cpus;
pub mod futex;
mod kept;
mod key;
mod load;
mod slice;
mod start;
mod thread;

pub use clock::coarse_now;
#[doc(hidden)]
pub use copies::pretend_other_version;
pub use kept::{give_up_key, keep_no_slot, keeps_slots};
pub use key::{Key, ROUNDS};
pub use slice::{NoExtension, slice_extensions};
pub use thread::{register_for_fork, set_priority, thread_identity};

use core::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64};
use kinlock_core::events::{self, Event};
use kinlock_core::hardware;
use kinlock_core::platform::{
    Atomic, Atomics, Clock, Fences, NEVER, Ordering, Parked, Parking, Place, Platform, Spinning,
    Ticket,
};
use kinlock_core::slots::{Table, Waiters};
use kinlock_core::visible_readers::{Row, VisibleReaders};

/// The machine that the program runs on, under Linux.
///
/// Threads park on futexes, and the machine's locality domains are known.
#[derive(Clone, Copy, Debug)]
pub struct Native;

/// The number of threads that may have a waiter slot at a time.
const SLOTS: usize = kinlock_core::slots::MAX_SLOTS;

/// All zeros: it takes address space, but memory only for slots that have been used. This copy of
/// the library may use the table of another copy, see `copies`.
static TABLE: Table<Native, SLOTS, { SLOTS.div_ceil(32) }> = Table::new();

/// The visible readers table: 32 KiB. If there are more threads than rows, threads share rows.
static ROWS: [Row<Native>; 256] = [const { Row::new() }; 256];

/// Stores the kind of queue of all mutexes, see
/// [`AsConfigured`](kinlock_core::config::AsConfigured).
pub(crate) fn kind_of_queue() -> &'static AtomicU8 {
    &copies::tables().queue
}

/// The moment on the clock of [`Platform::now`] at which `timeout` has passed. A timeout too long
/// for that clock means [`NEVER`].
pub fn deadline(timeout: std::time::Duration) -> u64 {
    let nanos = u64::try_from(timeout.as_nanos()).unwrap_or(NEVER);
    clock::now().saturating_add(nanos)
}

/// The number of CPUs whose time the process may use now: the CPUs on which its threads may run or,
/// if less, what the quotas of its control groups allow, rounded up. At least 1.
///
/// Asks the kernel each time: O(threads of the process) system calls, and a file per control group.
pub fn usable_cpus() -> u32 {
    let allowed = match cpus::allowed(0).count {
        cpus::UNKNOWN => std::thread::available_parallelism().map_or(1, |cpus| cpus.get() as u32),
        some => some,
    };
    allowed.min(cpus::quota().unwrap_or(u32::MAX))
}

/// Like [`Platform::park_in`], with an absolute `CLOCK_REALTIME` deadline: until the time of day is
/// `until`, in nanoseconds since 1970.
///
/// The kernel follows changes of that clock: setting it past `until` ends the sleep, and setting
/// it back prolongs the sleep.
pub fn park_until_realtime(
    key: *const u32,
    expected: u32,
    until: u64,
    sets: u32,
    current: impl Fn() -> u32,
) -> Parked {
    slice::end();
    futex::wait_until_realtime(key, expected, until, sets, current)
}

impl Atomics for Native {
    type AtomicU8 = AtomicU8;
    type AtomicU16 = AtomicU16;
    type AtomicU32 = AtomicU32;
    type AtomicU64 = AtomicU64;
}

impl Clock for Native {
    fn now() -> u64 {
        clock::now()
    }

    fn random() -> u32 {
        thread::random()
    }
}

impl Spinning for Native {
    type Clock = Self;

    fn wait_yielding<A: Atomic>(
        word: &A,
        order: Ordering,
        nanos: u64,
        mut done: impl FnMut(A::Value) -> bool,
    ) -> Result<A::Value, A::Value> {
        let mut now = clock::now();
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
        hardware::prefetch_for_writing(word);
    }

    fn yield_now() {
        thread::yield_now();
    }

    fn oversubscribed() -> bool {
        load::oversubscribed(|| &copies::tables().waiters) || thread::has_lost_cpu()
    }

    fn lost_cpu() {
        thread::lost_cpu();
    }

    fn back_off(nanos: u64) {
        let until = clock::now().saturating_add(nanos);
        while clock::now() < until {
            core::hint::spin_loop();
        }
    }
}

impl Parking for Native {
    const CAN_PARK: bool = true;

    fn park_in(
        key: *const u32,
        expected: u32,
        until: u64,
        sets: u32,
        current: impl Fn() -> u32,
    ) -> Parked {
        // A waiter of a condition variable has released a mutex, perhaps without looking for
        // waiters.
        slice::end();
        futex::wait(key, expected, until, sets, current)
    }

    fn unpark_in(key: *const u32, n: u32, sets: u32) -> u32 {
        futex::wake(key, n, sets)
    }

    fn unpark_some(key: *const u32, n: u32) -> u32 {
        futex::wake_some(key, n)
    }

    fn requeue_but(
        woken: u32,
        from: *const u32,
        expected: u32,
        to: *const u32,
        current: impl Fn() -> u32,
    ) -> u32 {
        let (woken, moved) = futex::requeue_but(woken, from, expected, to, current);
        events::count(Event::Requeue, moved, || kept::slot() as u32);
        woken + moved
    }
}

impl Fences for Native {
    #[inline]
    fn light_fence() {
        hardware::light_fence();
    }

    fn heavy_fence(ticket: &mut Ticket) -> bool {
        futex::heavy_fence(ticket)
    }
}

impl Place for Native {
    fn domain() -> u16 {
        crate::topology::current_domain()
    }

    #[inline]
    fn forks() -> u8 {
        copies::forks()
    }

    fn is_priority() -> bool {
        thread::is_priority()
    }

    fn extend_slice() {
        slice::extend();
    }

    #[inline]
    fn end_slice() {
        slice::end();
    }
}

impl Platform for Native {
    type Clock = Self;
    type Spinning = Self;
    type Parking = Self;
    type Fences = Self;
    type Place = Self;

    #[inline]
    fn waiters() -> &'static Waiters<Self> {
        &copies::tables().waiters
    }

    #[inline]
    fn kept_slot() -> u16 {
        kept::slot()
    }

    unsafe fn keep_slot(slot: u16) -> bool {
        kept::keep_slot(slot)
    }

    #[inline]
    fn count(event: Event) {
        events::count(event, 1, || kept::slot() as u32);
    }

    #[inline]
    fn visible_readers() -> Option<&'static VisibleReaders<Self>> {
        copies::visible_readers()
    }

    #[inline]
    fn row() -> Option<&'static Row<Self>> {
        thread::row()
    }

    fn on_foreign_readers(lock: *const u32) {
        copies::abort_on_foreign_readers(lock)
    }
}
