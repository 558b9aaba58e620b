//! The cancellable queue (OSQ, optimistic spin queue): an MCS queue that a waiter can leave at any
//! time, from any place in it. Waiters sleep in their places.
//!
//! Source: the queue of optimistic spinners of the Linux kernel's mutex (Zijlstra and others,
//! 2014), an MCS queue with unqueueing. In the kernel, waiters spin as long as the holder runs.
//! Here they sleep, nodes are named by number, and nodes belong to threads, which can be preempted.
//!
//! # Shape
//!
//! ```text
//!   tail -----------------------------------------+
//!                                                 v
//!   head <--previous-- a <--previous-- b <-- ... last
//!        --next------>   --next------>            next = 0
//! ```
//!
//! Every waiter but the head waits on the `state` of its own node. A head that leaves makes the
//! next waiter head: `state` := [`GO`].
//!
//! # Leaving
//!
//! `m` leaves, `p` is its predecessor, `n` its successor.
//!
//! | step | what |
//! | --- | --- |
//! | A | unlink `m` from `p`: compare-and-swap `p.next` from `m` to 0 |
//! | B | find `n` and keep it from leaving: swap `m.next` with 0; without `n`, tail := `p` |
//! | C | link `n` to `p`: `n.previous` := `p`, then `p.next` := `n`; if `p` is gone, `n` is head |
//!
//! | step | races with | and then |
//! | --- | --- | --- |
//! | A | `p` hands headship to `m`, and takes `p.next` too | `m` is head: it stays |
//! | A | `p` leaves as well | `m.previous` becomes `p`'s predecessor: try again there, or abandon |
//! | B | a newcomer has swapped the tail, and links itself next | wait for the link, or abandon |
//! | B | `n` leaves: its step A competes with this swap | wait for its step C, or abandon |
//! | B, C | `p`, the head, leaves: it does not wait for `m` | `p` is gone; `m` makes `n` the head |
//!
//! A thread that takes a `next` away, by swap or compare-and-swap, owns the link. So one thread at
//! a time changes a link.
//!
//! # Progress
//!
//! Steps A and B need another thread to execute a few instructions. A kernel disables preemption
//! during these. Here the other thread may be preempted right then, or run a signal handler that
//! waits for a lock which this thread holds. So a thread does not wait for the other for long:
//! after some pauses it leaves its node behind.
//!
//! * A waiter that has done step A links itself behind `p` again. Then it *abandons* its node. The
//!   thread that would make this waiter the head hands headship on instead, and reaps the node.
//! * A head, or a thread that passes over an abandoned node, marks the node as *gone*. The thread
//!   whose link is late finds the mark, makes its waiter the head and reaps the node; see
//!   [`slots`](crate::slots). If that thread moves the tail back to the node instead, no link
//!   comes: the thread looks for the mark after it has moved the tail, and the head looks at the
//!   tail after it has set the mark. At least one of the two sees what the other wrote, and empties
//!   the queue.

use super::waiter::{
    ABANDONED, Backoff, GO, GONE, Id, Link, Node, PARKED, WAITING, Waiter, Waiters, expired, left,
};
use crate::events::Event;
use crate::platform::{Atomic, Ordering::*, Platform, const_fn, zero};

/// The queue: two bytes, all zeros if it is empty. Its nodes lie in the threads' [waiter
/// slots](super::waiter).
#[repr(transparent)]
#[derive(Debug)]
pub struct Osq<P: Platform> {
    tail: P::AtomicU16,
}

impl<P: Platform> Default for Osq<P> {
    fn default() -> Self {
        Self::new()
    }
}

impl<P: Platform> Osq<P> {
    const_fn! {
        /// An empty queue.
        pub const fn new() -> Self {
            Osq { tail: zero!() }
        }
    }

    pub(crate) fn tail(&self) -> &P::AtomicU16 {
        &self.tail
    }

    /// The id of the last waiter, 0 = none.
    pub fn last(&self) -> u16 {
        self.tail.load(Relaxed)
    }

    /// Queues, and waits until the thread is the head of the queue (`true`), or until `until`
    /// (`false`: it has left the queue). The thread sleeps in its place if it `sleeps` and the
    /// platform can park, and spins otherwise.
    ///
    /// Queueing costs at most three remote cache misses: two for the tail, which is read and then
    /// swapped, and one for the predecessor's node. Becoming the head costs one. A head must call
    /// [`leave`](Self::leave) with the same node.
    pub fn join(&self, waiter: &Waiter<P>, sleeps: bool, until: u64) -> bool {
        self.append(waiter) || self.wait(waiter, sleeps, until) || !self.quit(waiter)
    }

    /// Queues. `true`: the thread is the head, since the queue was empty.
    pub(in crate::raw) fn append(&self, waiter: &Waiter<P>) -> bool {
        debug_assert!(!waiter.is_left_behind());
        let is_head = self.links().append(waiter.id());
        if !is_head {
            P::count(Event::Queued);
        }
        is_head
    }

    /// How many waiters are ahead of this one; `None`: more than `limit`.
    pub(in crate::raw) fn count_ahead(&self, waiter: &Waiter<P>, limit: u64) -> Option<u64> {
        self.links().count_ahead(waiter.node(), limit)
    }

    /// Waits until the thread is the head (`true`), or until `until` (`false`: it is still queued,
    /// and may wait again). The thread sleeps if it `sleeps` and the platform can park, and spins
    /// otherwise.
    pub(in crate::raw) fn wait(&self, waiter: &Waiter<P>, sleeps: bool, until: u64) -> bool {
        let state = &waiter.node().state;
        if !sleeps {
            return P::wait_for(state, Acquire, left(until, P::now), |s| s != WAITING).is_ok();
        }
        // Not if the time is up: such a waiter does not sleep.
        let park = || state.compare_exchange(WAITING, PARKED, AcqRel, Acquire);
        if !expired(until, P::now) && park().is_ok() {
            P::count(Event::Park);
        }
        while state.load(Acquire) == PARKED && !expired(until, P::now) {
            let key = (&raw const *state).cast();
            P::park(key, PARKED, until, || state.load(Relaxed));
        }
        state.load(Acquire) == GO
    }

    /// Leaves the queue as a waiter that is not its head. `false`: it has become the head in the
    /// meantime, and stays.
    pub(in crate::raw) fn quit(&self, waiter: &Waiter<P>) -> bool {
        self.links().unqueue(waiter)
    }

    /// About how many waiters have queued behind this `waiter`, including waiters that have left
    /// since.
    pub(crate) fn followers(&self, waiter: &Waiter<P>) -> u32 {
        self.links().table.followers(waiter.node(), self.tail())
    }

    /// Hands headship on to the next waiter, if any, without waiting for it. This may leave the
    /// node behind, which then cannot join again.
    pub fn leave(&self, waiter: &Waiter<P>) {
        self.links().hand_on(waiter);
    }

    fn links(&self) -> Links<'_, P> {
        Links {
            tail: &self.tail,
            table: P::waiters(),
        }
    }
}

/// The links of the queue, borrowed for one operation.
struct Links<'a, P: Platform> {
    tail: &'a P::AtomicU16,
    table: &'static Waiters<P>,
}

impl<P: Platform> Links<'_, P> {
    fn node(&self, id: Id) -> &'static Node<P> {
        self.table.node(id)
    }

    /// Queues. `true`: `me` is the head, since the queue was empty or its last node was gone.
    fn append(&self, me: Id) -> bool {
        self.node(me).prepare(0, false);
        self.node(me).previous.store(0, Relaxed);
        self.table.number(self.node(me), self.tail);
        // Release publishes the prepared node; Acquire makes the predecessor's visible.
        let Some(before) = Id::decode(self.tail.swap(me.encode(), AcqRel)) else {
            return true;
        };
        self.set_previous(me, before);
        self.node(me).number_after(self.node(before));
        let is_head = self.table.link(before, link_to(me));
        if is_head {
            self.node(me).previous.store(0, Relaxed);
        }
        is_head
    }

    /// How many waiters are ahead of the waiter at `node`; `None`: more than `limit`.
    ///
    /// Only a hint: the nodes on the way may change during the walk, or be in other queues by then.
    /// Costs one cache miss for each node.
    fn count_ahead(&self, mut node: &Node<P>, limit: u64) -> Option<u64> {
        (1..=limit).find(|_| {
            if let Some(before) = Id::decode(node.previous.load(Relaxed)) {
                node = self.node(before);
            }
            // A waiter that became the head of an empty queue has no predecessor. A waiter that has
            // not stored its predecessor yet looks the same.
            node.state.load(Relaxed) == GO || node.previous.load(Relaxed) == 0
        })
    }

    /// Hands headship on from this waiter, the head, to its successor, if there is one.
    fn hand_on(&self, waiter: &Waiter<P>) {
        let me = waiter.id();
        let mark = || waiter.leave_behind(|| self.table.mark_gone(me));
        if let Some(Some(next)) = self.take_out(me, mark) {
            self.make_head(next);
        }
    }

    /// Takes the head out of the queue. `Some`: its successor, if it has one. `None`: a newcomer is
    /// late to link itself, so `mark` has left the node behind, and the newcomer will find that it
    /// is the head.
    fn take_out(&self, head: Id, mark: impl Fn() -> bool) -> Option<Option<Id>> {
        let mut backoff = Backoff::NEW;
        loop {
            if let Some(next) = self.detach_next(head, None) {
                return Some(next);
            }
            if backoff.pause::<P>() {
                continue;
            }
            // As soon as the node is marked, a newcomer may reap it. The pin keeps the node from
            // being used again before this thread has seen whether the tail of this queue still
            // names it.
            self.table.pin(head);
            let marked = mark();
            if marked {
                self.reap_last(head);
            }
            self.table.unpin(head);
            if marked {
                return None;
            }
        }
    }

    /// Makes this waiter the head or, if it has left, the first waiter behind it that has not.
    fn make_head(&self, mut id: Id) {
        while !self.grant(id) {
            let Some(next) = self.take_out(id, || self.table.mark_gone(id)) else {
                return;
            };
            self.table.reap(id);
            match next {
                Some(next) => id = next,
                None => return,
            }
        }
    }

    /// Grants headship to this waiter, and wakes it if it sleeps. `false`: it has left.
    fn grant(&self, id: Id) -> bool {
        let state = &self.node(id).state;
        let mut seen = WAITING;
        loop {
            // AcqRel pairs with the waiter's load of its state, and with the compare-and-swap by
            // which it falls asleep. Acquire on failure pairs with `abandon`: the reference that
            // was counted before must be visible when the node is reaped.
            match state.compare_exchange(seen, GO, AcqRel, Acquire) {
                Ok(PARKED) => {
                    P::unpark((&raw const *state).cast(), 1);
                    return true;
                }
                Ok(_) => return true,
                Err(ABANDONED) => return false,
                Err(now) => seen = now,
            }
        }
    }

    /// Takes this waiter out of the queue. `false`: headship has come first.
    fn unqueue(&self, waiter: &Waiter<P>) -> bool {
        let node = waiter.node();
        let mut backoff = Backoff::NEW;
        // Step A.
        let before = loop {
            // Never `None`: only waiters with a predecessor come here.
            let Some(before) = Id::decode(node.previous.load(Acquire)) else {
                return false;
            };
            let next = &self.node(before).next;
            if next
                .compare_exchange(link_to(waiter.id()).encode(), 0, AcqRel, Relaxed)
                .is_ok()
            {
                break before;
            }
            if node.state.load(Acquire) == GO {
                return false;
            }
            if !backoff.pause::<P>() {
                return self.abandon(waiter);
            }
        };
        self.leave_between(waiter, before)
    }

    /// Steps B and C.
    fn leave_between(&self, waiter: &Waiter<P>, before: Id) -> bool {
        let me = waiter.id();
        let mut backoff = Backoff::NEW;
        let after = loop {
            match self.detach_next(me, Some(before)) {
                Some(after) => break after,
                None if backoff.pause::<P>() => {}
                None if self.table.link(before, link_to(me)) => {
                    // This waiter is the head now, since its predecessor is gone.
                    self.hand_on(waiter);
                    break None;
                }
                None => return self.abandon(waiter),
            }
        };
        if let Some(after) = after {
            // The order matters: once `before.next` is set, `before` may leave and change
            // `after.previous` itself.
            self.set_previous(after, before);
            if self.table.link(before, link_to(after)) {
                self.make_head(after);
            }
        }
        P::count(Event::Unqueue);
        true
    }

    /// Leaves the node behind, in its place. `false`: headship has come first.
    fn abandon(&self, waiter: &Waiter<P>) -> bool {
        let state = &waiter.node().state;
        let seen = state.load(Acquire);
        // Only a grant of headship can intervene. Acquire on failure pairs with the grant.
        let abandon = || {
            state
                .compare_exchange(seen, ABANDONED, AcqRel, Acquire)
                .is_ok()
        };
        let left = seen != GO && waiter.leave_behind(abandon);
        if left {
            P::count(Event::Unqueue);
        }
        left
    }

    /// Takes the successor's id out of `me.next`, so that the successor cannot leave. `Some(None)`:
    /// there is no successor, and the tail is `back` now. `None`: a newcomer is about to link
    /// itself, or a leaving successor is about to link its own.
    fn detach_next(&self, me: Id, back: Option<Id>) -> Option<Option<Id>> {
        if self.tail.load(Relaxed) == me.encode() && self.move_tail_back(me, back) {
            return Some(None);
        }
        // No load first: the successor has written this line, which should be transferred only
        // once.
        Link::decode(self.node(me).next.swap(0, AcqRel)).map(|next| Some(next.id()))
    }

    fn move_tail_back(&self, me: Id, back: Option<Id>) -> bool {
        let Some(before) = back else {
            return self.swing_tail(me, 0);
        };
        // As soon as the tail names the node, a newcomer may reap it.
        self.table.pin(before);
        let moved = self.swing_tail(me, before.encode());
        // A read-modify-write, so that it either precedes the head's mark or sees it. If it
        // precedes the mark, the head acquires the new tail from it.
        if moved && self.node(before).next.fetch_add(0, AcqRel) == GONE {
            self.reap_last(before);
        }
        self.table.unpin(before);
        moved
    }

    /// If this node, which is gone, is the last, empties the queue and reaps the node.
    fn reap_last(&self, gone: Id) {
        if self.swing_tail(gone, 0) {
            self.table.reap(gone);
        }
    }

    fn swing_tail(&self, from: Id, to: u16) -> bool {
        self.tail
            .compare_exchange(from.encode(), to, AcqRel, Relaxed)
            .is_ok()
    }

    /// Release pairs with the Acquire in step A: the predecessor's node is prepared.
    fn set_previous(&self, id: Id, before: Id) {
        self.node(id).previous.store(before.encode(), Release);
    }
}

/// The link that names `id` in a `next`.
fn link_to(id: Id) -> Link {
    Link::new(id, false, 0)
}

#[cfg(all(test, not(loom)))]
mod tests;
