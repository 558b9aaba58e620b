//! The reader-writer lock: [`RwLock`] with guards, and [`RawRwLock`] for users of [`lock_api`].
//!
//! # When to use it
//!
//! For data that many threads read and few change. With short sections that often write, use
//! [`Mutex`](crate::Mutex): readers, too, change the lock's cache line.
//!
//! # Guarantees
//!
//! * **Exclusion and memory order**: one writer, or any number of readers, hold the lock. Taking it
//!   for reading acquires what earlier writers released; taking it for writing also acquires what
//!   earlier readers released.
//! * **Fairness**: readers and running writers may pass a waiting writer for one
//!   [quantum](crate::config::Quantum). Then it asks to go next, and no thread enters before it
//!   except readers by `read_recursive`: these have no limit. When a writer leaves, all readers
//!   that wait hold the lock before the next writer.
//! * **Bounds**: the writer at the front of the queue waits for one quantum, one writer's section,
//!   and the sections of one batch of readers, plus the time that the writer and these threads take
//!   to wake up. A reader that has waited for a quantum waits for one batch of readers and one
//!   writer. With a time limit, an eighth of what is left of the limit replaces the quantum, if
//!   that is less. A writer with `n` writers before it waits `n + 1` times as long as the one at
//!   the front. This holds as long as the scheduler runs the holders and the waiters whose turn it
//!   is, for a wait of less than 4.5 ms for each waiter before it, counted as by the
//!   [mutex](crate::mutex), and up to 16,383 waiters in the process. A writer that has waited for
//!   longer leaves the queue if it finds the lock free, or finds that no waiter has asked to go
//!   next. Its wait has no bound then; nor has the wait of a writer that goes on in place of
//!   another one that does not run.
//! * **Read bias**: readers that contend make the lock *read-biased*. From then on they announce
//!   themselves in a table, and write no shared cache line. The next writer ends the bias by a
//!   *revocation*. The longer that took, the fewer contending readers set the bias again: one in 8
//!   to one in 4096, by chance. Nothing else bounds the share of their time that writers spend on
//!   revocations.
//! * **Recursion**: a thread that already reads may use `read_recursive`, which passes waiting
//!   writers. A second plain `read` may wait forever behind a writer. With `debug_assertions` it
//!   panics when it has done so for a second, for as many reads as a small table remembers; not
//!   with the features `send_guard` and `deadlock_detection`.
//! * **Upgradable readers**: one at a time, together with plain readers. They queue with the
//!   writers.
//! * **Upgrade**: an upgradable reader becomes a writer once all other readers have left. No writer
//!   comes in between, and until then readers enter by `read_recursive` only; with a time limit
//!   other readers still enter for an eighth of the limit, or for a quantum if that is less. If the
//!   limit ends first, the thread still is the upgradable reader. `try_upgrade` fails if there is
//!   another reader. A thread that holds a plain read guard, too, waits for itself.
//! * **Downgrade**: a writer becomes a reader or the upgradable reader, and the upgradable reader a
//!   plain one, in one step that never waits. No writer comes in between, and readers that wait may
//!   enter.
//! * **Time limits** are on the monotonic clock. A zero timeout, or a deadline in the past, tries
//!   once. While a writer whose time is limited waits for announced readers, `try_read` fails.
//! * **Panics** in a critical section release the lock. There is no poisoning.
//!
//! # Costs
//!
//! * **Time**: without waiters one atomic read-modify-write to take the lock and one to release it.
//!   While the lock is read-biased, both are in the reader's own line of the table.
//! * **A revocation** reads a table entry per thread that ever read (256 at most), and waits for
//!   the announced readers. These cannot wake the writer, so it notices up to an eighth of its
//!   wait, or 50 us, late.
//! * **Waiting**: a waiter spins for some microseconds before it sleeps. Each sleep is one system
//!   call. One more wakes a writer, and one all readers that wait.
//! * **Memory**: eight bytes per lock; all-zero memory is an unlocked one. The table has 32 KiB for
//!   the process. Nothing is ever allocated.
//!
//! # Panics
//!
//! A lock counts 2^20 - 1 readers, with the writer or the upgradable reader. Those that have
//! announced themselves are not counted. If it is full, `read`, `read_recursive` and
//! `upgradable_read` panic, as with the lock of std: a million readers mean leaked guards. Attempts
//! fail, those with a time limit before their time is up.
//!
//! # Misuse and special cases
//!
//! * **Lifetime**: guards ensure that the lock outlives them. Users of [`RawRwLock`] may free it as
//!   soon as another thread has taken it for writing: a release then uses its address only. There
//!   is one exception: where a thread has released a read lock that another one had taken, the lock
//!   must stay valid until each release has returned.
//! * **Leaking** a guard with `mem::forget` leaves that lock locked. If the memory of a lock whose
//!   read guard has leaked is used for another lock, that one may stay locked, too.
//! * **Signals**: a handler may take any lock that the interrupted code neither holds nor is
//!   acquiring.
//! * **Released by another thread** (feature `send_guard`, or raw): legal for every kind of guard.
//!   Releasing a read guard then costs a look at the table, if the lock is read-biased.
//! * **Released too often** (raw, or `force_unlock_read`): a mistake. It ends some reader if there
//!   is one, and otherwise has no effect. It looks at the table a thousand times at most.
//! * **Another version** of this crate in the process that shares the lock: see
//!   `docs/guide/copies.md`.
//! * **fork**: in the child, a lock that another thread held for writing, or as an upgradable
//!   reader, stays locked. A lock that another thread read stays locked unless that reader had
//!   announced itself. Then the lock is free in the child, even if the guard had been sent to the
//!   thread that forks: that thread must not use such a guard in the child. All other locks work,
//!   and what the forking thread took itself is its own in the child, too. There is one exception,
//!   which needs the feature `send_guard` or raw calls: if threads have released each other's read
//!   locks of a lock, a child may let a writer in while that lock has readers, the forking thread
//!   included. Do not use such a lock in a child. `docs/guide/rwlock.md` has the details.
//!
//! # Algorithm
//!
//! Phase-fair locks are from Brandenburg and Anderson (2010), read bias is BRAVO (Dice and Kogan,
//! USENIX ATC 2019), the queue is the mutex's. `kinlock_core::raw::rwlock` has the state table.
//!
//! # Example
//!
//! ```
//! use kinlock::RwLock;
//!
//! static ROUTES: RwLock<Vec<&str>> = RwLock::new(Vec::new());
//!
//! ROUTES.write().push("home");
//! let (one, other) = (ROUTES.read(), ROUTES.read());
//! assert_eq!((one.len(), other[0]), (1, "home"));
//! ```
//!
//! # Invariant cited by `SAFETY` comments
//!
//! 1. `QueuedRwLock` excludes: a writer enters only if no other holder is counted in the word, and
//!    returns only after the last announced reader has left.

use crate::deadlock::{self, Acquiring, Kind, acquire};
use crate::machine::{AsConfigured, Native};
use crate::mutex::GuardMarker;
use crate::report::{downgraded, releasing, taking};
use kinlock_core::platform::NEVER;
use kinlock_core::raw::rwlock::QueuedRwLock;
#[cfg(feature = "std")]
use {
    kinlock_linux::native::deadline,
    std::time::{Duration, Instant},
};

/// A reader-writer lock of eight bytes plus the data, rounded up to the data's alignment.
///
/// ```
/// use kinlock::RwLock;
///
/// let routes = RwLock::new(vec!["home"]);
/// routes.write().push("help");
/// let (one, other) = (routes.read(), routes.read());
/// assert_eq!((one.len(), other[1]), (2, "help"));
/// assert!(routes.try_write().is_none());
/// ```
///
/// This is an alias. The page of [`lock_api::RwLock`] has its methods: `new` (`const`), `read`,
/// `write`, `try_read`, `try_write`, `read_recursive`, `upgradable_read`, their relatives with time
/// limits, `get_mut`, `into_inner`. The pages of the guards have `upgrade` and `downgrade`.
///
/// The lock is `Send` if the data is, and `Sync` if the data is `Send` and `Sync`. It is never
/// `RefUnwindSafe`, like a [`Mutex`](crate::Mutex). The [module](self) states guarantees, costs and
/// misuse.
pub type RwLock<T> = lock_api::RwLock<RawRwLock, T>;

/// Holds a [`RwLock`] for reading. Dropping it releases the lock. Like every guard of the lock, it
/// can be sent to other threads with the feature `send_guard` only.
pub type RwLockReadGuard<'a, T> = lock_api::RwLockReadGuard<'a, RawRwLock, T>;

/// Holds a [`RwLock`] for writing. Dropping it releases the lock.
///
/// ```
/// use kinlock::{RwLock, RwLockWriteGuard};
///
/// let price = RwLock::new(3);
/// let mut written = price.write();
/// *written += 1;
/// let read = RwLockWriteGuard::downgrade(written); // No other writer comes in between.
/// assert_eq!((*read, *price.read()), (4, 4));
/// ```
pub type RwLockWriteGuard<'a, T> = lock_api::RwLockWriteGuard<'a, RawRwLock, T>;

/// Holds a [`RwLock`] for reading, and can be upgraded to writing. There is one at a time.
///
/// ```
/// use kinlock::{RwLock, RwLockUpgradableReadGuard as Upgradable, RwLockWriteGuard};
///
/// let stock = RwLock::new(vec![1]);
/// let seen = stock.upgradable_read(); // Plain readers may enter beside it.
/// if seen.is_empty() {
///     Upgradable::upgrade(seen).push(0); // Waits until they have left.
/// } else {
///     let reader = stock.read();
///     let seen = Upgradable::try_upgrade(seen).expect_err("there is a reader");
///     drop(reader);
///     let mut written = Upgradable::try_upgrade(seen).expect("there is none");
///     written.push(2);
///     let seen = RwLockWriteGuard::downgrade_to_upgradable(written);
///     assert_eq!(*seen, [1, 2]);
/// }
/// ```
pub type RwLockUpgradableReadGuard<'a, T> = lock_api::RwLockUpgradableReadGuard<'a, RawRwLock, T>;

/// Holds a [`RwLock`] for reading and refers to a part of its data.
///
/// ```
/// use kinlock::{RwLock, RwLockReadGuard};
///
/// let pair = RwLock::new((1, "one"));
/// let name = RwLockReadGuard::map(pair.read(), |pair| &pair.1);
/// assert_eq!(*name, "one");
/// ```
pub type MappedRwLockReadGuard<'a, T> = lock_api::MappedRwLockReadGuard<'a, RawRwLock, T>;

/// Holds a [`RwLock`] for writing and refers to a part of its data.
///
/// ```
/// use kinlock::{RwLock, RwLockWriteGuard};
///
/// let pair = RwLock::new((1, "one"));
/// *RwLockWriteGuard::map(pair.write(), |pair| &mut pair.0) += 1;
/// assert_eq!(pair.read().0, 2);
/// ```
pub type MappedRwLockWriteGuard<'a, T> = lock_api::MappedRwLockWriteGuard<'a, RawRwLock, T>;

/// A new reader-writer lock, in a constant: [`RwLock::new`] by the name that users of parking_lot
/// know.
///
/// ```
/// static PRICES: kinlock::RwLock<[u64; 4]> = kinlock::const_rwlock([3; 4]);
/// ```
pub const fn const_rwlock<T>(value: T) -> RwLock<T> {
    RwLock::new(value)
}

/// The lock of [`RwLock`] without data, for any user of [`lock_api`] 0.4.
///
/// A read lock may be released by another thread than the one that took it, though that is slower
/// while the lock is read-biased.
///
/// ```
/// use kinlock::{RawRwLock, lock_api};
///
/// type RwLock<T> = lock_api::RwLock<RawRwLock, T>; // was: parking_lot::RawRwLock
///
/// assert_eq!(RwLock::new(7).into_inner(), 7);
/// ```
#[repr(transparent)]
pub struct RawRwLock(QueuedRwLock<Native, AsConfigured>);

impl core::fmt::Debug for RawRwLock {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let mut shown = f.debug_struct("RawRwLock");
        shown.field("locked", &self.0.is_locked());
        shown.finish_non_exhaustive()
    }
}

impl RawRwLock {
    /// An unlocked lock. All-zero memory is one too.
    pub const fn new() -> Self {
        <Self as lock_api::RawRwLock>::INIT
    }

    /// Makes this an unlocked lock in the child of a fork, whatever its words say.
    ///
    /// # Safety
    ///
    /// No other thread uses the lock during the call, and none that got it before relies on holding
    /// it.
    ///
    /// ```compile_fail,E0133
    /// kinlock::RawRwLock::new().reset_in_child();
    /// ```
    #[doc(hidden)]
    pub unsafe fn reset_in_child(&self) {
        // SAFETY: as this function demands.
        unsafe { self.0.reset_in_child() };
    }

    /// Begins to read if that needs no wait; `again`: ahead of writers that wait.
    #[inline]
    fn try_read(&self, again: bool) -> bool {
        deadlock::tried(&self.0, Kind::Shared, self.0.try_read(again))
    }

    #[inline]
    fn try_write(&self) -> bool {
        deadlock::tried(&self.0, Kind::Exclusive, self.0.try_write())
    }

    /// The first step of a wait.
    #[cfg(feature = "report")]
    #[inline]
    fn read_at_once(&self) -> bool {
        deadlock::tried(&self.0, Kind::Shared, self.0.read_at_once())
    }

    #[cfg(feature = "report")]
    #[inline]
    fn write_at_once(&self) -> bool {
        deadlock::tried(&self.0, Kind::Exclusive, self.0.write_at_once())
    }

    #[inline]
    fn try_upgradable(&self) -> bool {
        deadlock::tried(&self.0, Kind::Upgradable, self.0.try_upgradable())
    }

    /// # Safety
    ///
    /// The caller is the upgradable reader.
    #[inline]
    unsafe fn try_upgrade_now(&self) -> bool {
        // SAFETY: as this function demands.
        self.upgraded(unsafe { self.0.try_upgrade() })
    }

    /// Begins to read, and returns `true`. `again`: ahead of writers that wait.
    #[inline]
    #[cfg_attr(any(debug_assertions, feature = "report"), track_caller)]
    fn take_to_read(&self, again: bool) -> bool {
        acquire!(
            Acquiring::begin(&self.0, Kind::Shared),
            until,
            self.counted(self.0.read_until(until, again)),
            if !self.0.read_at_once() {
                self.wait_to_read(again);
            }
        );
        true
    }

    #[cfg(feature = "std")]
    fn read_in_time(&self, timeout: Duration, again: bool) -> bool {
        let taken = self.0.read_until(deadline(timeout), again);
        deadlock::tried(&self.0, Kind::Shared, taken)
    }

    /// Waits to read, for as long as it takes. `passing`: ahead of writers that wait.
    #[cold]
    #[inline(never)]
    #[cfg_attr(any(debug_assertions, feature = "report"), track_caller)]
    fn wait_to_read(&self, passing: bool) {
        // If the lock was full and a reader has left it since, this thread waits again.
        while !self.counted(self.0.read_until(NEVER, passing)) {}
    }

    /// Whether a wait to read took the lock. Panics if the lock cannot count one more reader.
    #[inline]
    #[cfg_attr(any(debug_assertions, feature = "report"), track_caller)]
    fn counted(&self, taken: bool) -> bool {
        assert!(
            taken || !self.0.is_full(),
            "a kinlock RwLock has 1048575 readers, and cannot count more: were guards leaked?"
        );
        taken
    }

    #[inline]
    fn upgraded(&self, is_writer: bool) -> bool {
        if is_writer {
            deadlock::changed(&self.0, Kind::Exclusive);
        }
        is_writer
    }
}

#[cfg(feature = "report")]
impl crate::report::Reported for RawRwLock {
    fn is_held(&self) -> bool {
        self.0.is_locked()
    }

    fn is_held_by_writer(&self) -> bool {
        self.0.is_locked_exclusive()
    }
}

impl Default for RawRwLock {
    fn default() -> Self {
        Self::new()
    }
}

const _: () = assert!(size_of::<RawRwLock>() == 8 && align_of::<RawRwLock>() == 4);

// SAFETY: invariant 1.
unsafe impl lock_api::RawRwLock for RawRwLock {
    // Each use makes a new lock.
    #[allow(clippy::declare_interior_mutable_const)]
    const INIT: Self = RawRwLock(QueuedRwLock::new());
    type GuardMarker = GuardMarker;

    #[inline]
    #[cfg_attr(any(debug_assertions, feature = "report"), track_caller)]
    fn lock_shared(&self) {
        taking!(
            self,
            Read,
            Endless,
            self.read_at_once(),
            self.try_read(false),
            self.take_to_read(false)
        );
    }

    #[inline]
    #[cfg_attr(feature = "report", track_caller)]
    fn try_lock_shared(&self) -> bool {
        taking!(self, Read, self.try_read(false))
    }

    #[inline]
    unsafe fn unlock_shared(&self) {
        releasing!(self, Read);
        deadlock::releasing(&self.0);
        // SAFETY: the caller reads, as this function demands.
        unsafe { self.0.unlock_read() }
    }

    #[inline]
    #[cfg_attr(feature = "report", track_caller)]
    fn lock_exclusive(&self) {
        taking!(
            self,
            Write,
            Endless,
            self.write_at_once(),
            self.try_write(),
            {
                acquire!(
                    Acquiring::begin(&self.0, Kind::Exclusive),
                    until,
                    self.0.write_until(until),
                    self.0.write()
                );
                true
            }
        );
    }

    #[inline]
    #[cfg_attr(feature = "report", track_caller)]
    fn try_lock_exclusive(&self) -> bool {
        taking!(self, Write, self.try_write())
    }

    #[inline]
    unsafe fn unlock_exclusive(&self) {
        releasing!(self, Write);
        deadlock::releasing(&self.0);
        // SAFETY: the caller writes, as this function demands.
        unsafe { self.0.unlock_write() }
    }

    #[inline]
    fn is_locked(&self) -> bool {
        self.0.is_locked()
    }

    #[inline]
    fn is_locked_exclusive(&self) -> bool {
        self.0.is_locked_exclusive()
    }
}

// SAFETY: invariant 1.
unsafe impl lock_api::RawRwLockFair for RawRwLock {
    #[inline]
    unsafe fn unlock_shared_fair(&self) {
        releasing!(self, Read);
        deadlock::releasing(&self.0);
        // SAFETY: the caller reads, as this function demands.
        unsafe { self.0.unlock_read_fair() }
    }

    #[inline]
    unsafe fn unlock_exclusive_fair(&self) {
        releasing!(self, Write);
        deadlock::releasing(&self.0);
        // SAFETY: the caller writes, as this function demands.
        unsafe { self.0.unlock_write_fair() }
    }
}

// SAFETY: invariant 1; no writer enters in between, since the word changes once.
unsafe impl lock_api::RawRwLockDowngrade for RawRwLock {
    #[inline]
    #[cfg_attr(feature = "report", track_caller)]
    unsafe fn downgrade(&self) {
        releasing!(self, Write);
        // SAFETY: the caller writes, as this function demands.
        unsafe { self.0.downgrade() }
        deadlock::changed(&self.0, Kind::Shared);
        downgraded!(self, Read);
    }
}

// SAFETY: invariant 1; a reader that passes waiting writers does not wait for them.
unsafe impl lock_api::RawRwLockRecursive for RawRwLock {
    #[inline]
    #[cfg_attr(any(debug_assertions, feature = "report"), track_caller)]
    fn lock_shared_recursive(&self) {
        taking!(
            self,
            ReadAgain,
            Endless,
            self.read_at_once(),
            self.try_read(true),
            self.take_to_read(true)
        );
    }

    #[inline]
    #[cfg_attr(feature = "report", track_caller)]
    fn try_lock_shared_recursive(&self) -> bool {
        taking!(self, ReadAgain, self.try_read(true))
    }
}

// SAFETY: invariant 1; there is one upgradable reader at a time.
unsafe impl lock_api::RawRwLockUpgrade for RawRwLock {
    #[inline]
    #[cfg_attr(any(debug_assertions, feature = "report"), track_caller)]
    fn lock_upgradable(&self) {
        taking!(self, Upgradable, Endless, self.try_upgradable(), {
            acquire!(
                Acquiring::begin(&self.0, Kind::Upgradable),
                until,
                self.counted(self.0.upgradable_until(until)),
                while !self.counted(self.0.upgradable()) {}
            );
            true
        });
    }

    #[inline]
    #[cfg_attr(feature = "report", track_caller)]
    fn try_lock_upgradable(&self) -> bool {
        taking!(self, Upgradable, self.try_upgradable())
    }

    #[inline]
    unsafe fn unlock_upgradable(&self) {
        releasing!(self, Upgradable);
        deadlock::releasing(&self.0);
        // SAFETY: the caller is the upgradable reader, as this function demands.
        unsafe { self.0.unlock_upgradable() }
    }

    #[inline]
    #[cfg_attr(feature = "report", track_caller)]
    unsafe fn upgrade(&self) {
        // SAFETY: the caller is the upgradable reader, as this function demands.
        taking!(self, Upgrade, Endless, unsafe { self.try_upgrade_now() }, {
            acquire!(
                Acquiring::upgrade(&self.0),
                until,
                // SAFETY: as above.
                unsafe { self.0.upgrade_until(until) },
                // SAFETY: as above.
                unsafe { self.0.upgrade() }
            );
            true
        });
    }

    #[inline]
    #[cfg_attr(feature = "report", track_caller)]
    unsafe fn try_upgrade(&self) -> bool {
        // SAFETY: the caller is the upgradable reader, as this function demands.
        taking!(self, Upgrade, unsafe { self.try_upgrade_now() })
    }
}

// SAFETY: invariant 1.
unsafe impl lock_api::RawRwLockUpgradeFair for RawRwLock {
    #[inline]
    unsafe fn unlock_upgradable_fair(&self) {
        releasing!(self, Upgradable);
        deadlock::releasing(&self.0);
        // SAFETY: the caller is the upgradable reader, as this function demands.
        unsafe { self.0.unlock_upgradable_fair() }
    }
}

// SAFETY: invariant 1; no writer enters in between, since the word changes once.
unsafe impl lock_api::RawRwLockUpgradeDowngrade for RawRwLock {
    #[inline]
    unsafe fn downgrade_upgradable(&self) {
        // SAFETY: the caller is the upgradable reader, as this function demands.
        unsafe { self.0.downgrade_upgradable() }
        deadlock::changed(&self.0, Kind::Shared);
        #[cfg(feature = "report")]
        if crate::report::is_on() {
            crate::report::no_longer_upgradable(self);
        }
    }

    #[inline]
    #[cfg_attr(feature = "report", track_caller)]
    unsafe fn downgrade_to_upgradable(&self) {
        releasing!(self, Write);
        // SAFETY: the caller writes, as this function demands.
        unsafe { self.0.downgrade_to_upgradable() }
        deadlock::changed(&self.0, Kind::Upgradable);
        downgraded!(self, Upgradable);
    }
}

// SAFETY: invariant 1; `true` is returned only if the lock was taken.
#[cfg(feature = "std")]
unsafe impl lock_api::RawRwLockTimed for RawRwLock {
    type Duration = Duration;
    type Instant = Instant;

    /// Gives up after `timeout`. A zero timeout tries once.
    #[cfg_attr(feature = "report", track_caller)]
    fn try_lock_shared_for(&self, timeout: Duration) -> bool {
        taking!(
            self,
            Read,
            Limited,
            self.read_at_once(),
            self.try_read(false),
            self.read_in_time(timeout, false)
        )
    }

    /// Gives up at the moment `timeout`. A moment in the past tries once.
    #[cfg_attr(feature = "report", track_caller)]
    fn try_lock_shared_until(&self, timeout: Instant) -> bool {
        self.try_lock_shared_for(left(timeout))
    }

    /// Gives up after `timeout`. A zero timeout tries once.
    #[cfg_attr(feature = "report", track_caller)]
    fn try_lock_exclusive_for(&self, timeout: Duration) -> bool {
        taking!(
            self,
            Write,
            Limited,
            self.write_at_once(),
            self.try_write(),
            {
                let taken = self.0.write_until(deadline(timeout));
                deadlock::tried(&self.0, Kind::Exclusive, taken)
            }
        )
    }

    /// Gives up at the moment `timeout`. A moment in the past tries once.
    #[cfg_attr(feature = "report", track_caller)]
    fn try_lock_exclusive_until(&self, timeout: Instant) -> bool {
        self.try_lock_exclusive_for(left(timeout))
    }
}

// SAFETY: as `RawRwLockRecursive` and `RawRwLockTimed`.
#[cfg(feature = "std")]
unsafe impl lock_api::RawRwLockRecursiveTimed for RawRwLock {
    #[cfg_attr(feature = "report", track_caller)]
    fn try_lock_shared_recursive_for(&self, timeout: Duration) -> bool {
        taking!(
            self,
            ReadAgain,
            Limited,
            self.read_at_once(),
            self.try_read(true),
            self.read_in_time(timeout, true)
        )
    }

    #[cfg_attr(feature = "report", track_caller)]
    fn try_lock_shared_recursive_until(&self, timeout: Instant) -> bool {
        self.try_lock_shared_recursive_for(left(timeout))
    }
}

// SAFETY: as `RawRwLockUpgrade` and `RawRwLockTimed`.
#[cfg(feature = "std")]
unsafe impl lock_api::RawRwLockUpgradeTimed for RawRwLock {
    #[cfg_attr(feature = "report", track_caller)]
    fn try_lock_upgradable_for(&self, timeout: Duration) -> bool {
        taking!(self, Upgradable, Limited, self.try_upgradable(), {
            let taken = self.0.upgradable_until(deadline(timeout));
            deadlock::tried(&self.0, Kind::Upgradable, taken)
        })
    }

    #[cfg_attr(feature = "report", track_caller)]
    fn try_lock_upgradable_until(&self, timeout: Instant) -> bool {
        self.try_lock_upgradable_for(left(timeout))
    }

    #[cfg_attr(feature = "report", track_caller)]
    unsafe fn try_upgrade_for(&self, timeout: Duration) -> bool {
        // SAFETY: the caller is the upgradable reader, as this function demands.
        taking!(self, Upgrade, Limited, unsafe { self.try_upgrade_now() }, {
            // SAFETY: as above.
            self.upgraded(unsafe { self.0.upgrade_until(deadline(timeout)) })
        })
    }

    #[cfg_attr(feature = "report", track_caller)]
    unsafe fn try_upgrade_until(&self, timeout: Instant) -> bool {
        // SAFETY: the caller is the upgradable reader, as this function demands.
        unsafe { self.try_upgrade_for(left(timeout)) }
    }
}

/// The time until `moment`.
#[cfg(feature = "std")]
fn left(moment: Instant) -> Duration {
    moment.saturating_duration_since(Instant::now())
}
