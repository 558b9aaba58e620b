//! The mutex: [`Mutex`] with guards, and [`RawMutex`] for users of [`lock_api`].
//!
//! # When to use it
//!
//! This is the lock for most purposes. A thread that finds it taken spins for some microseconds and
//! then queues. The first in the queue may spin, the others sleep.
//! A lock that one thread takes again and again stays on that thread's CPU for a while, and no
//! waiter starves. For critical sections of a few instructions that are taken in order, see
//! [`SpinLock`](crate::SpinLock).
//!
//! # Guarantees
//!
//! * **Exclusion and memory order**: one thread at a time holds the lock. Taking it acquires what
//!   the previous holder's release published.
//! * **Fairness**: a running thread may take a free lock ahead of waiters (*barging*). Waiters
//!   stand in a first-in, first-out queue. The waiter at its front takes the lock when it is free.
//!   But a lock that its holder takes again at once is left to the holder for a
//!   [quantum](crate::config::Quantum), 1 ms; [`set_quantum`](crate::config::set_quantum) changes
//!   it. If `k` waiters stand behind the front, it is `2 / (k + 1)` of that at most, but not less
//!   than 20 us; for a waiter with a time limit, an eighth of what is left of the limit at most.
//!   After this time the front waiter requests a hand-off in any case: the next unlock hands it the
//!   lock, and at most one thread may take the lock before that. (With the feature `packed` a
//!   waiter that sleeps with no other behind it requests when it is woken after this time, or 4 ms
//!   after it fell asleep.)
//! * **Bound**: while all threads run, a waiter with up to 100 others ahead of it waits 16 ms at
//!   most for its turn, plus the time of critical sections, of wake-ups and, with NUMA reordering,
//!   of the local limit. The guide's page on the mutex derives this, and says what becomes of it if
//!   a thread does not run or more than 16,383 threads wait.
//! * **NUMA**: with [reordering](crate::config::set_numa) on, waiters of the holder's locality
//!   domain go first, for at most the [local limit](crate::config::set_local_limit). This is
//!   decided once for all mutexes of the process, within its first seventeen contended waits.
//! * **Time limits** are on the monotonic clock, so setting the time of day changes nothing. A zero
//!   timeout, or a deadline in the past, tries once.
//! * **Panics** in a critical section release the lock. There is no poisoning.
//!
//! # Costs
//!
//! * **Time**: without waiters one atomic read-modify-write to lock and none to unlock. A contended
//!   hand-off costs O(1) transfers of cache lines. A waiter that sleeps costs one system call to
//!   sleep and one to wake it. If it sleeps at the front for longer than a millisecond, it needs a
//!   `membarrier`, of which the process makes one per millisecond at most.
//! * **Memory**: four bytes per mutex. All-zero memory is an unlocked mutex. A waiting thread uses
//!   one node of its slot in a static table, of which only touched pages take memory (6.3 MB in
//!   `.bss`). Nothing is ever allocated.
//!
//! # Misuse and special cases
//!
//! * **Relocking** in one thread waits forever, or until the time limit. With `debug_assertions`,
//!   locking without a time limit panics instead, for as many locks as a small table remembers.
//! * **Unlocking** a mutex that is not held is impossible through guards. They cannot be sent to
//!   another thread, except with the feature `send_guard`, which makes it legal to release a mutex
//!   in any thread. Through `unsafe` functions it ends the exclusion. With `debug_assertions`,
//!   unlocking a free mutex panics.
//! * **Lifetime**: the memory of a mutex must stay valid until each `unlock` has returned, also if
//!   another thread has had the lock since. Guards ensure that; users of [`RawMutex`] have to. With
//!   the feature `packed` a [`Mutex`] may be freed as soon as another thread can have taken it: an
//!   unlock then uses its address only. A [`FairMutex`] may not.
//! * **Leaking** a guard with `mem::forget` leaves that mutex locked and affects no other.
//! * **Signals**: a handler may take any lock that the interrupted code neither holds nor is
//!   acquiring.
//! * **fork**: in the child, a lock that another thread held stays locked. All other locks work,
//!   even if other threads waited for them; the forking thread can unlock those that it held. But a
//!   lock that threads fought for at a fork, and that nobody touches in three processes, each
//!   forked by the one before, may stay locked in the fourth. A child made by `_Fork` or by a bare
//!   `clone` runs no fork handlers: there the same holds with Linux 4.14 and pages of 4 KiB; else
//!   any lock that threads of the parent waited for may stay locked.
//!
//! # Algorithm
//!
//! The queue comes from the Linux kernel's mutex (optimistic spinning: Waiman
//! Long, 2013; its cancellable queue: Peter Zijlstra, 2014). NUMA-aware order is CNA (Dice and
//! Kogan, EuroSys 2019). A lock that stays with its holder for a quantum is the same idea, applied
//! to cores. `docs/guide/mutex.md` explains how they work together.
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
//! let names = NAMES.try_lock_for(Duration::from_millis(10)).expect("no other thread holds it");
//! assert_eq!(*names, ["first"]);
//! ```
//!
//! # Invariant cited by `SAFETY` comments
//!
//! 1. `QueuedMutex` and `QueuedSpinLock` exclude: their `locked` byte is set by a compare-and-swap
//!    from 0. An unlock clears it, or leaves it set for the one waiter that requested a hand-off.

use crate::deadlock::{self, Acquiring, Kind, acquire};
use crate::machine::{AsConfigured, InOrder, Native};
use crate::report::{releasing, taking};
#[cfg(feature = "packed")]
use kinlock_core::raw::mutex::Joined as Word;
use kinlock_core::raw::mutex::QueuedMutex;
#[cfg(not(feature = "packed"))]
use kinlock_core::raw::mutex::Split as Word;
use kinlock_core::raw::qspinlock::QueuedSpinLock;

/// Whether guards may be sent to other threads.
#[cfg(feature = "send_guard")]
pub(crate) type GuardMarker = lock_api::GuardSend;
#[cfg(not(feature = "send_guard"))]
pub(crate) type GuardMarker = lock_api::GuardNoSend;

/// A mutex of four bytes plus the data, rounded up to the data's alignment.
///
/// ```
/// use kinlock::Mutex;
///
/// let names = Mutex::new(vec!["first"]);
/// names.lock().push("second"); // The guard is dropped here, which unlocks the mutex.
/// {
///     let mut names = names.lock();
///     names.sort();
/// } // Here, too.
/// assert_eq!(names.try_lock().map(|names| names.len()), Some(2));
/// assert_eq!(names.into_inner(), ["first", "second"]);
/// ```
///
/// This is an alias. The page of [`lock_api::Mutex`] has its methods: `new` (`const`), `lock`,
/// `try_lock`, `try_lock_for`, `try_lock_until`, `get_mut`, `into_inner`.
///
/// The mutex is `Send` and `Sync` if the data is `Send`. It is never `RefUnwindSafe`: a closure
/// that borrows it needs an [`AssertUnwindSafe`](core::panic::AssertUnwindSafe) for `catch_unwind`,
/// since a panic leaves the data as it is. The [module](self) states guarantees, costs and misuse.
pub type Mutex<T> = lock_api::Mutex<RawMutex, T>;

/// Holds a [`Mutex`]. Dropping it unlocks the mutex. It can be sent to other threads with the
/// feature `send_guard` only.
///
/// ```
/// use kinlock::{Mutex, MutexGuard};
///
/// let mutex = Mutex::new(1);
/// let mut guard: MutexGuard<u32> = mutex.lock();
/// *guard += 1;
/// MutexGuard::unlocked(&mut guard, || assert_eq!(mutex.try_lock().as_deref(), Some(&2)));
/// assert!(mutex.is_locked());
/// ```
pub type MutexGuard<'a, T> = lock_api::MutexGuard<'a, RawMutex, T>;

/// Holds a [`Mutex`] and refers to a part of its data. Dropping it unlocks the mutex.
///
/// ```
/// use kinlock::{Mutex, MutexGuard};
///
/// let pair = Mutex::new((1, "one"));
/// let mut number = MutexGuard::map(pair.lock(), |pair| &mut pair.0);
/// *number = 2;
/// drop(number);
/// assert_eq!(pair.lock().0, 2);
/// ```
pub type MappedMutexGuard<'a, T> = lock_api::MappedMutexGuard<'a, RawMutex, T>;

/// A mutex of the size of a [`Mutex`] that goes to its waiters in the order of their queue.
///
/// While a thread waits, whether it runs or not, no newcomer takes the mutex, except one that has
/// looked at it before that thread began to wait. Locality does not count, nor does the knob for
/// stealing. Up to 16,383 threads of a process can queue, and each keeps its place until it ends.
/// Others wait in no order, and look at the lock every 0.1 ms.
///
/// Each hand-off to a sleeper waits until the sleeper has woken up; a [`Mutex`] waits for that once
/// per [quantum](crate::config::Quantum) only. The lock is the queued [spinlock](crate::spin),
/// whose other guarantees and costs hold. Its methods and its auto traits are those of [`Mutex`].
/// Misuse has the consequences that [the mutex's page](self#misuse-and-special-cases) names.
///
/// ```
/// use kinlock::FairMutex;
///
/// static TURNS: FairMutex<u32> = FairMutex::new(0);
///
/// *TURNS.lock() += 1;
/// assert_eq!(*TURNS.lock(), 1);
/// ```
pub type FairMutex<T> = lock_api::Mutex<RawFairMutex, T>;

/// Holds a [`FairMutex`]. Dropping it unlocks the mutex.
pub type FairMutexGuard<'a, T> = lock_api::MutexGuard<'a, RawFairMutex, T>;

/// Holds a [`FairMutex`] and refers to a part of its data. Dropping it unlocks the mutex.
pub type MappedFairMutexGuard<'a, T> = lock_api::MappedMutexGuard<'a, RawFairMutex, T>;

/// A new mutex, in a constant: [`Mutex::new`] by the name that users of parking_lot know.
///
/// ```
/// static HITS: kinlock::Mutex<u64> = kinlock::const_mutex(0);
/// ```
pub const fn const_mutex<T>(value: T) -> Mutex<T> {
    Mutex::new(value)
}

/// A new fair mutex, in a constant: [`FairMutex::new`] by the name that users of parking_lot know.
///
/// ```
/// static TURNS: kinlock::FairMutex<u64> = kinlock::const_fair_mutex(0);
/// ```
pub const fn const_fair_mutex<T>(value: T) -> FairMutex<T> {
    FairMutex::new(value)
}

macro_rules! raw_mutex {
    ($(#[$doc:meta])* $name:ident, $lock:ty, $at_once:ident,
     $(#[$fair_doc:meta])* $unlock_fair:ident, $make_way:ident) => {
        $(#[$doc])*
        #[repr(transparent)]
        pub struct $name(pub(crate) $lock);

        impl $name {
            /// An unlocked lock. All-zero memory is one too.
            pub const fn new() -> Self {
                <Self as lock_api::RawMutex>::INIT
            }

            /// Takes the lock, and returns `true`.
            #[inline]
            #[cfg_attr(debug_assertions, track_caller)]
            fn take(&self) -> bool {
                if cfg!(debug_assertions) && self.0.is_locked() {
                    deadlock::forbid_relock(&self.0);
                }
                acquire!(
                    Acquiring::begin(&self.0, Kind::Mutex),
                    until,
                    self.0.lock_until(until),
                    self.0.lock()
                );
                true
            }

            /// Takes the lock if no thread holds it.
            #[inline]
            fn take_if_free(&self) -> bool {
                self.noted(self.0.try_lock())
            }

            /// The first step of a wait.
            #[cfg(feature = "report")]
            #[inline]
            fn take_at_once(&self) -> bool {
                self.noted(self.0.$at_once())
            }

            #[inline]
            fn noted(&self, taken: bool) -> bool {
                deadlock::tried(&self.0, Kind::Mutex, taken)
            }

            /// Called before each release.
            #[inline]
            #[cfg_attr(debug_assertions, track_caller)]
            fn note_release(&self) {
                releasing!(self, Mutex);
                debug_assert!(
                    self.0.is_locked(),
                    "unlock of a kinlock mutex that no thread holds"
                );
                deadlock::releasing(&self.0);
            }
        }

        #[cfg(feature = "report")]
        impl crate::report::Reported for $name {
            fn is_held(&self) -> bool {
                self.0.is_locked()
            }

            fn is_held_by_writer(&self) -> bool {
                self.0.is_locked()
            }
        }

        impl Default for $name {
            fn default() -> Self {
                Self::new()
            }
        }

        impl core::fmt::Debug for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                let locked = self.0.is_locked();
                let mut shown = f.debug_struct(stringify!($name));
                shown.field("locked", &locked).finish_non_exhaustive()
            }
        }

        const _: () = assert!(size_of::<$name>() == 4 && align_of::<$name>() == 4);

        // SAFETY: invariant 1.
        unsafe impl lock_api::RawMutex for $name {
            // Each use makes a new lock.
            #[allow(clippy::declare_interior_mutable_const)]
            const INIT: Self = $name(<$lock>::new());
            type GuardMarker = GuardMarker;

            #[inline]
            #[cfg_attr(any(debug_assertions, feature = "report"), track_caller)]
            fn lock(&self) {
                taking!(
                    self,
                    Mutex,
                    Endless,
                    self.take_at_once(),
                    self.take_if_free(),
                    self.take()
                );
            }

            #[inline]
            #[cfg_attr(feature = "report", track_caller)]
            fn try_lock(&self) -> bool {
                taking!(self, Mutex, self.take_if_free())
            }

            #[inline]
            #[cfg_attr(debug_assertions, track_caller)]
            unsafe fn unlock(&self) {
                self.note_release();
                // SAFETY: the caller holds the lock, as this function demands.
                unsafe { self.0.unlock() }
            }

            #[inline]
            fn is_locked(&self) -> bool {
                self.0.is_locked()
            }
        }

        // SAFETY: invariant 1; the fair unlock is an unlock, too.
        unsafe impl lock_api::RawMutexFair for $name {
            $(#[$fair_doc])*
            #[cfg_attr(debug_assertions, track_caller)]
            unsafe fn unlock_fair(&self) {
                self.note_release();
                // SAFETY: the caller holds the lock, as this function demands.
                unsafe { self.0.$unlock_fair() }
            }

            /// Unlocks as `unlock_fair` does, and locks again.
            #[cfg_attr(any(debug_assertions, feature = "report"), track_caller)]
            unsafe fn bump(&self) {
                self.note_release();
                // SAFETY: the caller holds the lock, as this function demands, and the lock stays,
                // since the caller has it again afterwards.
                unsafe { self.0.$make_way() }
                lock_api::RawMutex::lock(self);
            }
        }

        // SAFETY: invariant 1; `true` is returned only if the lock was taken.
        #[cfg(feature = "std")]
        unsafe impl lock_api::RawMutexTimed for $name {
            type Duration = std::time::Duration;
            type Instant = std::time::Instant;

            /// Gives up after `timeout`. A zero timeout tries once.
            #[cfg_attr(feature = "report", track_caller)]
            fn try_lock_for(&self, timeout: Self::Duration) -> bool {
                taking!(self, Mutex, Limited, self.take_at_once(), self.take_if_free(), {
                    let until = kinlock_linux::native::deadline(timeout);
                    self.noted(self.0.lock_until(until))
                })
            }

            /// Gives up at the moment `timeout`. A moment in the past tries once.
            #[cfg_attr(feature = "report", track_caller)]
            fn try_lock_until(&self, timeout: Self::Instant) -> bool {
                self.try_lock_for(timeout.saturating_duration_since(Self::Instant::now()))
            }
        }
    };
}

raw_mutex! {
    /// The lock of [`Mutex`] without data, for any user of [`lock_api`] 0.4.
    ///
    /// ```
    /// use kinlock::{RawMutex, lock_api};
    ///
    /// type Mutex<T> = lock_api::Mutex<RawMutex, T>; // was: parking_lot::RawMutex
    ///
    /// assert_eq!(Mutex::new(7).into_inner(), 7);
    /// ```
    RawMutex, QueuedMutex<Native, AsConfigured, Word<Native>>, lock_at_once,
    /// Unlocks. If threads wait, stands aside until one of them has the lock, for at most 250 us.
    ///
    /// Fair to threads that queue; another running thread may be faster than they are. With the
    /// feature `packed` this thread does not see when a waiter has the lock, and stands aside for
    /// 20 us.
    unlock_fair_and_leave, unlock_fair
}

raw_mutex! {
    /// The lock of [`FairMutex`] without data, for any user of [`lock_api`] 0.4.
    ///
    /// ```
    /// use kinlock::{RawFairMutex, lock_api::RawMutex};
    ///
    /// let lock = RawFairMutex::new();
    /// lock.lock();
    /// assert!(!lock.try_lock());
    /// // SAFETY: this thread has locked it.
    /// unsafe { lock.unlock() };
    /// ```
    RawFairMutex, QueuedSpinLock<Native, InOrder>, try_lock,
    /// Like `unlock`, which is fair.
    unlock, unlock
}

impl RawMutex {
    /// Makes this an unlocked lock in the child of a fork, whatever its word says.
    ///
    /// # Safety
    ///
    /// No other thread uses the lock during the call, and none that got it before relies on holding
    /// it.
    ///
    /// ```compile_fail,E0133
    /// kinlock::RawMutex::new().reset_in_child();
    /// ```
    #[doc(hidden)]
    pub unsafe fn reset_in_child(&self) {
        // SAFETY: as this function demands.
        unsafe { self.0.reset_in_child() };
    }
}
