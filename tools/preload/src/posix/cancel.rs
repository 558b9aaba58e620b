//! Waits of threads that can be cancelled asynchronously.
//!
//! A waiter has a place in a queue, which it must not leave behind. So such a thread does not
//! queue: it tries to take the lock, again and again, and naps in between. It can be cancelled in
//! its naps only, when it has nothing that others depend on. A lock that it has just taken is
//! released if a cancellation is due then: for the program it was cancelled in its wait.

use crate::time::Limit;
use core::ffi::{c_int, c_long, c_void};

unsafe extern "C-unwind" {
    /// Whether the thread can be cancelled at any instruction. If so, now it cannot.
    safe fn kinlock_defer() -> c_int;
    /// Lets it be cancelled at any instruction again. If that happens at once, calls the function.
    fn kinlock_undefer(undo: unsafe extern "C" fn(*mut c_void), lock: *mut c_void);
    /// Sleeps, and can be cancelled meanwhile.
    safe fn kinlock_nap(nanos: c_long);
}

/// A lock that can be taken without a place in a queue.
pub(crate) trait Attempt {
    /// Takes the lock if it is free.
    fn attempt(&self) -> bool;
    /// Releases what [`attempt`](Self::attempt) took.
    fn undo(&self);
}

/// The first and the longest nap, in nanoseconds.
const NAP: u64 = 20_000;
const LONGEST_NAP: u64 = 1_000_000;

/// Waits for a lock by `queue`, or as this module says. Returns whether the lock was taken.
pub(crate) fn wait<A: Attempt>(lock: &A, limit: Limit, queue: impl FnOnce() -> bool) -> bool {
    if kinlock_defer() == 0 {
        return queue();
    }
    wait_in_naps(lock, limit)
}

#[cold]
#[inline(never)]
fn wait_in_naps<A: Attempt>(lock: &A, limit: Limit) -> bool {
    let mut nap = NAP;
    let taken = loop {
        if lock.attempt() {
            break true;
        }
        let left = limit.left();
        if left == 0 {
            break false;
        }
        kinlock_nap(nap.min(left) as c_long);
        nap = (nap * 2).min(LONGEST_NAP);
    };
    let undo = if taken { undo::<A> } else { nothing };
    // SAFETY: invariant 1: the lock lives until the call returns.
    unsafe { kinlock_undefer(undo, (&raw const *lock).cast_mut().cast()) };
    taken
}

unsafe extern "C" fn undo<A: Attempt>(lock: *mut c_void) {
    // SAFETY: `wait_in_naps` passes a lock of this type.
    unsafe { &*lock.cast::<A>() }.undo();
}

unsafe extern "C" fn nothing(_: *mut c_void) {}
