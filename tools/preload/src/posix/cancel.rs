//! Waits for locks by threads that can be cancelled at any instruction
//! (`PTHREAD_CANCEL_ASYNCHRONOUS`).
//!
//! A waiter has a place in a queue, which it must not abandon. So such a thread does not queue: it
//! tries to take the lock again and again, with a timed sleep after each attempt. It can be
//! cancelled only in these sleeps, when no other thread depends on it. If a cancellation is due
//! right after it has taken the lock, the lock is released: for the program, the thread was
//! cancelled in its wait.

use crate::time::Limit;
use core::ffi::{c_int, c_long, c_void};

unsafe extern "C-unwind" {
    /// Whether the thread can be cancelled at any instruction. If so, from now on it can be
    /// cancelled at cancellation points only.
    safe fn kinlock_defer() -> c_int;
    /// Lets the thread be cancelled at any instruction again. If a cancellation is due, calls the
    /// function first.
    fn kinlock_undefer(undo: unsafe extern "C" fn(*mut c_void), lock: *mut c_void);
    /// Sleeps. The thread can be cancelled in its sleep.
    safe fn kinlock_timed_sleep(nanos: c_long);
}

/// A lock that can be taken without a place in a queue.
pub(crate) trait Attempt {
    /// Takes the lock if it is free.
    fn attempt(&self) -> bool;
    /// Whether there is nothing to wait for.
    fn is_hopeless(&self) -> bool {
        false
    }
    /// Releases what [`attempt`](Self::attempt) took.
    fn undo(&self);
}

/// The first sleep; each further one is twice as long, up to the longest.
const FIRST_SLEEP_NS: u64 = 20_000;
const LONGEST_SLEEP_NS: u64 = 1_000_000;

/// Waits for a lock: by `queue`, or by attempts and sleeps if the thread can be cancelled at any
/// instruction. Returns whether the lock was taken.
pub(crate) fn wait<A: Attempt>(lock: &A, limit: Limit, queue: impl FnOnce() -> bool) -> bool {
    if kinlock_defer() == 0 {
        return queue();
    }
    wait_by_attempts(lock, limit)
}

#[cold]
#[inline(never)]
fn wait_by_attempts<A: Attempt>(lock: &A, limit: Limit) -> bool {
    let mut sleep = FIRST_SLEEP_NS;
    let taken = loop {
        if lock.attempt() {
            break true;
        }
        let left = limit.left();
        if left == 0 || lock.is_hopeless() {
            break false;
        }
        kinlock_timed_sleep(sleep.min(left) as c_long);
        sleep = (sleep * 2).min(LONGEST_SLEEP_NS);
    };
    let undo = if taken { undo::<A> } else { nothing };
    // SAFETY: invariant 1: the lock lives until the call returns.
    unsafe { kinlock_undefer(undo, (&raw const *lock).cast_mut().cast()) };
    taken
}

unsafe extern "C" fn undo<A: Attempt>(lock: *mut c_void) {
    // SAFETY: `wait_by_attempts` passes a lock of this type.
    unsafe { &*lock.cast::<A>() }.undo();
}

unsafe extern "C" fn nothing(_: *mut c_void) {}
