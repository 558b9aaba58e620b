//! Waiting in a queue: the calling thread's hold on one of its [nodes](Node).
//!
//! [`slots`](crate::slots) explains slots, nodes, and the states of their words.

use crate::platform::{Atomic, Ordering::*, Platform};
pub use crate::slots::*;

impl<P: Platform> Waiters<P> {
    /// A place to wait for the calling thread: one of its nodes, for its use alone until the waiter
    /// is dropped or abandoned. `None` if all nodes of the thread are in use, or all slots.
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
                // A signal handler since `keep_slot` has used up all nodes, and abandoned them.
                if transient {
                    self.release(slot);
                }
                None
            }
        }
    }

    /// What a mutex predicts for the next wait, in the slot that the calling thread keeps. `None`
    /// if it keeps none.
    #[inline]
    pub(crate) fn own_prediction_cell(&self) -> Option<&'static P::AtomicU32> {
        match P::kept_slot() {
            0 => None,
            slot => Some(self.note(slot)),
        }
    }
}

/// A node held by the calling thread. Dropping it frees the node. Abandoning it leaves the node to
/// the head that passes it over.
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

    /// What a mutex predicts for the next wait of the thread; 0 if nothing.
    pub(crate) fn note(&self) -> &'static P::AtomicU32 {
        self.table.note(self.id.slot())
    }

    /// Tries to leave the queue without headship: replaces `seen`, [`WAITING`] or [`PARKED`], by
    /// [`ABANDONED`]. The node then belongs to the head that passes it over. `Err` gives the waiter
    /// back if its state was another one: headship has come.
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
