//! What an algorithm may ask of the machine, and nothing else.
//!
//! Every algorithm in [`raw`](crate::raw) is written once, generic over [`Platform`]. The same source then runs on
//! hardware ([`Native`]), under the loom model checker (`cfg(loom)`), and on a simulated machine, whose platform lives outside this crate.
//!
//! A platform answers with *monomorphised, inlined* functions: there is no dynamic dispatch on any lock path.
//!
//! # Example
//!
//! Algorithms name the platform's types, never `core::sync::atomic`:
//!
//! ```
//! use kinlock::platform::{Atomic, Native, Platform};
//! use core::sync::atomic::Ordering::Relaxed;
//!
//! fn bump<P: Platform>(counter: &P::AtomicU32) -> u32 {
//!     counter.fetch_add(1, Relaxed)
//! }
//!
//! let counter = <Native as Platform>::AtomicU32::new(41);
//! assert_eq!(bump::<Native>(&counter), 41);
//! ```

#[cfg(loom)]
pub mod loom;
pub(crate) mod native;

pub use core::sync::atomic::Ordering;
pub use native::Native;
#[cfg(feature = "std")]
pub(crate) use native::{deadline, set_priority};

use crate::events::Event;
use crate::raw::waiter::Waiters;

/// A point in [`Platform::now`]'s time that never comes: wait without a time limit.
pub const NEVER: u64 = u64::MAX;

/// All sets of sleepers; see [`Platform::park_in`].
pub const ANYBODY: u32 = u32::MAX;

/// A CPU of which [`Platform::cpu`] knows nothing.
pub const NO_CPU: u16 = u16::MAX;

/// How a sleep ended; see [`Platform::park_in`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Parked {
    /// By a wake-up.
    Woken,
    /// It did not begin: the bytes were others.
    Differed,
    /// By the clock, or for no reason.
    Unwoken,
}

/// An atomic integer of one platform.
///
/// The orderings mean what they mean in `core::sync::atomic`. A simulated platform may be stronger (sequentially
/// consistent), never weaker.
pub trait Atomic: Sized + Send + Sync + core::fmt::Debug + 'static {
    /// The plain integer inside.
    type Value: Copy + Eq + core::fmt::Debug;

    /// A new atomic. Not `const`, because a model checker registers each one; see [`ConstAtomic`].
    fn new(value: Self::Value) -> Self;
    /// Reads the value.
    fn load(&self, order: Ordering) -> Self::Value;
    /// As [`load`](Self::load), where nothing but a branch that nearly always goes the same way depends on the value. A processor
    /// goes on before the value is there; a simulator, which waits for each load, may do so too.
    #[inline]
    fn glance(&self, order: Ordering) -> Self::Value {
        self.load(order)
    }
    /// Writes the value. On hardware this is a plain store: no read-modify-write.
    fn store(&self, value: Self::Value, order: Ordering);
    /// As [`store`](Self::store), where another thread may be about to exchange the value: a plain store all the same. Apart from
    /// `store` because a model checker may know no order between such a store and an exchange, of which the language has one.
    #[inline]
    fn overwrite(&self, value: Self::Value, order: Ordering) {
        self.store(value, order);
    }
    /// Writes the value and returns the one it replaced. Never emulated by a compare-and-swap loop, which may starve.
    fn swap(&self, value: Self::Value, order: Ordering) -> Self::Value;
    /// Replaces `current` by `new`; returns the value seen, as `Err` if it was another.
    fn compare_exchange(
        &self,
        current: Self::Value,
        new: Self::Value,
        success: Ordering,
        failure: Ordering,
    ) -> Result<Self::Value, Self::Value>;
    /// Adds, wrapping; returns the previous value.
    fn fetch_add(&self, value: Self::Value, order: Ordering) -> Self::Value;
    /// Sets bits; returns the previous value.
    fn fetch_or(&self, value: Self::Value, order: Ordering) -> Self::Value;
    /// Keeps only the bits of `value`; returns the previous value.
    fn fetch_and(&self, value: Self::Value, order: Ordering) -> Self::Value;

    /// Pauses for a moment, or until hardware notices that the word no longer holds `seen`.
    #[inline]
    fn pause_while(&self, seen: Self::Value) {
        let _ = seen;
        core::hint::spin_loop();
    }
}

/// An atomic that can be built in a constant: hardware's can, a model checker's cannot.
///
/// Zero is the only constant needed: zeroed memory is an unlocked lock.
pub trait ConstAtomic: Atomic {
    /// The atomic holding zero.
    const ZERO: Self;
}

/// A [`Platform`] whose atomics are [`ConstAtomic`], so that locks can live in a `static`.
pub trait ConstPlatform:
    Platform<
        AtomicU8: ConstAtomic,
        AtomicU16: ConstAtomic,
        AtomicU32: ConstAtomic,
        AtomicU64: ConstAtomic,
    >
{
}

impl<P> ConstPlatform for P where
    P: Platform<
            AtomicU8: ConstAtomic,
            AtomicU16: ConstAtomic,
            AtomicU32: ConstAtomic,
            AtomicU64: ConstAtomic,
        >
{
}

/// The machine an algorithm runs on.
///
/// All functions are associated, not methods: a platform is a type, chosen at compile time.
pub trait Platform: Copy + core::fmt::Debug + Send + Sync + 'static {
    /// One byte.
    type AtomicU8: Atomic<Value = u8>;
    /// Two bytes.
    type AtomicU16: Atomic<Value = u16>;
    /// Four bytes; the width that can be slept on.
    type AtomicU32: Atomic<Value = u32>;
    /// Eight bytes.
    type AtomicU64: Atomic<Value = u64>;

    // ---- waiting -------------------------------------------------------------------------------------------

    /// Spins until `done(value)` holds for a value read from `word`, and returns that value.
    ///
    /// One call, so that hardware can pause or monitor the line, a simulator can block the CPU on the line, and a
    /// model checker can switch threads. `order` is the ordering of every load.
    fn wait<A: Atomic>(word: &A, order: Ordering, done: impl FnMut(A::Value) -> bool) -> A::Value;

    /// As [`wait`](Self::wait), but gives up after about `nanos` nanoseconds, with the last value seen as `Err`. Reads
    /// `word` at least once, and the clock only if that was not enough. [`NEVER`] means not to give up; a model checker
    /// gives up at once otherwise.
    fn wait_for<A: Atomic>(
        word: &A,
        order: Ordering,
        nanos: u64,
        done: impl FnMut(A::Value) -> bool,
    ) -> Result<A::Value, A::Value>;

    /// As [`wait_for`](Self::wait_for), in a [crowd](Self::crowded): lets others run between two looks. May give up
    /// at any time, as it does where they keep the CPU for long.
    fn wait_yielding<A: Atomic>(
        word: &A,
        order: Ordering,
        nanos: u64,
        done: impl FnMut(A::Value) -> bool,
    ) -> Result<A::Value, A::Value> {
        Self::wait_for(word, order, nanos, done)
    }

    /// Asks the CPU to fetch the cache line of `word` for writing, and does not wait for it. Changes nothing.
    fn prefetch_for_writing<A: Atomic>(_word: &A) {}

    /// Tells the CPU that this is a spin loop. One call takes some nanoseconds.
    fn relax();

    /// Lets another thread run on this CPU, if one wants to: for waiting for somebody who may have been preempted.
    fn yield_now() {
        Self::relax();
    }

    /// Whether more threads wait for locks now and then than there are CPUs for them: the user-space stand-in for "should
    /// I stop spinning?". Spinning then keeps a CPU from whoever is waited for. Asked on slow paths only.
    fn crowded() -> bool;

    // ---- parking -------------------------------------------------------------------------------------------

    /// Whether threads can sleep here. If not, [`park`](Self::park) is never called and waiters only spin.
    const CAN_PARK: bool;

    /// As [`park_in`](Self::park_in), to be woken by any [`unpark`](Self::unpark).
    fn park(key: *const u32, expected: u32, until: u64, current: impl Fn() -> u32) -> Parked {
        Self::park_in(key, expected, until, ANYBODY, current)
    }

    /// Puts the thread to sleep on the four bytes at `key` while they equal `expected`, as a member of the `sets` (one per bit).
    ///
    /// The comparison and falling asleep are one step with respect to [`unpark_in`](Self::unpark_in): a wake-up issued
    /// after the bytes changed is not lost. `current` reads the four bytes the way the algorithm does; platforms
    /// without a kernel use it to compare. Ends at `until` at the latest, and may end for no reason. A thread that
    /// [`unpark_in`](Self::unpark_in) counts as woken is told so, however late it is, and no other is.
    fn park_in(
        key: *const u32,
        expected: u32,
        until: u64,
        sets: u32,
        current: impl Fn() -> u32,
    ) -> Parked;

    /// As [`unpark_in`](Self::unpark_in), whichever sets they are in.
    fn unpark(key: *const u32, n: u32) {
        Self::unpark_in(key, n, ANYBODY);
    }

    /// Wakes up to `n` threads parked at `key` in one of the `sets` at least, those first who have slept longest. Returns how many. The
    /// memory behind `key` is not accessed.
    fn unpark_in(key: *const u32, n: u32, sets: u32) -> u32;

    /// As [`unpark`](Self::unpark); says whether others stay asleep. In doubt they do.
    fn unpark_some(key: *const u32, n: u32) -> bool;

    /// As [`requeue_but`](Self::requeue_but), waking nobody.
    fn requeue(from: *const u32, expected: u32, to: *const u32, current: impl Fn() -> u32) {
        Self::requeue_but(0, from, expected, to, current);
    }

    /// Wakes `woken` of the threads parked at `from` and moves the others to `to`, provided that the bytes at `from` equal
    /// `expected` (read with `current` where there is no kernel). May wake them all instead: they look again.
    fn requeue_but(
        woken: u32,
        from: *const u32,
        expected: u32,
        to: *const u32,
        current: impl Fn() -> u32,
    );

    /// Spends about so many nanoseconds without touching memory that others use.
    fn back_off(nanos: u64);

    /// The cheap half of an asymmetric pair of fences; the frequent side calls it.
    ///
    /// If a thread executes `store a; light_fence(); load b` and another `store b; heavy_fence(); load a`, then at
    /// least one of them sees the other's store. On hardware it only stops the compiler.
    fn light_fence();

    /// The dear half: `membarrier` on hardware. Returns whether it really was a barrier for every thread of the
    /// process; if not, the caller must not rely on being noticed and has to look again by itself after a while.
    fn heavy_fence() -> bool;

    // ---- who and when --------------------------------------------------------------------------------------

    /// The locality domain of the CPU that the thread runs on, below [`PRIORITY`](crate::raw::waiter::PRIORITY).
    /// May be stale the moment it is returned: that costs speed, never correctness.
    fn domain() -> u16;

    /// The number of the CPU that the thread runs on, modulo [`NO_CPU`]; that one if nothing tells. May be stale the moment it is
    /// returned.
    fn cpu() -> u16;

    /// Whether there may be traces of threads that do not exist: in the child of a fork.
    fn forked() -> bool {
        false
    }

    /// Whether the calling thread must not be set aside by a NUMA-aware lock (by default: threads under a real-time policy).
    fn is_priority() -> bool;

    /// Monotonic time in nanoseconds since some fixed point.
    fn now() -> u64;

    /// A cheap pseudo-random number.
    fn random() -> u32;

    // ---- waiter slots --------------------------------------------------------------------------------------

    /// The table of waiter slots shared by all locks of this platform.
    fn waiters() -> &'static Waiters<Self>;

    /// The slot this thread holds for good, as kept by [`keep_slot`](Self::keep_slot); 0 if none.
    fn kept_slot() -> u16;

    /// Asks the platform to keep `slot` (never 0) for this thread and to hand it to
    /// [`Waiters::release`](crate::raw::waiter::Waiters::release) when the thread ends. `false` if it cannot: the thread
    /// is ending, a signal handler was faster, or there are no thread-locals. The slot is then released after use.
    fn keep_slot(slot: u16) -> bool;

    // ---- observation ---------------------------------------------------------------------------------------

    /// Counts `event`. Compiles to nothing unless events are compiled in and switched on.
    fn count(event: Event);
}
