//! Taking the lock outside the queue: ahead of a front waiter that does not run, or without a node.

use super::timing::{STEAL_ATTEMPTS, STEAL_WAIT_NS};
use super::{EXTENDED, QueuedSpinLock, STEAL, Seen, Terms, expired};
use crate::events::Event;
use crate::platform::{Atomic, Ordering::*, Platform};
use crate::raw::LockConfig;
use crate::raw::waiter::{GONE, Id, PARKED as NODE_PARKED, sleep_until};

impl<P: Platform, C: LockConfig> QueuedSpinLock<P, C> {
    /// Takes the lock ahead of a front waiter that does not run. Tries for a moment: a thread that
    /// queues behind sleepers has to sleep, which costs more than a few short critical sections.
    pub(super) fn steal(&self, mut seen: Seen, oversubscribed: bool) -> bool {
        for _ in 0..STEAL_ATTEMPTS {
            // `sleeps` fetches a cache line of another thread.
            let hopeful = seen.pending & STEAL != 0 || oversubscribed && sleeps::<P>(seen.tail);
            if !hopeful {
                return false;
            }
            // A front waiter that runs takes the lock soon, and then makes a sleeper the head.
            let permitted = P::wait_for(&self.pending, Relaxed, STEAL_WAIT_NS, |p| p & STEAL != 0);
            let free = P::wait_for(&self.locked, Relaxed, STEAL_WAIT_NS, |l| l == 0);
            if permitted.is_err() || free.is_err() {
                return false;
            }
            if self.steal_permitted() && self.try_take() {
                return true;
            }
            seen = self.look();
        }
        false
    }

    pub(super) fn steal_permitted(&self) -> bool {
        self.pending.load(Relaxed) & STEAL != 0
    }

    /// Tries to take the lock in a forked child, where the waiters that the word names may not
    /// exist. If the last waiter does not exist, this thread queues to find out whether that is
    /// still so.
    #[cold]
    #[inline(never)]
    pub(super) fn try_lock_in_child(&self) -> bool {
        self.forget_pending_of_parent();
        let last = Id::decode(self.tail.load(Relaxed));
        let gone = |id| P::waiters().node(id).next.load(Relaxed) == GONE;
        if self.is_locked() || !last.is_some_and(gone) {
            // A thread of the parent may have been between the two steps of an unlock that clears a
            // mark.
            let marks = self.pending.load(Relaxed) & !EXTENDED;
            return marks == 0 && last.is_none() && self.try_take();
        }
        let terms = Terms {
            tuning: C::tuning_of_spinlock(),
            deadline: 0,
            oversubscribed: false,
        };
        let place = P::waiters().take_node();
        place.is_some_and(|place| self.queue(place, terms))
    }

    /// Takes the lock when there is no free node, because of deep nesting or many threads. The
    /// thread tries again and again, with growing pauses. This is slower and not fair, but correct.
    #[cold]
    pub(super) fn lock_beside(&self, deadline: u64) -> bool {
        P::count(Event::SlotFallback);
        let mut pause = 1u32;
        loop {
            if self.try_take() {
                return true;
            }
            if expired(deadline, P::now) {
                P::count(Event::Timeout);
                return false;
            }
            if pause < 1 << 8 || !(P::CAN_PARK && C::PARK) {
                for _ in 0..pause {
                    P::relax();
                }
            } else {
                // A timed sleep, since no thread would wake this one.
                sleep_until::<P>(deadline.min(P::now() + (pause as u64) * 100));
            }
            pause = (pause * 2).min(1 << 10);
        }
    }
}

/// Whether the waiter that `tail` names sleeps.
fn sleeps<P: Platform>(tail: u16) -> bool {
    let last = Id::decode(tail);
    last.is_some_and(|id| P::waiters().node(id).state.load(Relaxed) == NODE_PARKED)
}
