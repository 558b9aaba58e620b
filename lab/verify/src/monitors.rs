//! Locks with condition variables, under test: as users have them, and in other configurations.
//!
//! # Invariants
//!
//! 1. [`Meeting::wait`] demands that the caller hold the lock. The lock is held again when it
//!    returns.
//! 2. A guard of a `UserMonitor`'s mutex exists only within `wait`, on behalf of the thread that
//!    holds the lock, and is forgotten: it never releases the lock. All else goes through the raw
//!    lock.

use crate::test_lock::{Algorithm, Limit, Meeting, Target};
use kinlock::{Condvar, Mutex};
use kinlock_core::platform::{NEVER, Platform};
use kinlock_core::raw::{LockConfig, QueuedCondvar, QueuedMutex};
use kinlock_linux::Native;
use std::time::{Duration, Instant, SystemTime};

/// [`Mutex`] and [`Condvar`], by their public functions.
#[derive(Debug, Default)]
pub(crate) struct UserMonitor {
    mutex: Mutex<()>,
    condvar: Condvar,
}

impl Target for UserMonitor {
    fn lock(&self) -> &dyn Algorithm {
        // SAFETY: invariant 2.
        unsafe { self.mutex.raw() }
    }

    fn meeting(&self) -> Option<&dyn Meeting> {
        Some(self)
    }
}

impl Meeting for UserMonitor {
    unsafe fn wait(&self, limit: Limit) -> bool {
        // SAFETY: invariants 1 and 2.
        let mut guard = unsafe { self.mutex.make_guard_unchecked() };
        let condvar = &self.condvar;
        let result = match limit {
            Limit::Until(NEVER) => {
                condvar.wait(&mut guard);
                None
            }
            Limit::Until(moment) => {
                let span = Duration::from_nanos(moment.saturating_sub(Native::now()));
                Some(match Native::random() % 2 {
                    0 => condvar.wait_for(&mut guard, span),
                    _ => condvar.wait_until(&mut guard, Instant::now() + span),
                })
            }
            Limit::System(moment) => Some(condvar.wait_until_system(&mut guard, moment)),
        };
        std::mem::forget(guard);
        result.is_none_or(|result| !result.timed_out())
    }

    fn notify_one(&self) {
        self.condvar.notify_one();
    }

    fn notify_all(&self) {
        self.condvar.notify_all();
    }
}

/// The library's mutex and condition variable on the platform `P`.
#[derive(Debug)]
pub(crate) struct Pair<P: Platform, M: LockConfig> {
    mutex: QueuedMutex<P, M>,
    condvar: QueuedCondvar<P, Requeueing>,
}

/// So that a few waiters are enough for a broadcast to move some to the mutex.
#[derive(Clone, Copy, Debug)]
struct Requeueing;

impl LockConfig for Requeueing {
    const AT_ONCE: u32 = 0;
}

impl<P: Platform, M: LockConfig> Default for Pair<P, M> {
    fn default() -> Self {
        Pair {
            mutex: QueuedMutex::default(),
            condvar: QueuedCondvar::new(),
        }
    }
}

impl<P: Platform, M: LockConfig> Target for Pair<P, M> {
    fn lock(&self) -> &dyn Algorithm {
        &self.mutex
    }

    fn meeting(&self) -> Option<&dyn Meeting> {
        Some(self)
    }
}

impl<P: Platform, M: LockConfig> Meeting for Pair<P, M> {
    unsafe fn wait(&self, limit: Limit) -> bool {
        // SAFETY: invariant 1.
        unsafe {
            match limit {
                Limit::Until(moment) => self.condvar.wait_until(&self.mutex, moment),
                Limit::System(moment) => self.condvar.wait_by(&self.mutex, until::<P>(moment)),
            }
        }
    }

    fn notify_one(&self) {
        self.condvar.notify_one();
    }

    fn notify_all(&self) {
        self.condvar.notify_all();
    }
}

/// The longest wait between two looks at a clock that may jump.
const SLICE: Duration = Duration::from_millis(100);

/// Up to when to wait before asking again; `None` when the time is up.
fn until<P: Platform>(deadline: SystemTime) -> impl FnMut() -> Option<u64> {
    move || {
        let left = deadline.duration_since(SystemTime::now());
        let left = left.unwrap_or_default().min(SLICE);
        (!left.is_zero()).then(|| P::now() + left.as_nanos() as u64)
    }
}
