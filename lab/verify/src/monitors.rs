//! Locks with condition variables, under test: as users have them, and with other configurations.
//!
//! # Invariants
//!
//! 1. [`Monitor::wait`] demands that the caller hold the lock. The lock is held again when it
//!    returns.
//! 2. A guard of a `UserMonitor`'s mutex exists only within `wait`, on behalf of the thread that
//!    holds the lock, and is forgotten: it never releases the lock. All else goes through the raw
//!    lock.

use crate::configs::{Eager, Requeueing};
use crate::pretend::Pretend;
use crate::test_lock::{Own, TestLock};
use kinlock::{Condvar, Mutex};
use kinlock_core::platform::{NEVER, Platform};
use kinlock_core::raw::{QueuedCondvar, QueuedMutex};
use std::time::{Duration, Instant, SystemTime};

/// How many condition variables a monitor has.
pub const CONDVARS: usize = 4;

/// A lock with condition variables, which are known by number.
pub trait Monitor: Send + Sync {
    /// The lock.
    fn lock(&self) -> &dyn TestLock;
    /// Releases the lock, waits for a notification, and takes the lock again. `false`: the time was
    /// up, and no notification was taken.
    ///
    /// # Safety
    ///
    /// The caller must hold the lock.
    unsafe fn wait(&self, condvar: usize, limit: Limit) -> bool;
    /// Wakes one waiter.
    fn notify_one(&self, condvar: usize);
    /// Wakes all waiters.
    fn notify_all(&self, condvar: usize);
}

/// For how long to wait, on which clock.
#[derive(Clone, Copy, Debug)]
pub enum Limit {
    /// For as long as it takes.
    Never,
    /// For a span of the monotonic clock.
    For(Duration),
    /// Until a moment of the monotonic clock.
    Until(Instant),
    /// Until a moment of the time of day.
    System(SystemTime),
}

/// [`Mutex`] and [`Condvar`], by their public functions.
pub(crate) fn users() -> Box<dyn Monitor> {
    Box::new(UserMonitor::default())
}

/// The library's mutex and condition variables on the platform `P`.
pub(crate) fn on<P: Platform>() -> Box<dyn Monitor> {
    Box::new(OwnMonitor::<P> {
        mutex: Own(QueuedMutex::new()),
        condvars: [const { QueuedCondvar::new() }; CONDVARS],
    })
}

#[derive(Debug, Default)]
struct UserMonitor {
    mutex: Mutex<()>,
    condvars: [Condvar; CONDVARS],
}

impl Monitor for UserMonitor {
    fn lock(&self) -> &dyn TestLock {
        // SAFETY: invariant 2.
        unsafe { self.mutex.raw() }
    }

    unsafe fn wait(&self, condvar: usize, limit: Limit) -> bool {
        // SAFETY: invariants 1 and 2.
        let mut guard = unsafe { self.mutex.make_guard_unchecked() };
        let condvar = &self.condvars[condvar];
        let result = match limit {
            Limit::Never => {
                condvar.wait(&mut guard);
                None
            }
            Limit::For(span) => Some(condvar.wait_for(&mut guard, span)),
            Limit::Until(moment) => Some(condvar.wait_until(&mut guard, moment)),
            Limit::System(moment) => Some(condvar.wait_until_system(&mut guard, moment)),
        };
        std::mem::forget(guard);
        result.is_none_or(|result| !result.timed_out())
    }

    fn notify_one(&self, condvar: usize) {
        self.condvars[condvar].notify_one();
    }

    fn notify_all(&self, condvar: usize) {
        self.condvars[condvar].notify_all();
    }
}

#[derive(Debug)]
struct OwnMonitor<P: Platform> {
    mutex: Own<QueuedMutex<P, Eager>>,
    condvars: [QueuedCondvar<P, Requeueing>; CONDVARS],
}

impl<P: Platform> Monitor for OwnMonitor<P> {
    fn lock(&self) -> &dyn TestLock {
        &self.mutex
    }

    unsafe fn wait(&self, condvar: usize, limit: Limit) -> bool {
        // SAFETY: invariant 1.
        unsafe { self.condvars[condvar].wait_by(&self.mutex.0, until(limit)) }
    }

    fn notify_one(&self, condvar: usize) {
        self.condvars[condvar].notify_one();
    }

    fn notify_all(&self, condvar: usize) {
        self.condvars[condvar].notify_all();
    }
}

/// The longest wait between two looks at a clock that may jump.
const SLICE: Duration = Duration::from_millis(100);

/// Up to when to wait before asking again; `None` when the time is up.
fn until(limit: Limit) -> impl FnMut() -> Option<u64> {
    let after = |span: Duration| Pretend::now() + span.as_nanos() as u64;
    let moment = match limit {
        Limit::For(span) => after(span),
        Limit::Until(moment) => after(moment.saturating_duration_since(Instant::now())),
        Limit::Never | Limit::System(_) => NEVER,
    };
    move || match limit {
        Limit::Never => Some(NEVER),
        Limit::For(_) | Limit::Until(_) => (Pretend::now() < moment).then_some(moment),
        Limit::System(deadline) => {
            let left = deadline.duration_since(SystemTime::now());
            let left = left.unwrap_or_default().min(SLICE);
            (!left.is_zero()).then(|| after(left))
        }
    }
}
