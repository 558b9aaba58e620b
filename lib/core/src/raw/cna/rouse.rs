//! Waking sleepers before their turn.

use super::Head;
use super::limit::{Limit, ROUSED_BEFORE};
use crate::platform::{Atomic, Ordering::*, Platform};
use crate::raw::waiter::{Node, PARKED};

/// How many sleepers a head rouses ahead. Waking a thread takes about as long as a few hand-offs,
/// and the lock may have to wait for that. A roused waiter rouses the waiters behind it.
pub(crate) const ROUSE_AHEAD: usize = 8;

impl<P: Platform> Head<P> {
    /// Calls `rouse` for waiters that sleep and whose turn is near: the next `most` local waiters,
    /// and the first of the secondary queue. They then wake up at the same time, instead of one
    /// after the other, each at its turn. Call it after [`pre_scan`](Self::pre_scan).
    pub(crate) fn rouse_ahead(&mut self, most: usize, rouse: impl Fn(&Node<P>)) {
        self.rouse_set_aside(&rouse);
        self.rouse_next(most, &rouse);
    }

    /// Rouses the first of the secondary queue once, when the limit is near. A waiter that was set
    /// aside long ago is asleep by then, and so are the others of its domain.
    fn rouse_set_aside(&mut self, rouse: &impl Fn(&Node<P>)) {
        if self.limit != Limit::Near || self.run & ROUSED_BEFORE != 0 {
            return;
        }
        if let Some(first) = self.secondary.and_then(|last| self.next(last)) {
            self.run |= ROUSED_BEFORE;
            rouse(self.node(first.id()));
        }
    }

    /// Rouses the sleepers among the next `most` local waiters, if the very next waiter sleeps.
    /// Other waiters stay asleep: they are about to be set aside, or stand behind many hand-offs.
    fn rouse_next(&mut self, most: usize, rouse: &impl Fn(&Node<P>)) {
        let mut last = self.place;
        for _ in 0..most {
            let Some(link) = self.next(last) else {
                return;
            };
            let next = link.id();
            let node = self.node(next);
            let is_next = last == self.place;
            if is_next && node.drowsy.load(Relaxed) != 0 {
                self.drowsy = Some(next);
            }
            let sleeps = node.state.load(Relaxed) == PARKED;
            if is_next && !sleeps || !self.is_local(link) {
                return;
            }
            if sleeps {
                rouse(node);
            }
            last = next;
        }
    }
}
