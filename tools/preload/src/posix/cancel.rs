//! Waits for locks by threads that can be cancelled at any instruction
//! (`PTHREAD_CANCEL_ASYNCHRONOUS`).
//!
//! A waiter has a place in a queue, which it must not abandon. So such a thread does not queue: it
//! tries to take the lock again and again, with a timed sleep after each attempt. It can be
//! cancelled only in these sleeps, when no other thread depends on it. If a cancellation is due
//! right after it has taken the lock, the lock is released: for the program, the thread was
//! cancelled in its wait.

use crate::thread::thread_id;
use crate::time::Limit;
use core::ffi::{c_int, c_long, c_void};
use kinlock_recorder::now;

unsafe extern "C-unwind" {
    /// Whether the thread can be cancelled at any instruction. If so, from now on it can be
    /// cancelled at cancellation points only.
    safe fn kinlock_defer() -> c_int;
    /// Lets the thread be cancelled at any instruction again. If a cancellation is due, calls the
    /// function first.
    fn kinlock_undefer(undo: unsafe extern "C" fn(*mut c_void), lock: *mut c_void);
    /// Sleeps. The thread can be cancelled in its sleep.
    safe fn kinlock_timed_sleep(nanos: c_long);
    /// Makes a call in which the thread can be cancelled, and calls `left` if it is.
    pub(crate) fn kinlock_cancellable_call(
        call: unsafe extern "C-unwind" fn(*mut c_void) -> c_int,
        with: *mut c_void,
        left: unsafe extern "C" fn(*mut c_void),
    ) -> c_int;
}

/// The first sleep; each further one is twice as long, up to the longest.
const FIRST_SLEEP_NS: u64 = 20_000;
const LONGEST_SLEEP_NS: u64 = 1_000_000;

/// Waits for a lock: by `queue`, or by attempts and sleeps if the thread can be cancelled at any
/// instruction. Returns whether the lock was taken. `attempt` takes the lock if it is free, without
/// queueing, and returns `None` if waiting is pointless. `undo` releases what `attempt` took. The
/// wait is noted as one for `what`, of this `kind`.
pub(crate) fn wait(
    what: u64,
    kind: u32,
    limit: Limit,
    attempt: impl Fn() -> Option<bool>,
    undo: impl Fn(),
    queue: impl FnOnce() -> bool,
) -> bool {
    let noted = now::waits(what, kind | limit.noted(), thread_id());
    let taken = match kinlock_defer() {
        0 => queue(),
        _ => wait_by_attempts(limit, attempt, undo),
    };
    noted.end();
    taken
}

#[cold]
#[inline(never)]
fn wait_by_attempts<U: Fn()>(limit: Limit, attempt: impl Fn() -> Option<bool>, undo: U) -> bool {
    let mut sleep = FIRST_SLEEP_NS;
    let taken = loop {
        let tried = attempt();
        if tried == Some(true) {
            break true;
        }
        let left = limit.left();
        if left == 0 || tried.is_none() {
            break false;
        }
        kinlock_timed_sleep(sleep.min(left) as c_long);
        sleep = (sleep * 2).min(LONGEST_SLEEP_NS);
    };
    let cleanup = if taken { call::<U> } else { nothing };
    // SAFETY: invariant 4: `undo` lives until the call returns.
    unsafe { kinlock_undefer(cleanup, (&raw const undo).cast_mut().cast()) };
    taken
}

unsafe extern "C" fn call<U: Fn()>(undo: *mut c_void) {
    // SAFETY: `wait_by_attempts` passes a function of this type.
    let undo = unsafe { &*undo.cast::<U>() };
    undo();
}

unsafe extern "C" fn nothing(_: *mut c_void) {}
