//! The condition variable for users: [`Condvar`], which goes with [`Mutex`](crate::Mutex).
//!
//! # Semantics
//!
//! * **Waiting** releases the mutex and falls asleep in one step as far as notifiers can tell: whoever changes the condition under the mutex and notifies, before or after releasing it, reaches all who waited
//!   for it then. The mutex is held again when a wait returns, whatever its result.
//! * **Spurious wake-ups** happen: a wait may return without a notification, so look at the condition again, or use [`wait_while`](Condvar::wait_while) and its relatives, which do.
//! * **`notify_one`** wakes at least one of those who wait, if anybody does: roughly the one that has waited longest. It is not lost if that one's time is just up: a waiter that took the wake-up reports a notification, one
//!   that reports a timeout took none. A waiter that has just come and still spins is preferred to those asleep.
//! * **`notify_all`** wakes all who wait, without a stampede: 16 are woken, the others are moved to the mutex, where they wake up one after the other.
//! * **One mutex at a time.** Using two with the same condition variable at the same time is a mistake. Debug builds panic if they notice; release builds stay correct. A second mutex *after* the first is fine. Once there has been
//!   a second one, or if the mutex is 8 GiB away or more, `notify_all` wakes everybody at once.
//! * **Time limits** are on the monotonic clock, those of the `_system` functions on the time of day. A zero timeout or a moment that has passed releases the mutex, takes it again and reports a timeout. The
//!   limit is on the wait for a notification: the mutex is waited for afterwards for as long as it takes. A waiter that a `notify_all` reaches but whose time is up before it has the mutex may report either.
//! * **Memory order**: what happened before a notification is seen by the waiter that it wakes. Rely on the mutex.
//! * **Cost**: notifying costs one load while nobody waits, else a system call, unless a waiter spins, which takes a notification from a cache line. A notification too many costs one system call more, not one each. One waiter
//!   at a time spins, for 50 us, before it sleeps; while more threads wait for locks than there are CPUs it yields between looks, unless others keep the CPU for long then; and once it was in vain only one in sixteen spins, until it is worth while again. So two threads that take turns quickly do so
//!   without the kernel.
//! * **Memory**: eight bytes; all-zero memory is a fresh one. Nothing is allocated.
//! * **Poisoning**, **reentrancy**, **fork**: as of the [mutex](crate::mutex). Threads that do not exist in a forked child do not wait there.
//! * **Wrap-around**: a waiter that loses its CPU just before it falls asleep misses its wake-up if the count comes round meanwhile: exactly 2^28 notifications, where a `notify_all` that finds more than 16 asleep counts as 65. One that
//!   sleeps through nearly so many (2^28 less 64) and is then moved to the mutex by a broadcast may fail to wake the next one.
//! * **Sleepers and spinners**: a sleeper gets every 64th `notify_one` at least, in order of arrival, however quickly others take turns. Waits on the time of day look at the clock every 100 ms and queue anew then.
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

use crate::mutex::MutexGuard;
use kinlock_core::Native;
use kinlock_core::native::deadline;
use kinlock_core::platform::{NEVER, Platform};
use kinlock_core::raw::condvar::QueuedCondvar;
use std::time::{Duration, Instant, SystemTime};

/// The longest wait between two looks at a clock that jumps.
const SLICE: Duration = Duration::from_millis(100);

/// A condition variable of eight bytes. See the [module](self) for semantics.
#[repr(transparent)]
#[derive(Debug, Default)]
pub struct Condvar(QueuedCondvar<Native>);

const _: () = assert!(size_of::<Condvar>() == 8 && align_of::<Condvar>() == 4);

/// Whether a wait ended because its time was up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    /// Whether the time was up. If so, this waiter took no notification from another.
    pub fn timed_out(&self) -> bool {
        self.0
    }
}

impl Condvar {
    /// A fresh condition variable.
    pub const fn new() -> Self {
        Condvar(QueuedCondvar::FRESH)
    }

    /// Wakes at least one of those who wait, if anybody does. The mutex need not be held.
    #[inline]
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Wakes all who wait, one after the other: each as soon as the one before it has released the mutex. It need not be held.
    #[inline]
    pub fn notify_all(&self) {
        self.0.notify_all();
    }

    /// Releases the mutex, waits for a notification, and takes the mutex again. May return without a notification.
    ///
    /// # Panics
    ///
    /// With `debug_assertions`, as all functions that wait: if somebody is found waiting here with another mutex.
    pub fn wait<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>) {
        self.wait_as_told(guard, || Some(NEVER));
    }

    /// Waits while `condition` holds. Looks at it first, and after each wake-up.
    ///
    /// If `condition` panics, the mutex is held as it was.
    pub fn wait_while<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        mut condition: impl FnMut(&mut T) -> bool,
    ) {
        while condition(guard) {
            self.wait(guard);
        }
    }

    /// As [`wait`](Self::wait), for at most `timeout`.
    ///
    /// ```
    /// use kinlock::{Condvar, Mutex};
    /// use std::time::Duration;
    ///
    /// let (mutex, condvar) = (Mutex::new(()), Condvar::new());
    /// let mut guard = mutex.lock();
    /// assert!(condvar.wait_for(&mut guard, Duration::ZERO).timed_out());
    /// ```
    pub fn wait_for<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        timeout: Duration,
    ) -> WaitTimeoutResult {
        self.wait_as_told(guard, until(timeout))
    }

    /// As [`wait`](Self::wait), until `deadline` at the latest.
    pub fn wait_until<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        deadline: Instant,
    ) -> WaitTimeoutResult {
        self.wait_for(guard, deadline.saturating_duration_since(Instant::now()))
    }

    /// As [`wait`](Self::wait), until the clock of the time of day shows `deadline` or later.
    ///
    /// That clock may be set while we wait. It is read every 100 ms, so that a jump is noticed after so long at the latest: a jump forward past `deadline` ends the wait, a jump backward prolongs it.
    pub fn wait_until_system<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        deadline: SystemTime,
    ) -> WaitTimeoutResult {
        self.wait_as_told(guard, until_system(deadline, SystemTime::now))
    }

    /// Waits while `condition` holds, for at most `timeout` altogether. A timeout is reported if `condition` holds at the end.
    pub fn wait_while_for<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        condition: impl FnMut(&mut T) -> bool,
        timeout: Duration,
    ) -> WaitTimeoutResult {
        let mut until = until(timeout);
        self.wait_while_as_told(guard, condition, &mut until)
    }

    /// Waits while `condition` holds, until `deadline` at the latest. A timeout is reported if `condition` holds at the end.
    pub fn wait_while_until<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        condition: impl FnMut(&mut T) -> bool,
        deadline: Instant,
    ) -> WaitTimeoutResult {
        let timeout = deadline.saturating_duration_since(Instant::now());
        self.wait_while_for(guard, condition, timeout)
    }

    /// Waits while `condition` holds, until the clock of the time of day shows `deadline`; see [`wait_until_system`](Self::wait_until_system). A timeout is reported if `condition` holds at the end.
    pub fn wait_while_until_system<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        condition: impl FnMut(&mut T) -> bool,
        deadline: SystemTime,
    ) -> WaitTimeoutResult {
        let mut until = until_system(deadline, SystemTime::now);
        self.wait_while_as_told(guard, condition, &mut until)
    }

    fn wait_while_as_told<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        mut condition: impl FnMut(&mut T) -> bool,
        until: &mut impl FnMut() -> Option<u64>,
    ) -> WaitTimeoutResult {
        while condition(guard) {
            if self.wait_as_told(guard, &mut *until).timed_out() {
                return WaitTimeoutResult(condition(guard));
            }
        }
        WaitTimeoutResult(false)
    }

    fn wait_as_told<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        until: impl FnMut() -> Option<u64>,
    ) -> WaitTimeoutResult {
        // SAFETY: the raw mutex is only handed to the wait below, which leaves it as it is: held.
        let mutex = unsafe { MutexGuard::mutex(guard).raw() };
        // SAFETY: the guard shows that the mutex is held, by this thread, since guards cannot be sent; and nobody looks at the data through it before the wait is over.
        let notified = unsafe { self.0.wait_as_told(&mutex.0, until) };
        WaitTimeoutResult(!notified)
    }
}

/// Up to when to wait for `timeout` from now on; `None` when that has passed.
fn until(timeout: Duration) -> impl FnMut() -> Option<u64> {
    let deadline = deadline(timeout);
    move || (deadline == NEVER || Native::now() < deadline).then_some(deadline)
}

/// Up to when to wait until `clock` is asked again; `None` when it shows `deadline`.
fn until_system(
    deadline: SystemTime,
    clock: impl Fn() -> SystemTime,
) -> impl FnMut() -> Option<u64> {
    move || {
        let left = deadline.duration_since(clock()).unwrap_or_default();
        (!left.is_zero()).then(|| kinlock_core::native::deadline(left.min(SLICE)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn a_clock_that_jumps_is_asked_again() {
        let start = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        let clock = Cell::new(start);
        let mut until = until_system(start + Duration::from_secs(3600), || clock.get());
        let now = Native::now();
        let slice = until().expect("an hour is left");
        assert!(slice >= now && slice - now < 2 * SLICE.as_nanos() as u64);
        clock.set(start - Duration::from_secs(86_400));
        assert!(until().is_some(), "set back: the wait goes on");
        clock.set(start + Duration::from_secs(3600));
        assert_eq!(until(), None, "set forward: the wait is over");
    }

    #[test]
    fn the_last_slice_ends_with_the_wait() {
        let start = SystemTime::UNIX_EPOCH;
        let mut until = until_system(start + Duration::from_millis(1), || start);
        let slice = until().expect("a millisecond is left");
        assert!(slice < Native::now() + 50_000_000);
    }

    #[test]
    fn timeouts_beyond_the_end_of_time_never_come() {
        assert_eq!(until(Duration::MAX)(), Some(NEVER));
        assert_eq!(until(Duration::ZERO)(), None);
    }
}
