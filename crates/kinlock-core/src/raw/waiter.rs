//! Waiting in a queue: the calling thread's hold on one of its [nodes](Node).
//!
//! What a slot and a node are, and what their words mean, is told in [`slots`](crate::slots).

use crate::platform::{Atomic, Ordering::*, Platform};
pub use crate::slots::*;

impl<P: Platform> Waiters<P> {
    /// A place to wait for the calling thread: one of its nodes, which nobody else uses until it is dropped or
    /// abandoned. `None` if all nodes of the thread are in use, or all slots.
    pub fn enter(&'static self) -> Option<Waiter<P>> {
        let kept = P::kept_slot();
        if kept != 0 {
            return self.free_node(kept).map(|id| Waiter {
                id,
                table: self,
                transient: false,
            });
        }
        let slot = self.claim()?;
        let transient = !P::keep_slot(slot);
        match self.free_node(slot) {
            Some(id) => Some(Waiter {
                id,
                table: self,
                transient,
            }),
            None => {
                // Only a signal handler between `keep_slot` and here can have used all nodes up, and only by abandoning them.
                if transient {
                    self.release(slot);
                }
                None
            }
        }
    }

    /// The note in the slot that the calling thread keeps, if it keeps one.
    #[inline]
    pub(crate) fn own_prediction_cell(&self) -> Option<&'static P::AtomicU32> {
        match P::kept_slot() {
            0 => None,
            slot => Some(self.note(slot)),
        }
    }
}

/// A node held by the calling thread. Dropping it frees the node; giving up leaves it to whoever passes it over.
#[derive(Debug)]
pub struct Waiter<P: Platform> {
    id: Id,
    table: &'static Waiters<P>,
    /// The slot was claimed for this wait alone.
    transient: bool,
}

impl<P: Platform> Waiter<P> {
    /// The node's name.
    pub fn id(&self) -> Id {
        self.id
    }

    pub(crate) fn node(&self) -> &'static Node<P> {
        self.table.node(self.id)
    }

    /// The note that the thread has left itself; 0 if none.
    pub(crate) fn note(&self) -> &'static P::AtomicU32 {
        self.table.note(self.id.slot())
    }

    /// Tries to leave the queue without headship: replaces `seen`, one of [`WAITING`] and [`PARKED`], by
    /// [`ABANDONED`]. The node then belongs to whoever passes it over. `Err` gives the waiter back if its state had
    /// changed: headship has arrived.
    pub(crate) fn abandon(self, seen: u32) -> Result<(), Self> {
        let slot = self.id.slot();
        // Before the exchange: from then on the node may be reaped at any time.
        self.table.add_reference(slot);
        if self
            .node()
            .state
            .compare_exchange(seen, ABANDONED, AcqRel, Relaxed)
            .is_err()
        {
            self.table.take_back_reference(slot);
            return Err(self);
        }
        let gone = core::mem::ManuallyDrop::new(self);
        if gone.transient {
            gone.table.release(slot);
        }
        Ok(())
    }
}

impl<P: Platform> Drop for Waiter<P> {
    fn drop(&mut self) {
        self.table.free(self.id);
        if self.transient {
            self.table.release(self.id.slot());
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
