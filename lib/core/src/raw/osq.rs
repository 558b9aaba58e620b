//! The cancellable queue (OSQ, optimistic spin queue): an MCS queue that a waiter can leave at any
//! time, from any place. A waiter sleeps in its place.
//!
//! Source: the queue of optimistic spinners of the Linux kernel's mutex (Zijlstra and others,
//! 2014), an MCS queue with unqueueing. There waiters spin as long as the holder runs. Here they
//! sleep, nodes are named by number, and nodes belong to threads, which can be preempted.
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
//! Steps A and B need a few instructions of another thread. A kernel disables preemption there.
//! Here the other thread may be preempted just then, or run a signal handler that waits for a lock
//! of this one. So no thread waits for it for long: after some pauses it leaves its node behind.
//!
//! * A waiter puts itself back behind `p`, if it has done step A, and *abandons* its node. The
//!   thread that would make it the head hands headship on instead, and reaps the node.
//! * A head, and who acts for an abandoned one, marks the node as *gone*. The thread whose link is
//!   late finds the mark, makes its waiter the head and reaps the node; see
//!   [`slots`](crate::slots). If that thread moves the tail back to the node instead, no link
//!   comes: it looks for the mark after that, and the head looks at the tail after it has set the
//!   mark. At least one of the two sees the other, and empties the queue.

use super::waiter::{
    ABANDONED, Backoff, GO, GONE, Id, Link, Node, PARKED, WAITING, Waiter, Waiters, expired, left,
};
use crate::events::Event;
use crate::platform::{Atomic, Ordering::*, Platform, const_fn, zero};

/// The queue. All zeros: empty. Two bytes; its nodes are those of the threads' [waiter
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
    /// (`false`: it has left the queue). It sleeps in its place if it `sleeps` and threads can, and
    /// spins otherwise.
    ///
    /// Three remote cache misses to queue at most, for the tail, which is read and then swapped,
    /// and for the predecessor's node, and one to become head. A head must call
    /// [`leave`](Self::leave) with the same node.
    pub fn join(&self, waiter: &Waiter<P>, sleeps: bool, until: u64) -> bool {
        self.append(waiter) || self.wait(waiter, sleeps, until) || !self.quit(waiter)
    }

    /// Queues. `true`: the thread is the head, as no other queues.
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

    /// Waits until the thread is the head (`true`) or until `until`, in which case it still queues
    /// and may wait again. It sleeps if it `sleeps` and threads can, and spins otherwise.
    pub(in crate::raw) fn wait(&self, waiter: &Waiter<P>, sleeps: bool, until: u64) -> bool {
        let state = &waiter.node().state;
        if !sleeps {
            return P::wait_for(state, Acquire, left(until, P::now), |s| s != WAITING).is_ok();
        }
        // A waiter whose time is up does not fall asleep.
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

    /// Leaves the queue, not being its head. `false`: the thread has become the head meanwhile.
    pub(in crate::raw) fn quit(&self, waiter: &Waiter<P>) -> bool {
        self.links().unqueue(waiter)
    }

    /// About how many waiters have queued behind this `waiter`, with those that have left since.
    pub(crate) fn followers(&self, waiter: &Waiter<P>) -> u32 {
        self.links().table.followers(waiter.node(), self.tail())
    }

    /// Hands headship on to the next waiter, if any, without waiting for it. That may leave the
    /// node behind, and then it cannot join again.
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
        // Release publishes the prepared node, Acquire sees the predecessor's.
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

    /// How many waiters are ahead of the one at `node`; `None`: more than `limit`.
    ///
    /// A hint: the nodes on the way may change meanwhile, and wait in other queues by now. One
    /// cache miss for each.
    fn count_ahead(&self, mut node: &Node<P>, limit: u64) -> Option<u64> {
        (1..=limit).find(|_| {
            if let Some(before) = Id::decode(node.previous.load(Relaxed)) {
                node = self.node(before);
            }
            // A head that nobody has made the head has no predecessor. A waiter that has not named
            // its own yet looks the same.
            node.state.load(Relaxed) == GO || node.previous.load(Relaxed) == 0
        })
    }

    /// Makes the successor of the head the head, if there is one.
    fn hand_on(&self, waiter: &Waiter<P>) {
        let me = waiter.id();
        let mark = || waiter.leave_behind(|| self.table.mark_gone(me));
        if let Some(Some(next)) = self.take_out(me, mark) {
            self.make_head(next);
        }
    }

    /// Takes the head out of the queue. `Some`: its successor, if it has one. `None`: a newcomer is
    /// late to link itself, so `mark` has left the node behind, and the newcomer finds itself head.
    fn take_out(&self, head: Id, mark: impl Fn() -> bool) -> Option<Option<Id>> {
        let mut backoff = Backoff::NEW;
        loop {
            if let Some(next) = self.detach_next(head, None) {
                return Some(next);
            }
            if backoff.pause::<P>() {
                continue;
            }
            // From the mark on a newcomer may reap the node. Pinned, it is not used again before
            // this thread has seen whether the tail of this queue still names it.
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

    /// Makes this waiter the head, or the first behind it that has not left.
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

    /// Headship comes to this waiter, which is woken if it sleeps. `false`: it has left.
    fn grant(&self, id: Id) -> bool {
        let state = &self.node(id).state;
        let mut seen = WAITING;
        loop {
            // AcqRel pairs with the waiter's load of its state, and with its falling asleep.
            // Acquire on failure pairs with `abandon`: the reference counted before it must be
            // visible when the node is reaped.
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

    /// Leaves. `false`: headship has come first.
    fn unqueue(&self, waiter: &Waiter<P>) -> bool {
        let node = waiter.node();
        let mut backoff = Backoff::NEW;
        // Step A.
        let before = loop {
            // Never `None`: only a waiter behind another one comes here.
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
                    // It is the head, since the one before is gone.
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
        // Only headship comes in between. Acquire on failure pairs with the one that brings it.
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

    /// Takes the successor's id out of `me.next`, so that the successor cannot leave meanwhile.
    /// `Some(None)`: there is no successor, and the tail is `back` now. `None`: a newcomer is about
    /// to link itself, or a leaving successor is about to link its own.
    fn detach_next(&self, me: Id, back: Option<Id>) -> Option<Option<Id>> {
        if self.tail.load(Relaxed) == me.encode() && self.move_tail_back(me, back) {
            return Some(None);
        }
        // No load first: the successor has linked itself, and its line should come once.
        Link::decode(self.node(me).next.swap(0, AcqRel)).map(|next| Some(next.id()))
    }

    fn move_tail_back(&self, me: Id, back: Option<Id>) -> bool {
        let Some(before) = back else {
            return self.swing_tail(me, 0);
        };
        // A newcomer may reap the node from the exchange on.
        self.table.pin(before);
        let moved = self.swing_tail(me, before.encode());
        // A read-modify-write, so that it comes before the head's mark or sees it. In the first
        // case the head acquires the new tail from it.
        if moved && self.node(before).next.fetch_add(0, AcqRel) == GONE {
            self.reap_last(before);
        }
        self.table.unpin(before);
        moved
    }

    /// Reaps a node that is gone and empties the queue, if that node is its last.
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

/// How `next` names `id`.
fn link_to(id: Id) -> Link {
    Link::new(id, false, 0)
}

#[cfg(all(test, not(loom)))]
mod tests;
