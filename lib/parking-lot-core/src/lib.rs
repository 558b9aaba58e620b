//! Parking threads under an address, by the names of parking_lot_core 0.9.
//!
//! A program takes this crate in place of parking_lot_core, for all that it depends on:
//!
//! ```toml
//! [patch.crates-io]
//! parking_lot_core = { path = "../kinlock/lib/parking-lot-core" }
//! ```
//!
//! Threads wait in queues, each named by a key: an address that the caller owns. A fixed table of
//! 256 buckets has the queues. A kinlock mutex guards each bucket. A wait allocates one small piece
//! of memory. `docs/guide/switching.md` lists the differences.
//!
//! # Example
//!
//! ```
//! use parking_lot_core::*;
//! use std::sync::atomic::{AtomicBool, Ordering::*};
//!
//! let open = AtomicBool::new(false);
//! let key = open.as_ptr().addr();
//! std::thread::scope(|s| {
//!     s.spawn(|| {
//!         while !open.load(Acquire) {
//!             let closed = || !open.load(Relaxed);
//!             // SAFETY: the key is the address of our own variable; the closure only reads it.
//!             unsafe { park(key, closed, || (), |_, _| (), DEFAULT_PARK_TOKEN, None) };
//!         }
//!     });
//!     open.store(true, Release);
//!     // SAFETY: as above.
//!     unsafe { unpark_all(key, DEFAULT_UNPARK_TOKEN) };
//! });
//! ```
//!
//! # Memory order and cost
//!
//! What a thread did before it unparked another happens before that one's `park` returns. Closures
//! that run while the same queue is locked happen one after the other. Each function looks at the
//! waiters of one bucket at most, of two when it requeues: O(waiters in it).
//!
//! # Safety of all functions
//!
//! A key must be an address that the caller controls. A closure that runs while a queue is locked
//! must neither panic nor call a function of this crate, or it may wait forever. Signal handlers
//! must not call them. After a fork, a bucket whose lock another thread held stays locked in the
//! child.

mod queue;
mod spin;

pub use queue::{ParkToken, UnparkToken};
pub use spin::SpinWait;

use kinlock_core::platform::NEVER;
use kinlock_linux::native::deadline;
use queue::{Queue, Waiter, lock, lock_both};
use std::sync::Arc;
use std::time::Instant;

/// How a wait ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ParkResult {
    /// Another thread has unparked this one, and passed the token.
    Unparked(UnparkToken),
    /// `validate` refused.
    Invalid,
    /// The time was up.
    TimedOut,
}

impl ParkResult {
    /// Whether another thread has unparked this one.
    #[inline]
    pub fn is_unparked(self) -> bool {
        matches!(self, ParkResult::Unparked(_))
    }
}

/// What a function has done to a queue.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct UnparkResult {
    /// How many threads were unparked.
    pub unparked_threads: usize,
    /// How many threads were moved to the other queue.
    pub requeued_threads: usize,
    /// Whether the first queue has threads still.
    pub have_more_threads: bool,
    /// Says to pass a lock on to the thread that is unparked: about every 0.5 ms, by bucket. Only
    /// if one is unparked.
    pub be_fair: bool,
}

/// What [`unpark_requeue`] is to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RequeueOp {
    /// Nothing.
    Abort,
    /// Unpark the first thread, and move the others.
    UnparkOneRequeueRest,
    /// Move all threads.
    RequeueAll,
    /// Unpark the first thread.
    UnparkOne,
    /// Move the first thread.
    RequeueOne,
}

/// What [`unpark_filter`] is to do with a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FilterOp {
    /// Unpark it, and go on with the next.
    Unpark,
    /// Leave it, and go on with the next.
    Skip,
    /// Leave it and those behind it.
    Stop,
}

/// For threads that have nothing to tell.
pub const DEFAULT_UNPARK_TOKEN: UnparkToken = UnparkToken(0);

/// For threads that have nothing to tell.
pub const DEFAULT_PARK_TOKEN: ParkToken = ParkToken(0);

/// Puts the calling thread to sleep in the queue of `key`, until another unparks it or `timeout`.
/// It never returns spuriously.
///
/// * `validate` runs while the queue is locked. If it returns `false`, the thread does not wait.
/// * `before_sleep` runs when the thread is in the queue, which is not locked then. It may unpark
///   threads, and must not park or panic.
/// * `timed_out` runs while the queue is locked, if the time was up. Its arguments: the key of the
///   queue, which is another one if the thread was requeued; whether the thread was its last one.
///
/// # Safety
///
/// As for [all functions](crate#safety-of-all-functions).
pub unsafe fn park(
    key: usize,
    validate: impl FnOnce() -> bool,
    before_sleep: impl FnOnce(),
    timed_out: impl FnOnce(usize, bool),
    park_token: ParkToken,
    timeout: Option<Instant>,
) -> ParkResult {
    let waiter = Waiter::new(key, park_token);
    {
        let mut queue = lock(key);
        if !validate() {
            return ParkResult::Invalid;
        }
        queue.waiters.push_back(waiter.clone());
    }
    before_sleep();
    let left = |timeout: Instant| deadline(timeout.saturating_duration_since(Instant::now()));
    if let Some(token) = waiter.sleep(timeout.map_or(NEVER, left)) {
        return ParkResult::Unparked(token);
    }
    let (key, mut queue) = waiter.bucket();
    // It may have been unparked since.
    if let Some(token) = waiter.token() {
        return ParkResult::Unparked(token);
    }
    queue.waiters.retain(|other| !Arc::ptr_eq(other, &waiter));
    timed_out(key, !queue.has(key));
    ParkResult::TimedOut
}

/// Unparks the first thread in the queue of `key`.
///
/// `callback` runs while the queue is locked, also if it is empty. Its token is passed to the
/// thread. Its argument is also the result.
///
/// # Safety
///
/// As for [all functions](crate#safety-of-all-functions).
pub unsafe fn unpark_one(
    key: usize,
    callback: impl FnOnce(UnparkResult) -> UnparkToken,
) -> UnparkResult {
    let mut found = false;
    let filter = |_| match std::mem::replace(&mut found, true) {
        false => FilterOp::Unpark,
        true => FilterOp::Stop,
    };
    // SAFETY: as this function demands.
    unsafe { unpark_filter(key, filter, callback) }
}

/// Unparks all threads in the queue of `key`, and passes `token` to each. Returns how many.
///
/// # Safety
///
/// As for [all functions](crate#safety-of-all-functions).
pub unsafe fn unpark_all(key: usize, token: UnparkToken) -> usize {
    let mut queue = lock(key);
    let mut unparked = Vec::new();
    queue.waiters.retain(|waiter| {
        let chosen = waiter.has_key(key);
        unparked.extend(chosen.then(|| waiter.clone()));
        !chosen
    });
    // Nobody is told to be fair, so an answer that says so stays due.
    wake(queue, &unparked, token);
    unparked.len()
}

/// Unparks those threads in the queue of `key` that `filter` selects by their tokens, first in the
/// queue first.
///
/// `filter` and `callback` run while the queue is locked. The token of `callback` is passed to each
/// thread that is unparked. Its argument is also the result.
///
/// # Safety
///
/// As for [all functions](crate#safety-of-all-functions).
pub unsafe fn unpark_filter(
    key: usize,
    mut filter: impl FnMut(ParkToken) -> FilterOp,
    callback: impl FnOnce(UnparkResult) -> UnparkToken,
) -> UnparkResult {
    let mut queue = lock(key);
    let (mut unparked, mut result) = (Vec::new(), UnparkResult::default());
    let mut at = 0;
    while let Some(waiter) = queue.waiters.get(at) {
        match waiter.has_key(key).then(|| filter(waiter.park_token)) {
            None => at += 1,
            Some(FilterOp::Unpark) => unparked.extend(queue.waiters.remove(at)),
            Some(op) => {
                result.have_more_threads = true;
                if op == FilterOp::Stop {
                    break;
                }
                at += 1;
            }
        }
    }
    finish(queue, unparked, &mut result, callback);
    result
}

/// Unparks the first thread in the queue of `from`, moves threads to the end of the queue of `to`,
/// or both: as `validate` says.
///
/// `validate` and `callback` run while both queues are locked; `callback` not after
/// [`RequeueOp::Abort`]. The token of `callback` is passed to the thread that is unparked. Its
/// arguments are what `validate` said, and the result.
///
/// # Safety
///
/// As for [all functions](crate#safety-of-all-functions).
pub unsafe fn unpark_requeue(
    from: usize,
    to: usize,
    validate: impl FnOnce() -> RequeueOp,
    callback: impl FnOnce(RequeueOp, UnparkResult) -> UnparkToken,
) -> UnparkResult {
    let (mut source, mut target) = lock_both(from, to);
    let (mut unparked, mut moved) = (Vec::new(), Vec::new());
    let mut result = UnparkResult::default();
    let op = validate();
    let (mut unpark, mut requeue) = match op {
        RequeueOp::Abort => return result,
        RequeueOp::UnparkOneRequeueRest => (1, usize::MAX),
        RequeueOp::RequeueAll => (0, usize::MAX),
        RequeueOp::UnparkOne => (1, 0),
        RequeueOp::RequeueOne => (0, 1),
    };
    source.waiters.retain(|waiter| {
        let chosen = match waiter.has_key(from) {
            true if unpark > 0 => (&mut unpark, &mut unparked),
            true if requeue > 0 => (&mut requeue, &mut moved),
            other => {
                result.have_more_threads |= other;
                return true;
            }
        };
        *chosen.0 -= 1;
        chosen.1.push(waiter.clone());
        false
    });
    result.requeued_threads = moved.len();
    moved.iter().for_each(|waiter| waiter.set_key(to));
    target.as_mut().unwrap_or(&mut source).waiters.extend(moved);
    finish(source, unparked, &mut result, |result| callback(op, result));
    result
}

/// Tells `callback` what has been done to a queue, and unparks threads that have been taken out of
/// it.
fn finish(
    mut queue: kinlock::MutexGuard<'_, Queue>,
    unparked: Vec<Arc<Waiter>>,
    result: &mut UnparkResult,
    callback: impl FnOnce(UnparkResult) -> UnparkToken,
) {
    result.unparked_threads = unparked.len();
    result.be_fair = !unparked.is_empty() && queue.is_fair();
    let token = callback(*result);
    wake(queue, &unparked, token);
}

/// Unparks threads that have been taken out of their queue, which is locked until then.
fn wake(queue: kinlock::MutexGuard<'_, Queue>, unparked: &[Arc<Waiter>], token: UnparkToken) {
    unparked.iter().for_each(|waiter| waiter.unpark(token));
    drop(queue);
    unparked.iter().for_each(|waiter| waiter.wake());
}

/// Finding deadlocks: [`kinlock::deadlock`], which notes kinlock's locks only.
pub mod deadlock {
    #[cfg(feature = "deadlock_detection")]
    pub use kinlock::deadlock::{DeadlockedThread, check_deadlock};

    /// Without effect: locks that are made of [`park`](crate::park) are not noted.
    ///
    /// # Safety
    ///
    /// There are no conditions.
    #[inline]
    pub unsafe fn acquire_resource(_: usize) {}

    /// Without effect: locks that are made of [`park`](crate::park) are not noted.
    ///
    /// # Safety
    ///
    /// There are no conditions.
    #[inline]
    pub unsafe fn release_resource(_: usize) {}
}
