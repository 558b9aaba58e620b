//! What an algorithm may ask of the machine, and nothing else.
//!
//! Every algorithm in [`raw`](crate::raw) is written once, generic over [`Platform`]. The same source then runs on
//! hardware ([`Native`](crate::Native)), under the loom model checker (`cfg(loom)`), and on a simulated
//! machine, whose platform lives in another crate.
//!
//! A platform answers with monomorphised, inlined functions: no lock path dispatches dynamically.
//!
//! # A platform of one's own
//!
//! An embedder without an operating system implements [`Atomics`] (four types) and of [`Platform`]
//! [`waiters`](Platform::waiters), with a [`Table`](crate::slots::Table) of the size that it needs. All
//! else has a default: waiters spin in order and never sleep. A kernel adds [`now`](Platform::now) for
//! time limits, [`kept_slot`](Platform::kept_slot) and [`keep_slot`](Platform::keep_slot) if threads are
//! to keep their slots between waits, and [`domain`](Platform::domain) for NUMA-aware order. The example
//! `bare_metal` of this crate is a complete one.
//!
//! # Example
//!
//! Algorithms name the platform's types, never `core::sync::atomic`:
//!
//! ```
//! use kinlock_core::Native;
//! use kinlock_core::platform::{Atomic, Atomics, Platform};
//! use core::sync::atomic::Ordering::Relaxed;
//!
//! fn bump<P: Platform>(counter: &P::AtomicU32) -> u32 {
//!     counter.fetch_add(1, Relaxed)
//! }
//!
//! let counter = <Native as Atomics>::AtomicU32::new(41);
//! assert_eq!(bump::<Native>(&counter), 41);
//! ```

pub use crate::atomic::{Atomic, Atomics, ConstAtomic, ConstAtomics, Ordering};
use crate::events::Event;
use crate::slots::Waiters;

/// A [`Platform`] whose atomics can be built in constants, so that locks can live in a `static`.
pub trait ConstPlatform: Platform + ConstAtomics {}

impl<P: Platform + ConstAtomics> ConstPlatform for P {}

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

/// The machine an algorithm runs on.
///
/// All functions are associated, not methods: a platform is a type, chosen at compile time.
pub trait Platform: Atomics {
    // ---- waiting -------------------------------------------------------------------------------------------

    /// Spins until `done(value)` holds for a value read from `word`, and returns that value.
    ///
    /// One call, so that hardware can pause or monitor the line, a simulator can block the CPU on the line, and a
    /// model checker can switch threads. `order` is the ordering of every load.
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

    /// As [`wait`](Self::wait), but gives up after about `nanos` nanoseconds, with the last value seen as `Err`. Reads
    /// `word` at least once, and the clock only if that was not enough. [`NEVER`] means not to give up; a model checker
    /// gives up at once otherwise.
    #[inline]
    fn wait_for<A: Atomic>(
        word: &A,
        order: Ordering,
        nanos: u64,
        mut done: impl FnMut(A::Value) -> bool,
    ) -> Result<A::Value, A::Value> {
        /// Pauses between two looks at the clock.
        const PAUSES: u32 = 32;

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
                Self::relax();
                value = word.load(order);
            }
            let now = Self::now();
            if now >= *until.get_or_insert(now.saturating_add(nanos)) {
                return Err(value);
            }
        }
    }

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
    #[inline]
    fn relax() {
        core::hint::spin_loop();
    }

    /// Lets another thread run on this CPU, if one wants to: for waiting for somebody who may have been preempted.
    fn yield_now() {
        Self::relax();
    }

    /// Whether more threads wait for locks now and then than there are CPUs for them: the user-space stand-in for "should
    /// I stop spinning?". Spinning then keeps a CPU from whoever is waited for. Asked on slow paths only.
    fn crowded() -> bool {
        false
    }

    // ---- parking -------------------------------------------------------------------------------------------

    /// Whether threads can sleep here. If not, [`park`](Self::park) is never called and waiters only spin.
    const CAN_PARK: bool = false;

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
    ) -> Parked {
        let _ = (key, expected, until, sets, current);
        Parked::Unwoken
    }

    /// As [`unpark_in`](Self::unpark_in), whichever sets they are in.
    fn unpark(key: *const u32, n: u32) {
        Self::unpark_in(key, n, ANYBODY);
    }

    /// Wakes up to `n` threads parked at `key` in one of the `sets` at least, those first who have slept longest. Returns how many. The
    /// memory behind `key` is not accessed.
    fn unpark_in(key: *const u32, n: u32, sets: u32) -> u32 {
        let _ = (key, n, sets);
        0
    }

    /// As [`unpark`](Self::unpark); says whether others stay asleep. In doubt they do.
    fn unpark_some(key: *const u32, n: u32) -> bool {
        let _ = (key, n);
        false
    }

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
    ) {
        let _ = (woken, from, expected, to, current);
    }

    /// Spends about so many nanoseconds without touching memory that others use.
    fn back_off(nanos: u64) {
        // Without a clock: a pause takes some ten nanoseconds.
        for _ in 0..nanos / 16 + 1 {
            Self::relax();
        }
    }

    /// The cheap half of an asymmetric pair of fences; the frequent side calls it.
    ///
    /// If a thread executes `store a; light_fence(); load b` and another `store b; heavy_fence(); load a`, then at
    /// least one of them sees the other's store. On hardware it only stops the compiler.
    #[inline]
    fn light_fence() {
        core::sync::atomic::fence(Ordering::SeqCst);
    }

    /// The dear half: `membarrier` on hardware. Returns whether it really was a barrier for every thread of the
    /// process; if not, the caller must not rely on being noticed and has to look again by itself after a while.
    fn heavy_fence() -> bool {
        core::sync::atomic::fence(Ordering::SeqCst);
        true
    }

    // ---- who and when --------------------------------------------------------------------------------------

    /// The locality domain of the CPU that the thread runs on, below [`PRIORITY`](crate::slots::PRIORITY).
    /// May be stale the moment it is returned: that costs speed, never correctness.
    fn domain() -> u16 {
        0
    }

    /// The number of the CPU that the thread runs on, modulo [`NO_CPU`]; that one if nothing tells. May be stale the moment it is
    /// returned.
    fn cpu() -> u16 {
        NO_CPU
    }

    /// Whether there may be traces of threads that do not exist: in the child of a fork.
    fn forked() -> bool {
        false
    }

    /// Whether the calling thread must not be set aside by a NUMA-aware lock (by default: threads under a real-time policy).
    fn is_priority() -> bool {
        false
    }

    /// Monotonic time in nanoseconds since some fixed point.
    fn now() -> u64 {
        0
    }

    /// A cheap pseudo-random number.
    fn random() -> u32 {
        0
    }

    // ---- waiter slots --------------------------------------------------------------------------------------

    /// The table of waiter slots shared by all locks of this platform.
    fn waiters() -> &'static Waiters<Self>;

    /// The slot this thread holds for good, as kept by [`keep_slot`](Self::keep_slot); 0 if none.
    #[inline]
    fn kept_slot() -> u16 {
        0
    }

    /// Asks the platform to keep `slot` (never 0) for this thread and to hand it to
    /// [`Waiters::release`](crate::slots::Waiters::release) when the thread ends. `false` if it cannot: the thread
    /// is ending, a signal handler was faster, or there are no thread-locals. The slot is then released after use.
    fn keep_slot(slot: u16) -> bool {
        let _ = slot;
        false
    }

    // ---- observation ---------------------------------------------------------------------------------------

    /// Counts `event`. Compiles to nothing unless events are compiled in and switched on.
    #[inline]
    fn count(event: Event) {
        let _ = event;
    }
}
