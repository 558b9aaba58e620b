//! The order in which headship is passed on: first in, first out (MCS), or local waiters first
//! (CNA).
//!
//! Sources:
//!
//! * MCS: Mellor-Crummey and Scott, "Algorithms for scalable synchronization on shared-memory
//!   multiprocessors", TOCS 1991.
//! * CNA: Dice and Kogan, "Compact NUMA-aware locks", EuroSys 2019. Its Linux patches have had
//!   priority waiters since 2020, and the later ones (up to 2021) the time limit.
//!
//! `docs/guide/spin.md` introduces the queue, and has the reasons for its parameters.
//!
//! # Two queues
//!
//! ```text
//!   lock word: tail ------------------------------------------+
//!                                                             v
//!   primary:    head --next--> a0 --next--> b1 --next--> ... last --> 0
//!
//!   secondary:  +---> s0 --next--> s1 --next--> s2 ---+          circular; named by its tail, s2
//!               +-------------------------------------+
//! ```
//!
//! The **primary queue** is the MCS queue. The **secondary queue** holds waiters that were *set
//! aside*: they run in another locality domain than the one that the head prefers. The lock word
//! does not name this queue. The head knows the tail of the secondary queue, and passes it on in
//! the word that passes headship.
//!
//! Every waiter but the last of the primary queue has `next` set, and only the head accesses a
//! `next` that is set. So the head relinks the queue with plain stores. A newcomer writes only the
//! `next` of the last waiter.
//!
//! # Passing headship
//!
//! "Local" is relative to the domain that the head prefers.
//!
//! | primary behind the head | secondary | limit reached | action |
//! | --- | --- | --- | --- |
//! | empty | empty | - | set the tail to 0; the queue is gone |
//! | empty | s | - | open the circle; swing the tail to the last of s; pass to the first of s |
//! | local waiter behind k others | any | no | set these k aside; pass to the local waiter |
//! | no local waiter | empty | - | pass to the next (plain MCS) |
//! | no local waiter | s | - | splice s in front of the primary; pass to the first of s |
//! | any | s | yes | splice and pass, as in the row above |
//! | a late link | empty | - | mark the place as gone: the newcomer is head |
//! | a late link | s | - | put the place, abandoned, behind s; pass to the first of s |
//!
//! The second row swings the tail by a compare-and-swap. If that fails, a newcomer has queued: the
//! head closes the circle again. A link is late if the newcomer has still not linked itself after
//! some pauses: it may be preempted. The head does not wait for it, since the head may hold the
//! lock.
//!
//! A hand-off takes constant time, apart from the scan. A scan passes over each remote waiter
//! once per domain change, and mostly while the head waits for the lock.
//!
//! # Invariants
//!
//! 1. Every waiter is the head, or in exactly one queue.
//! 2. The last waiter of the primary queue is never set aside: its `next` belongs to a newcomer.
//! 3. Every waiter of the secondary queue queued before every waiter that stands behind a priority
//!    waiter in the primary queue: a scan stops at a priority waiter and never sets it aside. So a
//!    splice lets no later waiter overtake a priority waiter.
//! 4. `since` and `run` are meaningful exactly while the secondary queue is not empty.

mod limit;
mod rouse;
mod scan;

use super::waiter::{
    ABANDONED, Backoff, GO, Id, Link, NO_PREFERENCE, Node, PRIORITY, Waiter, Waiters, secondary_in,
};
use crate::events::Event;
use crate::platform::{Atomic, Ordering::*, Platform};
use crate::tuning::Tuning;
use limit::Limit;

pub(crate) use rouse::ROUSE_AHEAD;

/// How far the search for a waiter of the preferred domain has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Search {
    /// No search: order is first in, first out, and the secondary queue, if any, goes first.
    Off,
    /// No local waiter up to and including this node. More waiters may have queued behind it since.
    UpTo(Id),
    /// Headship is to pass to the next waiter.
    Found,
}

/// What the head of the queue knows. It lives on the head's stack; the head writes what the next
/// head has to know into the next head's node.
#[derive(Debug)]
pub(crate) struct Head<P: Platform> {
    table: &'static Waiters<P>,
    /// The place in the queue from which the head acts: its own node, or an abandoned node that it
    /// passed over.
    place: Id,
    tuning: Tuning,
    /// The domain whose waiters go first.
    preference: u16,
    /// The tail of the secondary queue.
    secondary: Option<Id>,
    /// When the secondary queue became non-empty, in units of [`limit::clock`].
    since: u32,
    /// Hand-offs since `since`, and the flag [`limit::ROUSED_BEFORE`].
    run: u32,
    limit: Limit,
    search: Search,
    /// The next waiter, if it was seen drowsy: it may be about to wake up.
    drowsy: Option<Id>,
    /// Whether the place was left behind in a queue, so that another thread reaps it.
    left_behind: bool,
}

/// Queues the prepared node that `link` names. Returns its predecessor; `None`: the node is the
/// head. Calls `behind` with the predecessor before it links the node behind that.
pub(crate) fn queue<P: Platform>(
    tail: &P::AtomicU16,
    link: Link,
    behind: impl FnOnce(&Node<P>),
) -> Option<&'static Node<P>> {
    let table = P::waiters();
    // Release publishes the prepared node, and Acquire makes the predecessor's visible; SeqCst: see
    // `QueuedSpinLock::become_pending`.
    let before = Id::decode(tail.swap(link.id().encode(), SeqCst))?;
    behind(table.node(before));
    (!table.link(before, link)).then(|| table.node(before))
}

impl<P: Platform> Head<P> {
    /// Takes headship over. `state` is the word that brought it, [`GO`] if the queue was empty.
    /// `domain` is the thread's locality domain.
    pub(crate) fn new(
        table: &'static Waiters<P>,
        me: Id,
        state: u32,
        tuning: Tuning,
        domain: u16,
    ) -> Self {
        let secondary = secondary_in(state);
        let node = table.node(me);
        let inherited = node.preference.load(Relaxed);
        let mut head = Head {
            table,
            place: me,
            tuning,
            preference: if inherited == NO_PREFERENCE {
                domain
            } else {
                inherited
            },
            secondary,
            since: 0,
            run: 0,
            limit: Limit::Far,
            search: Search::Off,
            drowsy: None,
            left_behind: false,
        };
        if secondary.is_some() {
            head.since = node.since.load(Relaxed);
            head.run = node.run.load(Relaxed);
        }
        head
    }

    /// Whether the secondary queue has waiters.
    pub(crate) fn has_set_aside(&self) -> bool {
        self.secondary.is_some()
    }

    /// Passes headship to a successor, or empties the queue. May leave the head's node behind. All
    /// waiters must have queued by [`queue`].
    ///
    /// `grant(node, state, check)` stores `state` in the node. If `check` is true, it must check
    /// the previous state. It returns whether the waiter was still there; the head passes over a
    /// waiter that has left, and goes on from that waiter's place.
    pub(crate) fn leave(
        &mut self,
        tail: &P::AtomicU16,
        owner: &Waiter<P>,
        mut grant: impl FnMut(&Node<P>, u32, bool) -> bool,
    ) {
        // The owner's own place, which the owner frees, so it is not reaped here. `None` once it
        // was left behind: another thread then reaps it, and an abandoned node may come up under
        // the same id.
        let mut own = Some(self.place);
        loop {
            let heir = self.choose_heir(tail, owner);
            let taken = heir.is_none_or(|heir| self.hand_over(heir, &mut grant));
            let left = self.place;
            if let Some(id) = heir.filter(|_| !taken).map(Link::id) {
                self.place = id;
                self.search = match self.search {
                    // The scan was relative to the place just left. Waiters that it set aside stay
                    // set aside.
                    Search::Off => Search::Off,
                    _ => Search::UpTo(id),
                };
            }
            if core::mem::take(&mut self.left_behind) {
                own = None;
            } else if own != Some(left) {
                P::count(Event::Reap);
                self.table.reap(left);
            }
            if taken {
                return;
            }
        }
    }

    fn hand_over(&self, link: Link, grant: &mut impl FnMut(&Node<P>, u32, bool) -> bool) -> bool {
        let heir = self.node(link.id());
        // Relaxed: the grant releases these stores.
        if self.secondary.is_some() {
            heir.since.store(self.since, Relaxed);
            heir.run.store(self.run.wrapping_add(1), Relaxed);
            // The next head's scan needs the preference, too: a priority waiter of another domain
            // would otherwise set waiters of the old domain aside, and waiters of its own domain
            // would overtake the waiters that were set aside earlier.
            heir.preference.store(self.preference, Relaxed);
        }
        let local = link.domain() == self.preference;
        // An unchecked grant would mistake a waiter that is waking up for a sleeper.
        let check = link.is_guarded() || self.drowsy == Some(link.id());
        let go = self.secondary.map_or(GO, |s| s.encode() as u32);
        let taken = grant(heir, go, check);
        if taken && self.tuning.reorder {
            P::count(if local {
                Event::HandoffLocal
            } else {
                Event::HandoffRemote
            });
        }
        taken
    }

    /// Decides which waiter is next, and removes the waiters before it from the primary queue.
    /// `None`: the queue is empty, or its only waiter will find that it is the head.
    fn choose_heir(&mut self, tail: &P::AtomicU16, owner: &Waiter<P>) -> Option<Link> {
        let next = match self.next(self.place) {
            Some(next) => next,
            None => {
                if let Some(emptied) = self.empty_primary(tail) {
                    return emptied;
                }
                match self.await_link(owner) {
                    Ok(next) => next,
                    Err(heir) => return heir,
                }
            }
        };
        // The post-scan: continue with waiters that have queued since the pre-scan.
        if let Search::UpTo(_) = self.search {
            self.scan();
        }
        match self.search {
            Search::Found => self.next(self.place),
            _ => Some(self.splice_in_front(next)),
        }
    }

    /// Handles an empty primary queue. `Some(Some(first))`: the secondary queue has become the
    /// primary one. `Some(None)`: the queue is empty. `None`: a newcomer has queued.
    fn empty_primary(&mut self, tail: &P::AtomicU16) -> Option<Option<Link>> {
        let me = self.place.encode();
        let Some(last) = self.secondary else {
            return tail
                .compare_exchange(me, 0, AcqRel, Relaxed)
                .is_ok()
                .then_some(None);
        };
        // Open the circle first: once `last` is the tail, its `next` belongs to newcomers.
        let first = self.next(last)?;
        self.node(last).next.store(0, Relaxed);
        // Release pairs with the newcomer's swap: it must find the circle open.
        if tail
            .compare_exchange(me, last.encode(), AcqRel, Relaxed)
            .is_ok()
        {
            P::count(Event::Splice);
            self.secondary = None;
            self.search = Search::Off;
            return Some(Some(first));
        }
        self.link(last, first);
        None
    }

    /// Waits for a newcomer that has swapped the tail and is about to link itself. `Err`: its link
    /// is late, and the place is left behind; the heir, if any, is the first of the secondary
    /// queue.
    fn await_link(&mut self, owner: &Waiter<P>) -> Result<Link, Option<Link>> {
        let mut backoff = Backoff::NEW;
        loop {
            if let Some(next) = self.next(self.place) {
                return Ok(next);
            }
            if backoff.pause::<P>() {
                continue;
            }
            let first = self.secondary.and_then(|last| self.next(last));
            let leave = || first.is_some() || self.table.mark_gone(self.place);
            // An abandoned node that the head passed over was left behind by its owner.
            let is_own = owner.id() == self.place && !owner.is_left_behind();
            if is_own && owner.leave_behind(leave) || !is_own && leave() {
                self.left_behind = true;
                if first.is_some() {
                    // Relaxed: the grant to the first of the secondary queue releases it.
                    self.node(self.place).state.store(ABANDONED, Relaxed);
                    self.open_secondary(Link::new(self.place, true, self.preference));
                }
                return Err(first);
            }
        }
    }

    /// Puts the secondary queue, if any, between the head and `next`. Returns the waiter that is
    /// then behind the head.
    fn splice_in_front(&mut self, next: Link) -> Link {
        let Some(first) = self.secondary.and_then(|last| self.next(last)) else {
            return next;
        };
        self.open_secondary(next);
        self.link(self.place, first);
        first
    }

    /// Opens the secondary queue before `next`.
    fn open_secondary(&mut self, next: Link) {
        if let Some(last) = self.secondary.take() {
            P::count(Event::Splice);
            self.link(last, next);
        }
        self.search = Search::Off;
    }

    /// Whether the waiter is of the preferred domain, or a priority waiter, which counts as local.
    fn is_local(&self, link: Link) -> bool {
        let domain = link.domain();
        domain == self.preference || domain == PRIORITY
    }

    fn node(&self, id: Id) -> &'static Node<P> {
        self.table.node(id)
    }

    /// Acquire pairs with the release by which the next waiter linked itself: its node is
    /// initialised.
    fn next(&self, id: Id) -> Option<Link> {
        Link::decode(self.node(id).next.load(Acquire))
    }

    /// Like [`next`](Self::next), for a walk that nearly always goes on or ends where the last walk
    /// did.
    fn next_of_walk(&self, id: Id) -> Option<Link> {
        Link::decode(self.node(id).next.load_ahead(Acquire))
    }

    /// Relaxed: only heads read these links, and passing headship releases them to the next head.
    fn link(&self, id: Id, next: Link) {
        self.node(id).next.store(next.encode(), Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
