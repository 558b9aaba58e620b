//! The cancellable spinner queue (OSQ): an MCS queue that a spinner can leave at any time, from any
//! place.
//!
//! Source: the queue of optimistic spinners of the Linux kernel's mutex (Zijlstra and others,
//! 2014), an MCS queue with unqueueing, and the cure of its false sharing (2023). Here nodes are
//! named by number, and belong to threads, which can be preempted.
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
//! Every spinner but the head waits on the `state` of its own node. A head that leaves makes the
//! next spinner head: `state` := [`GO`].
//!
//! # Leaving
//!
//! `m` leaves, `p` is its predecessor, `n` its successor.
//!
//! | step | what |
//! | --- | --- |
//! | A | unlink `m` from `p`: compare-and-swap `p.next` from `m` to 0 |
//! | B | find `n` and keep it from leaving: swap `m.next` with 0; without `n`, tail := `p` |
//! | C | link `n` to `p`: `n.previous` := `p`, then `p.next` := `n` |
//!
//! | step | races with | and then |
//! | --- | --- | --- |
//! | A | `p` hands headship to `m`, and takes `p.next` too | `m` is head: it stays |
//! | A | `p` leaves as well | `m.previous` becomes `p`'s predecessor: try again there |
//! | B | a newcomer has swapped the tail, and links itself next | wait for the link |
//! | B | `n` leaves: its step A competes with this swap | wait for its step C, or for the tail |
//! | C | nobody: `p` and `n` cannot pass their steps B and A | |
//!
//! A thread that takes a `next` away, by swap or compare-and-swap, owns the link. So one thread at
//! a time changes a link.
//!
//! # What a spinner watches of its predecessor
//!
//! A spinner behind a preempted one waits in vain. A kernel asks whether the predecessor's CPU is
//! preempted. Here a spinner asks whether it runs on the predecessor's CPU itself: then the
//! predecessor cannot run. The predecessor's CPU number never changes but is read again and again.
//! The place it is read from decides about false sharing, see [`PredecessorCpu`].
//!
//! # Progress
//!
//! Step B waits for a few instructions of another thread, and so does handing headship on. A kernel
//! disables preemption meanwhile. Here the other thread may be preempted just there, and the thread
//! that leaves waits for that long. An oversubscribed mutex therefore tries the lock for a moment
//! before it queues.

use super::waiter::{GO, Id, Link, Node, PARKED, WAITING, Waiter, Waiters};
use crate::events::Event;
use crate::platform::{Atomic, ConstAtomic, ConstPlatform, NEVER, NO_CPU, Ordering::*, Platform};

/// How long a spinner waits by default before it looks at its predecessor's CPU, in nanoseconds.
pub const LOOK_AROUND: u64 = 1_000;

/// How a spinner watches its predecessor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Watch {
    /// Where it reads the predecessor's CPU number.
    pub layout: PredecessorCpu,
    /// How long it waits between two looks, in nanoseconds.
    pub every: u64,
}

/// Where a spinner reads its predecessor's CPU number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PredecessorCpu {
    /// In the predecessor's node. That line changes whenever a thread queues behind it, and when it
    /// hands headship on or leaves.
    SharedLine,
    /// In a separate line of the predecessor: read remotely, but seldom written.
    OwnLine,
    /// In the spinner's own node, copied when the two were linked.
    Cached,
}

/// The queue. All zeros: empty. Two bytes; nodes are the threads' [waiter slots](super::waiter).
#[repr(transparent)]
#[derive(Debug)]
pub struct Osq<P: Platform> {
    tail: P::AtomicU16,
}

impl<P: ConstPlatform> Osq<P> {
    /// An empty queue, in a constant.
    pub const EMPTY: Self = Osq {
        tail: P::AtomicU16::ZERO,
    };
}

impl<P: Platform> Default for Osq<P> {
    fn default() -> Self {
        Self::new()
    }
}

impl<P: Platform> Osq<P> {
    /// An empty queue.
    pub fn new() -> Self {
        Osq {
            tail: Atomic::new(0),
        }
    }

    pub(crate) fn tail(&self) -> &P::AtomicU16 {
        &self.tail
    }

    /// The id of the last spinner, 0 = none.
    pub fn last(&self) -> u16 {
        self.tail.load(Relaxed)
    }

    /// Queues, and waits until the thread is the head of the queue (`true`), or until `until`
    /// (`false`: it has left the queue).
    ///
    /// Spins for at most `patience` nanoseconds, then sleeps in its place. It sleeps at once if its
    /// predecessor cannot run. One remote cache miss to queue and one to become head. A head must
    /// call [`leave`](Self::leave) with the same place.
    pub fn join(&self, place: &Waiter<P>, watch: Watch, patience: u64, until: u64) -> bool {
        let queue = self.links(watch.layout);
        let (me, node) = (place.id(), place.node());
        if queue.append(me) {
            return true;
        }
        P::count(Event::Queued);
        if queue.spin(me, watch.every, patience, until) {
            return true;
        }
        // From here on the state is GO or PARKED.
        if P::CAN_PARK
            && node
                .state
                .compare_exchange(WAITING, PARKED, AcqRel, Acquire)
                .is_ok()
        {
            P::count(Event::Park);
            let key = (&raw const node.state).cast();
            while node.state.load(Acquire) == PARKED && P::now() < until {
                P::park(key, PARKED, until, || node.state.load(Relaxed));
            }
        }
        node.state.load(Acquire) == GO || !queue.unqueue(me)
    }

    /// Hands headship on to the next spinner, if any.
    pub fn leave(&self, place: &Waiter<P>) {
        self.links(PredecessorCpu::Cached).hand_on(place.id());
    }

    fn links(&self, layout: PredecessorCpu) -> Links<'_, P> {
        Links {
            tail: &self.tail,
            table: P::waiters(),
            layout,
        }
    }
}

/// The links of the queue, borrowed for one operation.
struct Links<'a, P: Platform> {
    tail: &'a P::AtomicU16,
    table: &'static Waiters<P>,
    layout: PredecessorCpu,
}

impl<P: Platform> Links<'_, P> {
    fn node(&self, id: Id) -> &'static Node<P> {
        self.table.node(id)
    }

    /// Queues. `true`: the queue was empty, and `me` is its head.
    fn append(&self, me: Id) -> bool {
        self.node(me).prepare(0, false);
        self.publish_cpu(me);
        // Release publishes the prepared node, Acquire sees the predecessor's.
        let Some(before) = Id::decode(self.tail.swap(me.encode(), AcqRel)) else {
            return true;
        };
        self.set_previous(me, before);
        self.link(before, me);
        false
    }

    /// Makes the successor of the head `me` the head, if there is one.
    fn hand_on(&self, me: Id) {
        if let Some(next) = self.detach_next(me, None) {
            let state = &self.node(next).state;
            // AcqRel pairs with the successor's load of its state, and with its falling asleep.
            if state.swap(GO, AcqRel) == PARKED {
                P::unpark((&raw const *state).cast(), 1);
            }
        }
    }

    /// Spins until headship comes (`true`), or until it is time to sleep or leave.
    fn spin(&self, me: Id, every: u64, patience: u64, until: u64) -> bool {
        let state = &self.node(me).state;
        if patience == NEVER && until == NEVER {
            P::wait(state, Acquire, |s| s != WAITING);
            return true;
        }
        let start = P::now();
        let until = until.min(start.saturating_add(patience));
        loop {
            if P::wait_for(state, Acquire, every, |s| s != WAITING).is_ok() {
                return true;
            }
            if self.predecessor_is_off(me) || P::now() >= until {
                return false;
            }
        }
    }

    /// Leaves. `false`: headship has come first.
    fn unqueue(&self, me: Id) -> bool {
        P::count(Event::Unqueue);
        let node = self.node(me);
        // Step A.
        let before = loop {
            let Some(before) = Id::decode(node.previous.load(Acquire)) else {
                return false;
            };
            let next = &self.node(before).next;
            if next
                .compare_exchange(link_to(me), 0, AcqRel, Relaxed)
                .is_ok()
            {
                break before;
            }
            if node.state.load(Acquire) == GO {
                return false;
            }
            P::relax();
        };
        // Step B.
        let Some(after) = self.detach_next(me, Some(before)) else {
            return true;
        };
        // Step C. The order matters: once `before.next` is set, `before` may leave and change
        // `after.previous` itself.
        self.set_previous(after, before);
        self.link(before, after);
        true
    }

    /// A swap, although its result is not used: all changes of a link then form one chain of
    /// read-modify-writes. A thread that loops on a link is sure to see the change, also in the
    /// model checker's memory. Release: see `set_previous`.
    fn link(&self, before: Id, after: Id) {
        self.node(before).next.swap(link_to(after), AcqRel);
    }

    /// Takes the successor's id out of `me.next`, so that the successor cannot leave meanwhile.
    /// `None`: there is no successor, and the tail is `back` now.
    fn detach_next(&self, me: Id, back: Option<Id>) -> Option<Id> {
        let node = self.node(me);
        loop {
            if self.tail.load(Relaxed) == me.encode()
                && self
                    .tail
                    .compare_exchange(me.encode(), back.map_or(0, Id::encode), AcqRel, Relaxed)
                    .is_ok()
            {
                return None;
            }
            // No load first: the successor has linked itself, and its line should come once. If
            // `next` is 0, a newcomer is about to link itself, or a leaving successor is about to
            // link its own.
            if let Some(next) = Link::decode(node.next.swap(0, AcqRel)) {
                return Some(next.id());
            }
            P::relax();
        }
    }

    /// Release pairs with the Acquire in step A: the predecessor's node is prepared.
    fn set_previous(&self, id: Id, before: Id) {
        if self.layout == PredecessorCpu::Cached {
            let cpu = self.node(before).cpu.load(Relaxed);
            self.node(id).predecessor_cpu.store(cpu, Relaxed);
        }
        self.node(id).previous.store(before.encode(), Release);
    }

    fn publish_cpu(&self, me: Id) {
        let cpu = P::cpu();
        match self.layout {
            PredecessorCpu::OwnLine => self.table.set_slot_cpu(me, cpu),
            _ => self.node(me).cpu.store(cpu, Relaxed),
        }
    }

    /// Whether the predecessor cannot run, because this thread runs on its CPU. Relaxed: a hint.
    fn predecessor_is_off(&self, me: Id) -> bool {
        let node = self.node(me);
        let before = || Id::decode(node.previous.load(Relaxed));
        let its = match self.layout {
            PredecessorCpu::Cached => node.predecessor_cpu.load(Relaxed),
            PredecessorCpu::SharedLine => {
                before().map_or(NO_CPU, |b| self.node(b).cpu.load(Relaxed))
            }
            PredecessorCpu::OwnLine => before().map_or(NO_CPU, |b| self.table.slot_cpu(b)),
        };
        its != NO_CPU && its == P::cpu()
    }
}

/// How `next` names `id`.
fn link_to(id: Id) -> u32 {
    Link::new(id, false, 0).encode()
}

#[cfg(all(test, not(loom)))]
mod tests;
