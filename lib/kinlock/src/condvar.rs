//! The condition variable: [`Condvar`], for use with [`Mutex`](crate::Mutex).
//!
//! # When to use it
//!
//! To wait until data under a [`Mutex`](crate::Mutex) have changed. It works with no other lock. A
//! function that is to run once has [`Once`](crate::Once).
//!
//! # Guarantees
//!
//! * **Waiting** releases the mutex and goes to sleep in one step, as far as notifiers can tell. A
//!   notification reaches the waiters of every wait that began before the notifier changed the
//!   condition under the mutex. It may be sent with or without the mutex held. When a wait returns,
//!   whatever its result, the thread holds the mutex again.
//! * **Spurious wake-ups** happen: a wait may return without a notification. Check the condition
//!   again, or use [`wait_while`](Condvar::wait_while) and its relatives.
//! * **`notify_one`** wakes at least one waiter if there is any: roughly the one that has waited
//!   longest, but a waiter that still spins is preferred to those that sleep. Even then every 64th
//!   `notify_one` also wakes a sleeper, in order of arrival.
//! * **`notify_all`** wakes all waiters: 256 at once, and it moves the others to the mutex. A woken
//!   waiter that finds the mutex free wakes 16 of the moved ones. Otherwise its unlock wakes one.
//! * **Reports**: `notify_one` says whether a thread waited, `notify_all` how many did. A waiter
//!   counts from when it releases the mutex until it is notified or its time is up. The report is
//!   exact for waiters that sleep or spin. It may be too low while waiters are on their way to
//!   sleep, and if several threads notify at the same time.
//! * **Time limits** are on the monotonic clock, except in the `_system` functions, where they are
//!   on the time of day. A zero timeout, or a deadline in the past, releases the mutex, takes it
//!   again and reports a timeout. The limit covers the wait for a notification, not the wait for
//!   the mutex after it.
//! * **Timeouts lose no notification**: a wait that took one reports it, and a wait that reports a
//!   timeout took none. In one case a wait may report either: `notify_all` has reached the waiter,
//!   and its time ends before it has the mutex.
//! * **Memory order**: a woken waiter sees what happened before the notification. It takes the
//!   mutex anyway, and programs should rely on that.
//!
//! # Costs
//!
//! * **Notifying** costs one load while no thread waits. Otherwise it costs a system call, or a
//!   transfer of a cache line if the waiter still spins. Notifications in excess of the waiters
//!   cost one system call in total.
//! * **Waiting** spins for 50 us before it sleeps, one waiter at a time, so threads that alternate
//!   quickly need no system call. While more threads wait for locks than there are CPUs, the
//!   spinner yields its CPU between checks. After a spin without a notification only one wait in
//!   256 spins, until one succeeds.
//! * **Memory**: eight bytes. All-zero memory is a condition variable without waiters. Nothing is
//!   ever allocated.
//!
//! # Misuse and limits
//!
//! * **One mutex at a time.** Waiting with two mutexes at the same time is a mistake: debug builds
//!   [panic](#panics) when they notice, release builds stay correct. Using a second mutex after the
//!   first is fine. From then on, or with a mutex 1 MiB away or more, `notify_all` wakes all
//!   waiters at once.
//! * **Lifetime**: it must outlive the calls that notify it. A waiter may free it once it has the
//!   mutex again, if every notifier holds that mutex while it notifies.
//! * **Wrap-around**: notifications are counted modulo 2^27; a `notify_all` with more than 256
//!   sleepers counts twice. A waiter that loses its CPU just before it sleeps, for exactly 2^27
//!   counts, misses its wake-up.
//! * **Relocking, poisoning, fork**: as for the [mutex](crate::mutex). In the child of a fork the
//!   waiters of other threads no longer exist.
//!
//! # Panics
//!
//! With `debug_assertions`, each function that waits panics if it notices that another thread waits
//! here with another mutex. A panic of a `condition` passes through. In both cases the guard stays
//! valid: the thread still holds the mutex.
//!
//! # Algorithm
//!
//! Sleeping on a count of notifications and moving sleepers to the mutex are known techniques
//! (Drepper, "Futexes are tricky", 2011; Denis-Courmont, 2020). `docs/guide/condvar.md` explains
//! what is new here.
//!
//! # Example
//!
//! ```
//! use kinlock::{Condvar, Mutex};
//!
//! static READY: Mutex<bool> = Mutex::new(false);
//! static CHANGED: Condvar = Condvar::new();
//!
//! std::thread::scope(|s| {
//!     s.spawn(|| {
//!         *READY.lock() = true;
//!         CHANGED.notify_one();
//!     });
//!     let mut ready = READY.lock();
//!     CHANGED.wait_while(&mut ready, |ready| !*ready);
//!     assert!(*ready);
//! });
//! ```
//!
//! # Invariants cited by `SAFETY` comments
//!
//! 1. A guard shows that its mutex is held, and its mutable borrow that no other thread uses it.
//! 2. A wait returns with the mutex held, as it was found. The guard is borrowed mutably during the
//!    wait, so no code of this thread reaches the data through it.

use crate::deadlock::{self, Acquiring, Kind, acquire};
use crate::mutex::{MutexGuard, RawMutex};
#[cfg(feature = "report")]
use crate::report::Reporting;
use crate::report::{Place, here, probing};
use kinlock_core::platform::{NEVER, Parked, Platform};
use kinlock_core::raw::condvar::{Partner, QueuedCondvar};
use kinlock_linux::Native;
use kinlock_linux::native::{deadline, park_until_realtime};
use std::fmt;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A condition variable of eight bytes. It is `Send`, `Sync` and `RefUnwindSafe`. See the
/// [module](self) for semantics.
#[repr(transparent)]
#[derive(Default)]
pub struct Condvar(QueuedCondvar<Native>);

impl fmt::Debug for Condvar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Condvar").finish_non_exhaustive()
    }
}

const _: () = assert!(size_of::<Condvar>() == 8 && align_of::<Condvar>() == 4);

/// Whether a wait ended because its time was up.
///
/// ```
/// use kinlock::{Condvar, Mutex};
/// use std::time::Duration;
///
/// let (done, changed) = (Mutex::new(false), Condvar::new());
/// let mut done = done.lock();
/// let result = changed.wait_while_for(&mut done, |done| !*done, Duration::from_millis(1));
/// assert_eq!(result.timed_out(), !*done);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    /// Whether the wait ended because of its time limit. If so, it took no notification.
    pub fn timed_out(self) -> bool {
        self.0
    }
}

impl Condvar {
    /// A condition variable without waiters. All-zero memory is one too.
    pub const fn new() -> Self {
        Condvar(QueuedCondvar::new())
    }

    /// Wakes at least one waiter, if there is any. The mutex need not be held.
    ///
    /// Returns whether a thread waited. O(1): a load if none did, else a system call or the
    /// transfer of a cache line.
    ///
    /// ```
    /// assert!(!kinlock::Condvar::new().notify_one());
    /// ```
    #[inline]
    pub fn notify_one(&self) -> bool {
        probing!("cond_signal", self);
        self.0.notify_one()
    }

    /// Wakes all waiters: 256 at once, and the others as the mutex is free or released.
    ///
    /// The mutex need not be held. Returns how many threads waited; one that is just about to fall
    /// asleep may count twice. A load if none did, else one to three system calls, which take
    /// O(waiters) in the kernel.
    ///
    /// ```
    /// use kinlock::{Condvar, Mutex};
    ///
    /// let (arrived, changed) = (Mutex::new(0), Condvar::new());
    /// std::thread::scope(|s| {
    ///     for _ in 0..3 {
    ///         s.spawn(|| {
    ///             let mut arrived = arrived.lock();
    ///             *arrived += 1;
    ///             changed.wait_while(&mut arrived, |arrived| *arrived != 0);
    ///         });
    ///     }
    ///     while *arrived.lock() < 3 {
    ///         std::thread::yield_now();
    ///     }
    ///     let mut arrived = arrived.lock();
    ///     *arrived = 0;
    ///     assert!(changed.notify_all() >= 3);
    /// });
    /// ```
    #[inline]
    pub fn notify_all(&self) -> usize {
        probing!("cond_broadcast", self);
        self.0.notify_all() as usize
    }

    /// Releases the mutex, waits for a notification, and takes the mutex again.
    ///
    /// May return without a notification, so it stands in a loop:
    ///
    /// ```
    /// use kinlock::{Condvar, Mutex};
    ///
    /// let (jobs, added) = (Mutex::new(vec![]), Condvar::new());
    /// std::thread::scope(|s| {
    ///     s.spawn(|| {
    ///         jobs.lock().push(7);
    ///         added.notify_one();
    ///     });
    ///     let mut jobs = jobs.lock();
    ///     while jobs.is_empty() {
    ///         added.wait(&mut jobs);
    ///     }
    ///     assert_eq!(jobs.pop(), Some(7));
    /// });
    /// ```
    ///
    /// # Panics
    ///
    /// See the [module](self#panics).
    #[cfg_attr(feature = "report", track_caller)]
    pub fn wait<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>) {
        self.wait_by(guard, || Some(NEVER), None, here());
    }

    /// Waits while `condition` returns `true`. Evaluates it first, and after each wake-up.
    ///
    /// ```
    /// use kinlock::{Condvar, Mutex};
    ///
    /// let (jobs, added) = (Mutex::new(vec![7]), Condvar::new());
    /// let mut jobs = jobs.lock();
    /// added.wait_while(&mut jobs, |jobs| jobs.is_empty());
    /// assert_eq!(jobs.pop(), Some(7));
    /// ```
    ///
    /// # Panics
    ///
    /// See the [module](self#panics).
    #[cfg_attr(feature = "report", track_caller)]
    pub fn wait_while<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        mut condition: impl FnMut(&mut T) -> bool,
    ) {
        while condition(guard) {
            self.wait(guard);
        }
    }

    /// Like [`wait`](Self::wait), but for at most `timeout`.
    ///
    /// ```
    /// use kinlock::{Condvar, Mutex};
    /// use std::time::Duration;
    ///
    /// let (mutex, condvar) = (Mutex::new(()), Condvar::new());
    /// let mut guard = mutex.lock();
    /// assert!(condvar.wait_for(&mut guard, Duration::ZERO).timed_out());
    /// ```
    ///
    /// # Panics
    ///
    /// See the [module](self#panics).
    #[cfg_attr(feature = "report", track_caller)]
    pub fn wait_for<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        timeout: Duration,
    ) -> WaitTimeoutResult {
        self.wait_by(guard, until(timeout), None, here())
    }

    /// Like [`wait`](Self::wait), but until `deadline` at the latest.
    ///
    /// ```
    /// use kinlock::{Condvar, Mutex};
    /// use std::time::{Duration, Instant};
    ///
    /// let (mutex, condvar) = (Mutex::new(()), Condvar::new());
    /// let deadline = Instant::now() + Duration::from_millis(1);
    /// while !condvar.wait_until(&mut mutex.lock(), deadline).timed_out() {}
    /// assert!(Instant::now() >= deadline);
    /// ```
    ///
    /// # Panics
    ///
    /// See the [module](self#panics).
    #[cfg_attr(feature = "report", track_caller)]
    pub fn wait_until<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        deadline: Instant,
    ) -> WaitTimeoutResult {
        self.wait_for(guard, deadline.saturating_duration_since(Instant::now()))
    }

    /// Like [`wait`](Self::wait), but until the time of day is `deadline` or later.
    ///
    /// If that clock is set during the wait, the kernel checks the limit again. A jump forward past
    /// `deadline` ends the wait, a jump backward prolongs it.
    ///
    /// ```
    /// use kinlock::{Condvar, Mutex};
    /// use std::time::SystemTime;
    ///
    /// let (mutex, condvar) = (Mutex::new(()), Condvar::new());
    /// let result = condvar.wait_until_system(&mut mutex.lock(), SystemTime::UNIX_EPOCH);
    /// assert!(result.timed_out(), "that was in 1970");
    /// ```
    ///
    /// # Panics
    ///
    /// See the [module](self#panics).
    #[cfg_attr(feature = "report", track_caller)]
    pub fn wait_until_system<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        deadline: SystemTime,
    ) -> WaitTimeoutResult {
        let end = Some(since_1970(deadline));
        self.wait_by(guard, until_system(deadline), end, here())
    }

    /// Waits while `condition` returns `true`, for at most `timeout` in total.
    ///
    /// After a timeout `condition` is not evaluated again: it may have become `false` just then.
    ///
    /// ```
    /// use kinlock::{Condvar, Mutex};
    /// use std::time::Duration;
    ///
    /// let (jobs, added) = (Mutex::new(Vec::<u32>::new()), Condvar::new());
    /// let mut jobs = jobs.lock();
    /// let limit = Duration::from_millis(1);
    /// assert!(added.wait_while_for(&mut jobs, |jobs| jobs.is_empty(), limit).timed_out());
    /// jobs.push(7);
    /// assert!(!added.wait_while_for(&mut jobs, |jobs| jobs.is_empty(), limit).timed_out());
    /// ```
    ///
    /// # Panics
    ///
    /// See the [module](self#panics).
    #[cfg_attr(feature = "report", track_caller)]
    pub fn wait_while_for<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        condition: impl FnMut(&mut T) -> bool,
        timeout: Duration,
    ) -> WaitTimeoutResult {
        let (mut until, place) = (until(timeout), here());
        let wait = |guard: &mut MutexGuard<'_, T>| self.wait_by(guard, &mut until, None, place);
        wait_while(guard, condition, wait)
    }

    /// Like [`wait_while_for`](Self::wait_while_for), but until `deadline` at the latest.
    ///
    /// ```
    /// use kinlock::{Condvar, Mutex};
    /// use std::time::Instant;
    ///
    /// let (jobs, added) = (Mutex::new(Vec::<u32>::new()), Condvar::new());
    /// let mut jobs = jobs.lock();
    /// let result = added.wait_while_until(&mut jobs, |jobs| jobs.is_empty(), Instant::now());
    /// assert!(result.timed_out());
    /// ```
    ///
    /// # Panics
    ///
    /// See the [module](self#panics).
    #[cfg_attr(feature = "report", track_caller)]
    pub fn wait_while_until<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        condition: impl FnMut(&mut T) -> bool,
        deadline: Instant,
    ) -> WaitTimeoutResult {
        let timeout = deadline.saturating_duration_since(Instant::now());
        self.wait_while_for(guard, condition, timeout)
    }

    /// Like [`wait_while_for`](Self::wait_while_for), but until the time of day is `deadline` or
    /// later; see [`wait_until_system`](Self::wait_until_system).
    ///
    /// ```
    /// use kinlock::{Condvar, Mutex};
    /// use std::time::{Duration, SystemTime};
    ///
    /// let (jobs, added) = (Mutex::new(vec![7]), Condvar::new());
    /// let mut jobs = jobs.lock();
    /// let tomorrow = SystemTime::now() + Duration::from_secs(86_400);
    /// let result = added.wait_while_until_system(&mut jobs, |jobs| jobs.is_empty(), tomorrow);
    /// assert!(!result.timed_out());
    /// ```
    ///
    /// # Panics
    ///
    /// See the [module](self#panics).
    #[cfg_attr(feature = "report", track_caller)]
    pub fn wait_while_until_system<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        condition: impl FnMut(&mut T) -> bool,
        deadline: SystemTime,
    ) -> WaitTimeoutResult {
        let (end, place) = (Some(since_1970(deadline)), here());
        let wait =
            |guard: &mut MutexGuard<'_, T>| self.wait_by(guard, until_system(deadline), end, place);
        wait_while(guard, condition, wait)
    }

    /// `end`: the limit in nanoseconds since 1970, if it is a time of day.
    fn wait_by<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        until: impl FnMut() -> Option<u64>,
        end: Option<u64>,
        place: Place,
    ) -> WaitTimeoutResult {
        // SAFETY: invariant 2: only the wait below uses the raw mutex.
        let raw = unsafe { MutexGuard::mutex(guard).raw() };
        probing!("cond_wait", self, raw);
        #[cfg(feature = "report")]
        let mut until = until;
        #[cfg(not(feature = "report"))]
        let Place = place;
        let waited = Waited {
            mutex: raw,
            end,
            #[cfg(feature = "report")]
            report: Reporting::new(self, until() == Some(NEVER), place),
        };
        // SAFETY: invariants 1 and 2.
        let notified = unsafe { self.0.wait_by(&waited, until) };
        #[cfg(feature = "report")]
        waited.report.ended(notified);
        WaitTimeoutResult(!notified)
    }
}

/// Waits by `wait` while `condition` returns `true`, and until a wait has timed out.
fn wait_while<T: ?Sized>(
    guard: &mut MutexGuard<'_, T>,
    mut condition: impl FnMut(&mut T) -> bool,
    mut wait: impl FnMut(&mut MutexGuard<'_, T>) -> WaitTimeoutResult,
) -> WaitTimeoutResult {
    let mut result = WaitTimeoutResult(false);
    while !result.timed_out() && condition(guard) {
        result = wait(guard);
    }
    result
}

/// The mutex of a wait.
struct Waited<'a> {
    mutex: &'a RawMutex,
    /// The limit in nanoseconds since 1970. `None`: it is not a time of day.
    end: Option<u64>,
    #[cfg(feature = "report")]
    report: Reporting,
}

impl Waited<'_> {
    /// Takes the mutex by `lock`.
    fn retake(&self, lock: impl Fn()) {
        #[cfg(feature = "report")]
        self.report.retake(self.mutex, lock);
        #[cfg(not(feature = "report"))]
        lock();
    }
}

impl Partner<Native> for Waited<'_> {
    fn key(&self) -> Option<*const u32> {
        Partner::key(&self.mutex.0)
    }

    fn is_locked(&self) -> bool {
        self.mutex.0.is_locked()
    }

    unsafe fn unlock(&self) -> bool {
        #[cfg(feature = "report")]
        self.report.releasing(self.mutex);
        deadlock::releasing(&self.mutex.0);
        // SAFETY: as this function demands.
        unsafe { Partner::unlock(&self.mutex.0) }
    }

    fn lock(&self) {
        let lock = &self.mutex.0;
        self.retake(|| {
            acquire!(
                Acquiring::begin(lock, Kind::Mutex),
                until,
                lock.lock_until(until),
                lock.lock()
            );
        });
    }

    /// The wait for the mutex is not noted: this thread owes the next sleeper a wake-up, and only
    /// this way of locking sends it.
    fn lock_after_sleep(&self) {
        self.retake(|| {
            Partner::lock_after_sleep(&self.mutex.0);
            deadlock::tried(&self.mutex.0, Kind::Mutex, true);
        });
    }

    /// Sleeps by the clock that limits the wait. If that is the time of day, the moment on the
    /// monotonic clock is right only as long as nobody sets the time.
    fn park(
        &self,
        key: *const u32,
        expected: u32,
        until: u64,
        sets: u32,
        current: impl Fn() -> u32,
    ) -> Parked {
        match self.end {
            Some(end) => park_until_realtime(key, expected, end, sets, current),
            None => Native::park_in(key, expected, until, sets, current),
        }
    }

    #[cfg(feature = "report")]
    fn leave(&self) {
        self.report.left();
    }
}

/// The end of a wait of `timeout` from now; `None` once it has passed.
fn until(timeout: Duration) -> impl FnMut() -> Option<u64> {
    let deadline = deadline(timeout);
    move || (deadline == NEVER || Native::now() < deadline).then_some(deadline)
}

/// The moment on the monotonic clock at which the time of day will be `deadline`, unless that clock
/// is set; `None` once that time has come.
///
/// A waiter that spins follows this moment. A waiter that sleeps follows the time of day itself.
fn until_system(deadline: SystemTime) -> impl FnMut() -> Option<u64> {
    move || {
        let left = deadline
            .duration_since(SystemTime::now())
            .unwrap_or_default();
        (!left.is_zero()).then(|| kinlock_linux::native::deadline(left))
    }
}

/// A time of day in nanoseconds since 1970. Times after the year 2554 never come.
fn since_1970(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By the monotonic clock, this sleep would end in some centuries.
    #[test]
    #[cfg(not(feature = "report"))]
    #[cfg_attr(miri, ignore = "Miri has no time of day")]
    fn a_waiter_sleeps_by_the_time_of_day_itself() {
        use kinlock_core::platform::EVERY_SET;
        use lock_api::RawMutex as _;
        use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
        let deadline = SystemTime::now() + Duration::from_millis(20);
        let mutex = RawMutex::INIT;
        let wait = Waited {
            mutex: &mutex,
            end: Some(since_1970(deadline)),
        };
        let word = AtomicU32::new(0);
        let park = || {
            let key = word.as_ptr().cast_const();
            wait.park(key, 0, NEVER, EVERY_SET, || word.load(Relaxed))
        };
        while SystemTime::now() < deadline {
            assert_eq!(park(), Parked::Unwoken);
        }
    }

    /// A long wait is one sleep: a waiter that reads the clock now and then would have to wake up
    /// for it.
    #[test]
    #[cfg_attr(miri, ignore = "Miri has no time of day")]
    fn a_waiter_need_not_look_at_the_time_of_day_again() {
        let hour = Duration::from_secs(3600);
        let mut until = until_system(SystemTime::now() + hour);
        let until = until().expect("an hour is left");
        assert!(until >= deadline(hour / 2));
        assert_eq!(until_system(SystemTime::now())(), None);
        assert_eq!(since_1970(UNIX_EPOCH - hour), 0);
        assert_eq!(since_1970(UNIX_EPOCH + 20 * 1_000_000 * hour), u64::MAX);
    }

    #[test]
    fn timeouts_beyond_the_end_of_time_never_come() {
        assert_eq!(until(Duration::MAX)(), Some(NEVER));
        assert_eq!(until(Duration::ZERO)(), None);
    }
}
