//! Locks with condition variables for tests: as users have them, and in other configurations.
//!
//! # Invariants
//!
//! 1. [`Meeting::wait`] demands that the caller hold the lock. The lock is held again when it
//!    returns.
//! 2. A guard of a `UserMonitor`'s mutex exists only within `wait`, on behalf of the thread that
//!    holds the lock, and is forgotten: it never releases the lock. All else goes through the raw
//!    lock.

use crate::test_lock::{Algorithm, Meeting, Target};
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
    unsafe fn wait(&self, until: u64) -> bool {
        // SAFETY: invariants 1 and 2.
        let mut guard = unsafe { self.mutex.make_guard_unchecked() };
        let condvar = &self.condvar;
        let span = Duration::from_nanos(until.saturating_sub(Native::now()));
        let timed_out = match Native::random() % 3 {
            _ if until == NEVER => {
                condvar.wait(&mut guard);
                false
            }
            0 => condvar.wait_for(&mut guard, span).timed_out(),
            1 => condvar
                .wait_until(&mut guard, Instant::now() + span)
                .timed_out(),
            _ => {
                let moment = SystemTime::now() + span;
                let result = condvar.wait_until_system(&mut guard, moment);
                // If the time of day was set forward, this counts as a spurious wake-up.
                let is_early = SystemTime::now() < moment;
                result.timed_out() && (is_early || Native::now() >= until)
            }
        };
        std::mem::forget(guard);
        !timed_out
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

/// With this configuration a broadcast moves waiters to the mutex even if there are only a few.
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
    unsafe fn wait(&self, until: u64) -> bool {
        // SAFETY: invariant 1.
        unsafe { self.condvar.wait_until(&self.mutex, until) }
    }

    fn notify_one(&self) {
        self.condvar.notify_one();
    }

    fn notify_all(&self) {
        self.condvar.notify_all();
    }
}
