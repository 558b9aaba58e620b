//! Waiting in a queue: the calling thread's hold on one of its [nodes](Node).
//!
//! [`slots`](crate::slots) explains slots, nodes, and the states of their words.
//!
//! # Invariant cited by `SAFETY` comments
//!
//! 1. A slot that has been claimed is the claiming thread's until that thread releases it.

use crate::platform::{Atomic, NEVER, Ordering::*, Platform};
pub use crate::slots::*;
use core::cell::Cell;

impl<P: Platform> Waiters<P> {
    /// Gives the calling thread a place to wait: one of its nodes, which is its own until the
    /// waiter is dropped or abandoned. `None`: all nodes of the thread are in use, or all slots.
    pub fn take_node(&'static self) -> Option<Waiter<P>> {
        let kept = P::kept_slot();
        if kept != 0 {
            return self.claim_node(kept).map(|id| Waiter::new(self, id, false));
        }
        let slot = self.claim()?;
        // SAFETY: invariant 1.
        let transient = unsafe { !P::keep_slot(slot) };
        match self.claim_node(slot) {
            Some(id) => Some(Waiter::new(self, id, transient)),
            None => {
                // After `keep_slot`, a signal handler has used all nodes and abandoned them.
                if transient {
                    self.drop_reference(slot);
                }
                None
            }
        }
    }
}

/// A node held by the calling thread. Dropping the waiter frees the node, unless the node was left
/// behind in a queue: an abandoned node to the head that passes it over, a node that is gone to the
/// thread that links itself behind it.
#[derive(Debug)]
pub struct Waiter<P: Platform> {
    id: Id,
    table: &'static Waiters<P>,
    /// The slot was claimed for this wait alone.
    transient: bool,
    left_behind: Cell<bool>,
}

impl<P: Platform> Waiter<P> {
    pub(crate) fn new(table: &'static Waiters<P>, id: Id, transient: bool) -> Self {
        Waiter {
            id,
            table,
            transient,
            left_behind: Cell::new(false),
        }
    }

    /// The node's name.
    pub fn id(&self) -> Id {
        self.id
    }

    /// The domain that this waiter has in a queue which reorders: its locality domain, or
    /// [`PRIORITY`] for a waiter that is never set aside. Priority waiters are the threads that the
    /// platform names, and signal handlers that have interrupted a wait: while such a handler
    /// waits, its thread's place blocks the other queue.
    pub(crate) fn named(&self, domain: u16) -> u16 {
        match P::is_priority() || self.table.is_nested(self.id) {
            true => PRIORITY,
            false => domain,
        }
    }

    pub(crate) fn node(&self) -> &'static Node<P> {
        self.table.node(self.id)
    }

    /// Tries to leave the queue without headship: replaces the state `seen`, [`WAITING`] or
    /// [`PARKED`], with [`ABANDONED`]. The node then belongs to the head that passes it over. `Err`
    /// gives the waiter back if the state was not `seen`: headship has come.
    pub(crate) fn abandon(self, seen: u32) -> Result<(), Self> {
        let state = &self.node().state;
        let abandon = || {
            state
                .compare_exchange(seen, ABANDONED, AcqRel, Relaxed)
                .is_ok()
        };
        self.leave_behind(abandon).then_some(()).ok_or(self)
    }

    /// Leaves the node behind if `leave` succeeds, which may let other threads reap it.
    pub(crate) fn leave_behind(&self, leave: impl FnOnce() -> bool) -> bool {
        // Before `leave`: afterwards the node may be reaped at any time.
        self.table.add_reference(self.id.slot());
        let left = leave();
        if !left {
            self.table.take_back_reference(self.id.slot());
        }
        self.left_behind.set(left);
        left
    }

    pub(crate) fn is_left_behind(&self) -> bool {
        self.left_behind.get()
    }
}

impl<P: Platform> Drop for Waiter<P> {
    fn drop(&mut self) {
        if !self.left_behind.get() {
            self.table.free(self.id);
        }
        if self.transient {
            self.table.drop_reference(self.id.slot());
        }
    }
}

/// Pauses while another thread takes a step that is short unless the thread is preempted.
#[derive(Debug)]
pub(crate) struct Backoff(u32);

impl Backoff {
    /// The number of pauses. Their sum is several times as long as a cache line takes between
    /// sockets. 0 under a model checker, where each pause would run the other thread, so that its
    /// step would never be late.
    const PAUSES: u32 = if cfg!(loom) { 0 } else { 64 };

    pub(crate) const NEW: Self = Backoff(0);

    /// Pauses once. `false`: all pauses are used up.
    pub(crate) fn pause<P: Platform>(&mut self) -> bool {
        let more = self.0 != Self::PAUSES;
        if more {
            self.0 += 1;
            P::relax();
        }
        more
    }
}

/// Time left before `deadline`. Does not read the clock if there is no deadline.
pub(crate) fn left(deadline: u64, now: impl FnOnce() -> u64) -> u64 {
    match deadline {
        NEVER => NEVER,
        _ => deadline.saturating_sub(now()),
    }
}

/// Whether `deadline` has come. Does not read the clock if there is no deadline.
pub(crate) fn expired(deadline: u64, now: impl FnOnce() -> u64) -> bool {
    deadline != NEVER && now() >= deadline
}

/// How long a waiter sleeps at most if no heavy fence guarantees that it is noticed, in
/// nanoseconds: the interval between two fences of a process.
pub(crate) use crate::fence_calls::INTERVAL_NS as UNNOTICED_SLEEP_NS;

/// When a sleep ends by itself. `noticed`: a fence guarantees that another thread ends the sleep in
/// time.
pub(crate) fn sleep_limit<P: Platform>(noticed: bool, deadline: u64) -> u64 {
    if noticed {
        deadline
    } else {
        deadline.min(P::now() + UNNOTICED_SLEEP_NS)
    }
}

/// A timed sleep, on a private word: no thread ends it.
pub(crate) fn sleep_until<P: Platform>(until: u64) {
    let asleep = P::AtomicU32::new(0);
    P::park((&raw const asleep).cast(), 0, until, || {
        asleep.load(Relaxed)
    });
}

#[cfg(all(test, not(loom)))]
mod tests;
