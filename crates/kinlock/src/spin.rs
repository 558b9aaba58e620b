//! The queued spinlock for users: [`SpinLock`] with guards, and raw locks for [`lock_api`].
//!
//! # When to use it
//!
//! For short critical sections that many threads fight for, where four bytes per lock matter, or where first-in-first-out order within a locality
//! domain matters. Waiters spin for a short while and then sleep, so more threads than CPUs are
//! fine. For sections that block or run long, use a mutex: its waiters know sooner that spinning is pointless.
//!
//! # Semantics
//!
//! * **Memory order**: taking the lock acquires what the previous holder's release published.
//! * **Fairness**: first in first out within a locality domain (with the incremental scan: roughly). Across domains, local waiters go first
//!   for at most the local limit (default 10 ms; see [`config`](kinlock_core::config)) per domain that waits before. A waiter that sleeps at the front can be overtaken by running
//!   threads until it runs again, and not any more once it has been at the front for
//!   [`STEAL_LIMIT`](kinlock_core::raw::qspinlock::STEAL_LIMIT). [`set_stealing`](kinlock_core::config::set_stealing) forbids even that, at the price of a wake-up per
//!   hand-off to a sleeper.
//! * **Cost**: one read-modify-write to take, none to release, while uncontended. Contended: O(1) remote cache misses
//!   per hand-off; with the full scan, O(waiters) work off the critical path.
//! * **Memory**: four bytes per lock. Waiting uses one node of the thread's waiter slot, in a static table; nothing is ever allocated.
//! * **Poisoning**: none. A panic in a critical section releases the lock.
//! * **Reentrancy**: none. Relocking in one thread waits for ever.
//! * **Signals**: a handler may take any lock that the code it interrupts neither holds nor is acquiring.
//! * **fork**: in the child, locks held or waited for by other threads stay as they are; all others work.
//! * **Leaking** a guard with `mem::forget` locks that lock for ever and harms no other.
//!
//! # Example: any `lock_api` user
//!
//! ```
//! use kinlock::lock_api::Mutex;
//! use kinlock::RawSpinLock;
//!
//! let shared: Mutex<RawSpinLock, Vec<u32>> = Mutex::new(vec![]);
//! shared.lock().push(7);
//! assert_eq!(shared.into_inner(), [7]);
//! ```

use kinlock_core::Native;
use kinlock_core::configured::{AsConfigured, Fifo, NumaAware};
use kinlock_core::raw::qspinlock::QueuedSpinLock;
use lock_api::{GuardNoSend, RawMutex};

/// A spinlock of four bytes plus the data, NUMA-aware as configured (`auto` by default).
///
/// The whole surface is [`lock_api::Mutex`]'s: `lock`, `try_lock`, `try_lock_for`, `try_lock_until`, `get_mut`,
/// `into_inner`, `const new`, guards that can be mapped and cannot be sent. See the [module](self) for semantics.
///
/// ```
/// use kinlock::SpinLock;
///
/// static QUEUE: SpinLock<Vec<u8>> = SpinLock::new(Vec::new());
///
/// QUEUE.lock().push(1);
/// assert_eq!(QUEUE.try_lock().map(|q| q.len()), Some(1));
/// ```
pub type SpinLock<T> = lock_api::Mutex<RawSpinLock, T>;

/// Holds a [`SpinLock`]; dropping it releases the lock.
pub type SpinLockGuard<'a, T> = lock_api::MutexGuard<'a, RawSpinLock, T>;

/// Holds a [`SpinLock`] and refers to a part of its data.
pub type MappedSpinLockGuard<'a, T> = lock_api::MappedMutexGuard<'a, RawSpinLock, T>;

macro_rules! raw_spin_lock {
    ($(#[$doc:meta])* $name:ident, $config:ty) => {
        $(#[$doc])*
        #[repr(transparent)]
        #[derive(Debug)]
        pub struct $name(QueuedSpinLock<Native, $config>);

        // SAFETY: `QueuedSpinLock` excludes: its `locked` byte is taken by a compare-and-swap from 0, and only `unlock` clears it.
        unsafe impl RawMutex for $name {
            const INIT: Self = $name(QueuedSpinLock::UNLOCKED);
            type GuardMarker = GuardNoSend;

            #[inline]
            fn lock(&self) {
                self.0.lock();
            }

            #[inline]
            fn try_lock(&self) -> bool {
                self.0.try_lock()
            }

            #[inline]
            unsafe fn unlock(&self) {
                // SAFETY: the caller holds the lock, as this function demands.
                unsafe { self.0.unlock() }
            }

            #[inline]
            fn is_locked(&self) -> bool {
                self.0.is_locked()
            }
        }

        // SAFETY: as above; `true` is returned only if the lock was taken.
        #[cfg(feature = "std")]
        unsafe impl lock_api::RawMutexTimed for $name {
            type Duration = std::time::Duration;
            type Instant = std::time::Instant;

            /// Gives up after `timeout`. A zero timeout tries once.
            fn try_lock_for(&self, timeout: Self::Duration) -> bool {
                self.0.lock_until(kinlock_core::native::deadline(timeout))
            }

            /// Gives up at `timeout`. A moment that has passed tries once.
            fn try_lock_until(&self, timeout: Self::Instant) -> bool {
                self.try_lock_for(timeout.saturating_duration_since(Self::Instant::now()))
            }
        }

        impl $name {
            /// An unlocked lock. All-zero memory is one too.
            pub const fn new() -> Self {
                <Self as RawMutex>::INIT
            }
        }

        impl Default for $name {
            fn default() -> Self {
                Self::new()
            }
        }

        const _: () = assert!(size_of::<$name>() == 4 && align_of::<$name>() == 4);
    };
}

raw_spin_lock! {
    /// The lock of [`SpinLock`], without data: NUMA-aware or not, as [configured](kinlock_core::config).
    RawSpinLock, AsConfigured
}

raw_spin_lock! {
    /// As [`RawSpinLock`], but first in first out whatever the configuration says.
    RawFifoSpinLock, Fifo
}

raw_spin_lock! {
    /// As [`RawSpinLock`], but NUMA-aware whatever the configuration says. The other knobs apply.
    RawCnaSpinLock, NumaAware
}

/// Says whether the calling thread is a priority waiter: one that NUMA-aware locks never set aside for the sake of
/// locality, so that nobody who queued behind it overtakes it. `None` returns to the default: threads under a
/// real-time scheduling policy (looked up once per thread, when it first queues).
#[cfg(feature = "std")]
pub fn set_priority_waiter(on: Option<bool>) {
    kinlock_core::native::set_priority(on);
}

#[cfg(feature = "std")]
impl RawSpinLock {
    /// For the child of a fork: makes it an unlocked lock, whatever its word says.
    #[doc(hidden)]
    pub fn reset_in_child(&self) {
        self.0.reset_in_child();
    }
}
