//! The mutex for users: [`Mutex`] with guards, and [`RawMutex`] for [`lock_api`].
//!
//! # When to use it
//!
//! This is the lock for most purposes: threads that wait spin for a moment and then sleep, a lock that one thread keeps taking stays on that
//! thread's CPU for a while, and nobody starves. Where four bytes and strict order matter more than the speed of sleeping, see [`SpinLock`](crate::SpinLock).
//!
//! # Semantics
//!
//! * **Memory order**: taking the lock acquires what the previous holder's release published.
//! * **Fairness**: whoever runs may take a free lock. Waiters stand in a queue, first in, first out; the one at its head gets the lock handed over after
//!   a [quantum](kinlock_core::tuning::Quantum) (250 us unless [set](kinlock_core::config::set_quantum)) if the others are quick with it, and after 8 us if they are not; after eight
//!   quanta while there are more waiting threads than CPUs. While nobody queues, threads that take turns do so without queueing: whoever waits takes the lock when it is free, or has it handed
//!   over after about a microsecond. So a waiter with `n` before it waits for `n + 1` turns at most, as long as the scheduler runs the holder, and whoever has come to the head;
//!   see [`raw::mutex`](kinlock_core::raw::mutex).
//! * **NUMA**: where locks are [NUMA-aware](kinlock_core::config::set_numa), waiters of the holder's locality domain come first for at most the local limit, as with
//!   [`SpinLock`](crate::SpinLock). Whether they are is decided once for all mutexes, when the first waits.
//! * **Cost**: one read-modify-write to take, none to release, while nobody waits. Waiting costs a queue node and a cache line of the thread's own.
//! * **Memory**: four bytes per mutex; all-zero memory is an unlocked one. Waiting uses one node of the thread's waiter slot, in a static table; nothing is ever allocated.
//! * **Poisoning**: none. A panic in a critical section releases the lock.
//! * **Reentrancy**: none. Relocking in one thread waits for ever; with `debug_assertions` it panics, unless more locks are held at a time than a small table remembers. With a time limit it times out.
//! * **Unlocking** what one does not hold is impossible through guards, which cannot be sent to other threads. Through `unsafe` functions it is undefined what is protected then; with
//!   `debug_assertions` unlocking a mutex that nobody holds panics.
//! * **Signals**: a handler may take any lock that the code it interrupts neither holds nor is acquiring.
//! * **fork**: in the child, locks held or waited for by other threads stay as they are; all others work.
//! * **Leaking** a guard with `mem::forget` locks that lock for ever and harms no other.
//! * **Time limits** are on the monotonic clock, so that setting the time of day changes nothing. A zero timeout or a moment that has passed tries once.
//!
//! # Example
//!
//! ```
//! use kinlock::Mutex;
//! use std::time::Duration;
//!
//! static NAMES: Mutex<Vec<&str>> = Mutex::new(Vec::new());
//!
//! NAMES.lock().push("first");
//! let names = NAMES.try_lock_for(Duration::from_millis(10)).expect("nobody holds it");
//! assert_eq!(*names, ["first"]);
//! ```

mod held;

use kinlock_core::Native;
use kinlock_core::configured::AsConfigured;
use kinlock_core::raw::mutex::QueuedMutex;
use lock_api::GuardNoSend;

/// A mutex of four bytes plus the data.
///
/// The whole surface is [`lock_api::Mutex`]'s: `lock`, `try_lock`, `try_lock_for`, `try_lock_until`, `get_mut`,
/// `into_inner`, `const new`, guards that can be mapped and cannot be sent. See the [module](self) for semantics.
pub type Mutex<T> = lock_api::Mutex<RawMutex, T>;

/// Holds a [`Mutex`]; dropping it releases the lock.
pub type MutexGuard<'a, T> = lock_api::MutexGuard<'a, RawMutex, T>;

/// Holds a [`Mutex`] and refers to a part of its data.
pub type MappedMutexGuard<'a, T> = lock_api::MappedMutexGuard<'a, RawMutex, T>;

/// The lock of [`Mutex`], without data, for any user of [`lock_api`] 0.4.
///
/// ```
/// use kinlock::{RawMutex, lock_api};
///
/// type Mutex<T> = lock_api::Mutex<RawMutex, T>; // was: parking_lot::RawMutex
///
/// assert_eq!(Mutex::new(7).into_inner(), 7);
/// ```
#[repr(transparent)]
#[derive(Debug)]
pub struct RawMutex(pub(crate) QueuedMutex<Native, AsConfigured>);

impl RawMutex {
    /// For the child of a fork: makes it an unlocked lock, whatever its word says.
    #[doc(hidden)]
    pub fn reset_in_child(&self) {
        self.0.reset_in_child();
    }

    /// An unlocked lock. All-zero memory is one too.
    pub const fn new() -> Self {
        <Self as lock_api::RawMutex>::INIT
    }
}

impl Default for RawMutex {
    fn default() -> Self {
        Self::new()
    }
}

const _: () = assert!(size_of::<RawMutex>() == 4 && align_of::<RawMutex>() == 4);

// SAFETY: `QueuedMutex` excludes: its `locked` byte is taken by a compare-and-swap from 0, and passes to one claimant or is cleared by `unlock` only.
unsafe impl lock_api::RawMutex for RawMutex {
    // Each use is meant to be a new lock.
    #[allow(clippy::declare_interior_mutable_const)]
    const INIT: Self = RawMutex(QueuedMutex::UNLOCKED);
    type GuardMarker = GuardNoSend;

    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    fn lock(&self) {
        held::forbid_relock(self);
        self.0.lock();
        held::note(self);
    }

    #[inline]
    fn try_lock(&self) -> bool {
        let taken = self.0.try_lock();
        if taken {
            held::note(self);
        }
        taken
    }

    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    unsafe fn unlock(&self) {
        held::forget(self);
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
unsafe impl lock_api::RawMutexTimed for RawMutex {
    type Duration = std::time::Duration;
    type Instant = std::time::Instant;

    /// Gives up after `timeout`. A zero timeout tries once.
    fn try_lock_for(&self, timeout: Self::Duration) -> bool {
        let taken = self.0.lock_until(kinlock_core::native::deadline(timeout));
        if taken {
            held::note(self);
        }
        taken
    }

    /// Gives up at `timeout`. A moment that has passed tries once.
    fn try_lock_until(&self, timeout: Self::Instant) -> bool {
        self.try_lock_for(timeout.saturating_duration_since(Self::Instant::now()))
    }
}
