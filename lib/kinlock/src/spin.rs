//! The queued spinlock: [`SpinLock`] with guards, and raw locks for users of [`lock_api`].
//!
//! # When to use it
//!
//! For short critical sections that many threads contend for, where order within a locality domain
//! matters. Its waiters sleep, too: the first after 50 us of spinning, those behind it after 1 ms
//! at most. So more threads than CPUs do no harm. For critical sections that block or run long use
//! [`Mutex`](crate::Mutex): its waiters notice sooner that spinning is pointless.
//!
//! # Guarantees
//!
//! * **Exclusion and memory order**: one thread at a time holds the lock. Taking it acquires what
//!   the previous holder's release published.
//! * **Fairness within a locality domain**: waiters go first in, first out.
//! * **Fairness across domains**: local waiters go first for at most the
//!   [local limit](crate::config::set_local_limit) (10 ms by default) per domain that waits before.
//!   A priority waiter is never set aside for the sake of locality.
//! * **Barging**: a running thread may overtake a front waiter that sleeps, during the first 10 ms
//!   that the waiter spends at the front. [`set_stealing`](crate::config::set_stealing) turns this
//!   off; each hand-off to a sleeper then takes as long as waking it. A thread that has looked at
//!   the lock before a waiter came may in either case take it once.
//! * **Bound**: with one locality domain, the waiter at the front waits for at most 10 ms and a few
//!   critical sections and wake-ups, and one with `n` waiters before it `n + 1` times as long.
//!   Without stealing these are `n + 1` critical sections and wake-ups. This holds as long as the
//!   scheduler runs the holder and the waiters whose turn it is: one that is stopped while it spins
//!   at the front holds up all others. A waiter also needs a place in the queue, which at most
//!   16,383 threads of a process have: each keeps its place from its first queueing to its end.
//!   Others wait in no order and without a bound, and look at the lock every 0.1 ms.
//! * **`try_lock`** fails if the lock is held or a thread waits for it.
//! * **Time limits** are on the monotonic clock. A zero timeout, or a deadline in the past, tries
//!   once.
//! * **Panics** in a critical section release the lock. There is no poisoning.
//!
//! # Costs
//!
//! * **Time**: without waiters one atomic read-modify-write to lock and none to unlock. A contended
//!   hand-off costs O(1) remote cache misses. A scan also takes O(waiters) work, off the
//!   critical path.
//! * **Memory**: four bytes per lock. All-zero memory is an unlocked lock. A waiting thread uses
//!   one node of its slot in a static table. Nothing is ever allocated.
//!
//! # Misuse and special cases
//!
//! * **Relocking** in one thread waits forever, or until the time limit. Debug builds do not notice
//!   it, the feature `report` does not show this lock, and `deadlock_detection` does not see it.
//! * **Unlocking** a lock that is not held is impossible through guards, which cannot be sent to
//!   another thread, whatever the features. Raw, it does nothing if the lock is free, and otherwise
//!   ends the holder's exclusion.
//! * **Lifetime**: the memory of a lock must stay valid until each `unlock` has returned, also if
//!   another thread has had the lock since. Guards ensure that; users of [`RawSpinLock`] have to.
//! * **Leaking** a guard with `mem::forget` leaves that lock locked and affects no other.
//! * **Signals**: a handler may take any lock that the interrupted code neither holds nor is
//!   acquiring.
//! * **fork**: in the child, a lock that another thread held stays locked. All other locks work,
//!   whichever threads waited for them; the forking thread can unlock those that it held.
//!
//! # Algorithm
//!
//! The lock word and its slow path have the shape of the Linux kernel's queued spinlock (Zijlstra,
//! Long and others, 2014-2015). NUMA-aware order is CNA (Dice and Kogan, "Compact NUMA-aware
//! locks", EuroSys 2019) with the local limit and the priority waiters of its Linux patches.
//! `docs/guide/spin.md` explains what differs for threads, which can be preempted.
//!
//! # Example
//!
//! Any user of `lock_api` can take the raw lock:
//!
//! ```
//! use kinlock::lock_api::Mutex;
//! use kinlock::RawSpinLock;
//!
//! let shared: Mutex<RawSpinLock, Vec<u32>> = Mutex::new(vec![]);
//! shared.lock().push(7);
//! assert_eq!(shared.into_inner(), [7]);
//! ```
//!
//! # Invariant cited by `SAFETY` comments
//!
//! 1. `QueuedSpinLock` excludes: its `locked` byte is set by a compare-and-swap from 0, and only an
//!    unlock clears it.

use crate::machine::{AsConfigured, Fifo, Native, NumaAware};
use kinlock_core::raw::qspinlock::QueuedSpinLock;
use lock_api::{GuardNoSend, RawMutex};

/// A queued spinlock of four bytes plus the data, NUMA-aware as configured (`auto` by default).
///
/// It has the methods and the auto traits of a [`Mutex`](crate::Mutex). The [module](self) states
/// guarantees, costs and misuse.
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

/// Holds a [`SpinLock`]. Dropping it unlocks the lock. It cannot be sent to other threads.
pub type SpinLockGuard<'a, T> = lock_api::MutexGuard<'a, RawSpinLock, T>;

/// Holds a [`SpinLock`] and refers to a part of its data. Dropping it unlocks the lock.
///
/// ```
/// use kinlock::{SpinLock, SpinLockGuard};
///
/// let pair = SpinLock::new((1, "one"));
/// *SpinLockGuard::map(pair.lock(), |pair| &mut pair.0) += 1;
/// assert_eq!(pair.lock().0, 2);
/// ```
pub type MappedSpinLockGuard<'a, T> = lock_api::MappedMutexGuard<'a, RawSpinLock, T>;

macro_rules! raw_spin_lock {
    ($(#[$doc:meta])* $name:ident, $config:ty) => {
        $(#[$doc])*
        #[repr(transparent)]
        #[derive(Debug)]
        pub struct $name(QueuedSpinLock<Native, $config>);

        // SAFETY: invariant 1.
        unsafe impl RawMutex for $name {
            const INIT: Self = $name(QueuedSpinLock::new());
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

        // SAFETY: invariant 1; `true` is returned only if the lock was taken.
        #[cfg(feature = "std")]
        unsafe impl lock_api::RawMutexTimed for $name {
            type Duration = std::time::Duration;
            type Instant = std::time::Instant;

            /// Gives up after `timeout`. A zero timeout tries once.
            fn try_lock_for(&self, timeout: Self::Duration) -> bool {
                self.0.lock_until(kinlock_linux::native::deadline(timeout))
            }

            /// Gives up at the moment `timeout`. A moment in the past tries once.
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
    /// The lock of [`SpinLock`] without data, NUMA-aware as [configured](crate::config).
    RawSpinLock, AsConfigured
}

raw_spin_lock! {
    /// Like [`RawSpinLock`], but waiters always go first in, first out. The other knobs apply.
    ///
    /// ```
    /// use kinlock::{RawFifoSpinLock, lock_api::Mutex};
    ///
    /// static TICKETS: Mutex<RawFifoSpinLock, u32> = Mutex::new(0);
    ///
    /// *TICKETS.lock() += 1;
    /// ```
    RawFifoSpinLock, Fifo
}

raw_spin_lock! {
    /// Like [`RawSpinLock`], but always NUMA-aware. The other knobs apply.
    ///
    /// ```
    /// use kinlock::{RawCnaSpinLock, lock_api::Mutex};
    ///
    /// static FREE: Mutex<RawCnaSpinLock, Vec<u32>> = Mutex::new(Vec::new());
    ///
    /// FREE.lock().push(1);
    /// ```
    RawCnaSpinLock, NumaAware
}

/// Makes the calling thread a priority waiter, or an ordinary one.
///
/// NUMA-aware locks never set a priority waiter aside for the sake of locality: no thread that
/// queued behind it overtakes it. `None` restores the default, by which a thread under a real-time
/// scheduling policy is a priority waiter. The policy is read once per thread, when it first
/// queues. A signal handler that has interrupted a wait for another lock is a priority waiter
/// whatever is set here, since the queue of that lock may stand still until the handler returns.
///
/// ```
/// kinlock::spin::set_priority_waiter(Some(true));
/// ```
#[cfg(feature = "std")]
pub fn set_priority_waiter(on: Option<bool>) {
    kinlock_linux::native::set_priority(on);
}

#[cfg(feature = "std")]
impl RawSpinLock {
    /// Makes this an unlocked lock in the child of a fork, whatever its word says.
    ///
    /// # Safety
    ///
    /// No other thread uses the lock during the call, and none that got it before relies on holding
    /// it.
    ///
    /// ```compile_fail,E0133
    /// kinlock::RawSpinLock::new().reset_in_child();
    /// ```
    #[doc(hidden)]
    pub unsafe fn reset_in_child(&self) {
        // SAFETY: as this function demands.
        unsafe { self.0.reset_in_child() };
    }
}
