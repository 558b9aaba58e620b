//! What an algorithm may ask of the machine, and nothing else.
//!
//! Every algorithm in [`raw`](crate::raw) is written once, generic over [`Platform`]. The same
//! source runs on Linux (the crate `kinlock-linux`), on hardware without an operating system
//! ([`Bare`](crate::bare::Bare)), under the loom model checker (`cfg(loom)`) and on a simulated
//! machine. A platform is a type, so calls are monomorphised and inlined: no lock path dispatches
//! dynamically.
//!
//! # Writing a platform
//!
//! A platform has atomics of four widths, a table of waiter slots, and five parts. Each part is a
//! trait, and the platform names a type that implements it: itself, or another platform.
//!
//! | part | what an algorithm asks for |
//! | --- | --- |
//! | [`Clock`] | the time, and a random number |
//! | [`Spinning`] | to wait for a word without sleeping, and whether that is sensible |
//! | [`Parking`] | to sleep on four bytes, and to wake sleepers |
//! | [`Fences`] | an asymmetric pair of fences |
//! | [`Place`] | how the calling thread runs: its domain, priority, forks, time slice |
//!
//! All functions of a part have defaults: waiters spin, first in, first out, and never sleep. So an
//! embedder without an operating system implements [`Atomics`] (four types), and only the function
//! [`waiters`](Platform::waiters) of [`Platform`], with a [`Table`](crate::slots::Table) of the
//! size that it needs. It names [`Bare`](crate::bare::Bare) for each part. A kernel may add three
//! things:
//!
//! * [`Clock`], for time limits;
//! * [`Place`], for NUMA-aware order;
//! * [`kept_slot`](Platform::kept_slot) and [`keep_slot`](Platform::keep_slot), so that a thread
//!   keeps its waiter slot between waits.
//!
//! The example `bare_metal` of this crate is a complete platform.
//!
//! Algorithms call all of this on `P: Platform`, whose functions forward to the parts. No platform
//! overrides these functions.
//!
//! # Example
//!
//! Algorithms name the platform's types, never `core::sync::atomic`:
//!
//! ```
//! use kinlock_core::bare::Bare;
//! use kinlock_core::platform::{Atomic, Atomics, Platform};
//! use core::sync::atomic::Ordering::Relaxed;
//!
//! fn bump<P: Platform>(counter: &P::AtomicU32) -> u32 {
//!     counter.fetch_add(1, Relaxed)
//! }
//!
//! let counter = <Bare as Atomics>::AtomicU32::new(41);
//! assert_eq!(bump::<Bare>(&counter), 41);
//! ```

pub use crate::atomic::{Atomic, Atomics, Ordering};
pub(crate) use crate::atomic::{const_fn, zero};
use crate::events::Event;
pub use crate::fence_calls::Ticket;
use crate::slots::Waiters;
use crate::visible_readers::{Row, VisibleReaders};
use core::sync::atomic::AtomicU64;

/// A moment of [`Clock::now`] that never comes: wait without a time limit.
pub const NEVER: u64 = u64::MAX;

/// All sets of sleepers; see [`Parking::park_in`].
pub const EVERY_SET: u32 = u32::MAX;

/// How a sleep ended; see [`Parking::park_in`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Parked {
    /// A wake-up ended the sleep.
    Woken,
    /// The sleep did not begin: the bytes were not the expected ones.
    Differed,
    /// No wake-up ended the sleep: the time limit passed, the return was spurious, or the platform
    /// refused to sleep.
    Unwoken,
}

/// A part of a platform: time and randomness.
pub trait Clock {
    /// Monotonic time in nanoseconds since a fixed moment.
    ///
    /// The default, for a platform without a clock, counts the calls of this function. Each call
    /// counts as 128 ns, about as long as the pauses that [`Spinning::wait_for`] makes between two
    /// calls. So timed waits end there, too, but earlier if more threads wait.
    fn now() -> u64 {
        static READINGS: AtomicU64 = AtomicU64::new(0);
        READINGS.fetch_add(1, Ordering::Relaxed) * 128
    }

    /// A cheap pseudo-random number.
    fn random() -> u32 {
        0
    }
}

/// A part of a platform: waiting without sleeping.
pub trait Spinning {
    /// The clock of time limits.
    type Clock: Clock;

    /// Spins until `done(value)` holds for a value read from `word`, and returns that value.
    ///
    /// This is one call so that hardware can pause or monitor the cache line, a simulator can block
    /// the CPU on the line, and a model checker can switch threads. `order` is the ordering of
    /// every load.
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

    /// Like [`wait`](Self::wait), but gives up after about `nanos` nanoseconds and returns the last
    /// value as `Err`. `done` may hold for that value, too: it is not checked.
    ///
    /// Reads `word` at least once, and reads the clock only if more reads are needed. [`NEVER`]
    /// means no limit. With any other limit a model checker gives up after one read.
    #[inline]
    fn wait_for<A: Atomic>(
        word: &A,
        order: Ordering,
        nanos: u64,
        mut done: impl FnMut(A::Value) -> bool,
    ) -> Result<A::Value, A::Value> {
        /// Pauses between two reads of the clock. A spin makes at least twice as many. A pause
        /// takes 15 to 60 ns.
        const PAUSES: u32 = 8;
        /// Two readings of the clock are this far apart only if the thread had no CPU in between,
        /// or if a signal handler ran. The pauses take less than a microsecond, and an interrupt
        /// takes a few hundred microseconds at most.
        const LOST_NS: u64 = 1_000_000;

        if nanos == NEVER {
            return Ok(Self::wait(word, order, done));
        }
        let (mut until, mut last) = (None, None);
        loop {
            let mut value = word.load(order);
            for _ in 0..PAUSES {
                if done(value) {
                    return Ok(value);
                }
                if nanos == 0 {
                    return Err(value);
                }
                // Not `pause_while`: a monitored pause may outlast the limit.
                Self::relax();
                value = word.load(order);
            }
            let now = Self::Clock::now();
            if now.saturating_sub(last.replace(now).unwrap_or(now)) > LOST_NS {
                Self::lost_cpu();
            }
            if now >= *until.get_or_insert(now.saturating_add(nanos)) {
                return Err(value);
            }
        }
    }

    /// Like [`wait_for`](Self::wait_for), but yields the CPU between two reads: for a process that
    /// is [oversubscribed](Self::oversubscribed).
    ///
    /// May give up early, for example when other threads keep the CPU for long.
    fn wait_yielding<A: Atomic>(
        word: &A,
        order: Ordering,
        nanos: u64,
        done: impl FnMut(A::Value) -> bool,
    ) -> Result<A::Value, A::Value> {
        Self::wait_for(word, order, nanos, done)
    }

    /// Asks the CPU to fetch the cache line of `word` for writing. Does not wait for the line.
    fn prefetch_for_writing<A: Atomic>(_word: &A) {}

    /// Tells the CPU that this is a spin loop. One call takes some nanoseconds.
    #[inline]
    fn relax() {
        core::hint::spin_loop();
    }

    /// Lets another runnable thread use this CPU. For waits for a thread that may be preempted.
    fn yield_now() {
        Self::relax();
    }

    /// Whether the process is oversubscribed: the number of threads that wait for locks now, plus
    /// the holder of the lock in question, exceeds the number of CPUs that the process may use.
    ///
    /// This answers "should I stop spinning?" in user space. In an oversubscribed process a spinner
    /// may occupy the CPU that the lock's holder needs. Only slow paths ask. The answer may be some
    /// milliseconds old. On hardware it also takes the CPU quota of the process into account, and
    /// is `true` for a thread that has lately [lost its CPU](Self::lost_cpu).
    fn oversubscribed() -> bool {
        false
    }

    /// Called when the calling thread had no CPU for a while during its spin in
    /// [`wait_for`](Self::wait_for): other threads, of this process or another, want the CPUs.
    fn lost_cpu() {}

    /// Spends about `nanos` nanoseconds without touching shared memory.
    fn back_off(nanos: u64) {
        // There may be no clock; a pause takes 15 ns or more.
        for _ in 0..nanos / 16 + 1 {
            Self::relax();
        }
    }
}

/// The usual [patience](Parking::patience), in nanoseconds: half of the default
/// [quantum](crate::tuning::Quantum). A waiter looks for the second time after nine times as long,
/// four and a half quanta for each waiter ahead: if it is still waiting then, its queue does not
/// move as it should.
pub const PATIENCE_NS: u64 = 500_000;

/// A part of a platform: sleeping.
pub trait Parking {
    /// Whether threads can sleep. If not, waiters only spin, and [`park_in`](Self::park_in) is
    /// never called.
    const CAN_PARK: bool = false;

    /// How long a waiter sleeps, for each waiter ahead of it, before it checks whether the waiter
    /// on which it depends runs: the waiter at the front of its queue, or a requester to which the
    /// lock was handed over. That waiter may be stopped, or may have no CPU for as long as others
    /// compute.
    ///
    /// In nanoseconds; [`NEVER`]: it never checks, since all waiters run.
    fn patience() -> u64 {
        PATIENCE_NS
    }

    /// Puts the thread to sleep on the four bytes at `key` while they equal `expected`, as a member
    /// of `sets` (one per bit).
    ///
    /// * Comparing and falling asleep are one atomic step with respect to
    ///   [`unpark_in`](Self::unpark_in): a wake-up sent after the bytes changed is not lost.
    /// * `current` reads the four bytes as the algorithm does. Platforms without a kernel use it
    ///   for the comparison.
    /// * The sleep ends at `until` at the latest, a moment of [`Clock::now`] or [`NEVER`]. It
    ///   may end spuriously.
    /// * The result is [`Parked::Woken`] exactly for the threads that
    ///   [`unpark_in`](Self::unpark_in) counts as woken, even if they run much later.
    fn park_in(
        key: *const u32,
        expected: u32,
        until: u64,
        sets: u32,
        current: impl Fn() -> u32,
    ) -> Parked {
        let _ = (key, expected, until, sets, current);
        Parked::Unwoken
    }

    /// Wakes up to `n` threads that are parked at `key` and belong to any of `sets`, the longest
    /// sleepers first.
    ///
    /// Returns how many it woke. Does not access the memory at `key`.
    fn unpark_in(key: *const u32, n: u32, sets: u32) -> u32 {
        let _ = (key, n, sets);
        0
    }

    /// Like [`unpark_in`](Self::unpark_in), for threads of every set. Returns how many it woke, or
    /// `n + 1` if other threads may still sleep there.
    fn unpark_some(key: *const u32, n: u32) -> u32 {
        let _ = (key, n);
        0
    }

    /// Wakes `woken` of the threads parked at `from` and moves the others to `to`, if the bytes at
    /// `from` equal `expected`.
    ///
    /// May wake all threads instead. Platforms without a kernel read the bytes with `current`.
    /// Returns how many threads it woke or moved.
    fn requeue_but(
        woken: u32,
        from: *const u32,
        expected: u32,
        to: *const u32,
        current: impl Fn() -> u32,
    ) -> u32 {
        let _ = (woken, from, expected, to, current);
        0
    }
}

/// A part of a platform: an asymmetric pair of fences.
///
/// One thread executes `store a; light_fence(); load b`, another `store b; heavy_fence(); load a`.
/// If the heavy fence is granted, at least one of them sees the other's store.
pub trait Fences {
    /// The cheap half of the pair, for the frequent side. On hardware it only stops the compiler.
    #[inline]
    fn light_fence() {
        core::sync::atomic::fence(Ordering::SeqCst);
    }

    /// The expensive half, for the rare side: `membarrier` on hardware.
    ///
    /// Returns whether every thread of the process has executed a fence since the caller's store,
    /// which came before the first call with this `ticket`. If `false`, the store may go unnoticed:
    /// the caller has to check again after a while, and may then ask again with the same ticket.
    ///
    /// On hardware the first answer is `false`. A later answer is `false` if the kernel refuses, or
    /// if the process has made such a call within the last millisecond and that call does not cover
    /// the store; see [`fence_calls`](crate::fence_calls).
    fn heavy_fence(ticket: &mut Ticket) -> bool {
        let _ = ticket;
        core::sync::atomic::fence(Ordering::SeqCst);
        true
    }
}

/// A part of a platform: how the calling thread runs.
pub trait Place {
    /// The locality domain of the CPU that the thread runs on, below
    /// [`PRIORITY`](crate::slots::PRIORITY).
    ///
    /// May be stale when it returns: that costs speed, never correctness.
    fn domain() -> u16 {
        0
    }

    /// How many forks led to this process, each in the child of the previous one.
    fn forks() -> u8 {
        0
    }

    /// Whether NUMA-aware locks must not set the calling thread aside. On hardware this holds by
    /// default for threads under a real-time policy.
    fn is_priority() -> bool {
        false
    }

    /// The calling thread holds a lock for which others wait: asks the scheduler to leave it its
    /// CPU for a moment if its time slice ends before it releases the lock.
    /// [`end_slice`](Self::end_slice) follows soon.
    ///
    /// Called only with the knob [`slice_extension`](crate::tuning::Tuning::slice_extension).
    fn extend_slice() {}

    /// The calling thread has released that lock, or is about to wait for another: ends the
    /// request, and yields the CPU if the time slice is over. Called before the thread wakes
    /// others, since that may be a system call.
    ///
    /// Also called if the thread has not asked. Has no effect that an algorithm relies on.
    #[inline]
    fn end_slice() {}
}

/// Functions of [`Platform`] that forward to a part.
macro_rules! answered_by_parts {
    ($($part:ident::$name:ident $(<$generic:ident: $bound:ident>)?(
        $($argument:ident: $type:ty),* $(,)?
    ) $(-> $result:ty)?;)*) => {$(
        #[doc = concat!("See [`", stringify!($part), "::", stringify!($name), "`].")]
        #[inline]
        fn $name $(<$generic: $bound>)?($($argument: $type),*) $(-> $result)? {
            <Self::$part as $part>::$name($($argument),*)
        }
    )*};
}

/// The machine an algorithm runs on.
///
/// All functions are associated, not methods: a platform is a type that is chosen at compile time.
pub trait Platform: Atomics {
    /// Time and randomness.
    type Clock: Clock;
    /// Waiting without sleeping.
    type Spinning: Spinning<Clock = Self::Clock>;
    /// Sleeping.
    type Parking: Parking;
    /// An asymmetric pair of fences.
    type Fences: Fences;
    /// How the calling thread runs.
    type Place: Place;

    // ---- forwarded to the parts ----

    /// See [`Parking::CAN_PARK`].
    const CAN_PARK: bool = <Self::Parking as Parking>::CAN_PARK;

    answered_by_parts! {
        Clock::now() -> u64;
        Clock::random() -> u32;
        Spinning::wait<A: Atomic>(
            word: &A,
            order: Ordering,
            done: impl FnMut(A::Value) -> bool,
        ) -> A::Value;
        Spinning::wait_for<A: Atomic>(
            word: &A,
            order: Ordering,
            nanos: u64,
            done: impl FnMut(A::Value) -> bool,
        ) -> Result<A::Value, A::Value>;
        Spinning::wait_yielding<A: Atomic>(
            word: &A,
            order: Ordering,
            nanos: u64,
            done: impl FnMut(A::Value) -> bool,
        ) -> Result<A::Value, A::Value>;
        Spinning::prefetch_for_writing<A: Atomic>(word: &A);
        Spinning::relax();
        Spinning::yield_now();
        Spinning::oversubscribed() -> bool;
        Spinning::back_off(nanos: u64);
        Parking::patience() -> u64;
        Parking::park_in(
            key: *const u32,
            expected: u32,
            until: u64,
            sets: u32,
            current: impl Fn() -> u32,
        ) -> Parked;
        Parking::unpark_in(key: *const u32, n: u32, sets: u32) -> u32;
        Parking::unpark_some(key: *const u32, n: u32) -> u32;
        Parking::requeue_but(
            woken: u32,
            from: *const u32,
            expected: u32,
            to: *const u32,
            current: impl Fn() -> u32,
        ) -> u32;
        Fences::light_fence();
        Fences::heavy_fence(ticket: &mut Ticket) -> bool;
        Place::domain() -> u16;
        Place::forks() -> u8;
        Place::is_priority() -> bool;
        Place::extend_slice();
        Place::end_slice();
    }

    // ---- the functions above with fewer arguments ----

    /// Like [`park_in`](Self::park_in), as a member of every set.
    fn park(key: *const u32, expected: u32, until: u64, current: impl Fn() -> u32) -> Parked {
        Self::park_in(key, expected, until, EVERY_SET, current)
    }

    /// Like [`unpark_in`](Self::unpark_in), for threads of every set.
    fn unpark(key: *const u32, n: u32) {
        Self::unpark_in(key, n, EVERY_SET);
    }

    /// Like [`requeue_but`](Self::requeue_but), but wakes no thread.
    fn requeue(from: *const u32, expected: u32, to: *const u32, current: impl Fn() -> u32) {
        Self::requeue_but(0, from, expected, to, current);
    }

    /// Whether this process is the child of a fork: lock words may name threads that do not exist.
    #[inline]
    fn forked() -> bool {
        Self::forks() != 0
    }

    // ---- waiter slots ----

    /// The table of waiter slots, shared by all locks of this platform.
    fn waiters() -> &'static Waiters<Self>;

    /// The slot that this thread keeps between waits, as set by [`keep_slot`](Self::keep_slot); 0
    /// if none.
    #[inline]
    fn kept_slot() -> u16 {
        0
    }

    /// Asks the platform to keep `slot` (never 0) for this thread, and to call
    /// [`Waiters::release`](crate::slots::Waiters::release) with it when the thread ends.
    ///
    /// Returns `false` if that is impossible: the thread is ending, a signal handler has already
    /// set a slot, or there are no thread-locals. The caller then releases the slot after use.
    ///
    /// # Safety
    ///
    /// The calling thread has claimed the slot, and does not use it after it has ended.
    unsafe fn keep_slot(slot: u16) -> bool {
        let _ = slot;
        false
    }

    // ---- visible readers ----

    /// The table in which readers of all locks of this platform announce themselves. `None`: locks
    /// are never read-biased.
    #[inline]
    fn visible_readers() -> Option<&'static VisibleReaders<Self>> {
        None
    }

    /// The calling thread's row of the table, the same row at each call. Several threads may share
    /// a row. `None` if there is no table.
    #[inline]
    fn row() -> Option<&'static Row<Self>> {
        Some(Self::visible_readers()?.row(0))
    }

    /// Called if the lock at the address `lock` shows that readers are announced, but this platform
    /// has no table. So other code, with a table, uses the lock, too, and exclusion is lost if the
    /// caller goes on. The default does nothing; on Linux the process aborts.
    #[cold]
    fn on_foreign_readers(lock: *const u32) {
        let _ = lock;
    }

    // ---- observation ----

    /// Counts `event`. Compiles to nothing unless events are compiled in.
    #[inline]
    fn count(event: Event) {
        let _ = event;
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use core::cell::Cell;
    use core::sync::atomic::AtomicU32;

    std::thread_local! {
        static TIME: Cell<u64> = const { Cell::new(0) };
        static LOST: Cell<u32> = const { Cell::new(0) };
    }

    /// Each reading of this clock advances it by `STEP` nanoseconds.
    struct Ticking<const STEP: u64>;

    impl<const STEP: u64> Clock for Ticking<STEP> {
        fn now() -> u64 {
            TIME.set(TIME.get() + STEP);
            TIME.get()
        }
    }

    impl<const STEP: u64> Spinning for Ticking<STEP> {
        type Clock = Self;

        fn lost_cpu() {
            LOST.set(LOST.get() + 1);
        }
    }

    #[test]
    fn a_spinner_notices_that_it_had_no_cpu() {
        let word = AtomicU32::new(0);
        let lost = |wait: &dyn Fn() -> bool| {
            LOST.set(0);
            assert!(!wait());
            LOST.get()
        };
        let limit = 10_000_000;
        let busy =
            || Ticking::<1_000>::wait_for(&word, Ordering::Relaxed, limit, |_| false).is_ok();
        let slices =
            || Ticking::<3_000_000>::wait_for(&word, Ordering::Relaxed, limit, |_| false).is_ok();
        // Four readings after the first.
        assert_eq!((lost(&busy), lost(&slices)), (0, 4));
    }
}
