//! Hand-offs in queues that tests build by hand.

mod leaving;
mod limits;
mod linger;
mod order;

use super::*;
use crate::Native;
use crate::raw::waiter::{ABANDONED, PARKED, Slot, WAITING};
use crate::tuning::LocalLimit;
use core::mem::ManuallyDrop;

const FULL: Tuning = Tuning {
    reorder: true,
    limit: LocalLimit::Count { log2: 16 },
    ..Tuning::DEFAULT
};
const FIFO: Tuning = Tuning {
    reorder: false,
    ..FULL
};
const ALWAYS_FLUSH: Tuning = Tuning {
    limit: LocalLimit::Count { log2: 0 },
    ..FULL
};

/// Every other waiter is guarded, and stays guarded wherever it is moved.
fn is_guarded(waiter: usize) -> bool {
    waiter % 2 == 1
}

/// A queue of waiters, each in a given domain; the first is the head.
struct Bench<P: Platform> {
    table: &'static Waiters<P>,
    ids: Vec<Id>,
    tail: P::AtomicU16,
}

type Queue = Bench<Native>;

impl<P: Platform> Bench<P> {
    fn new(domains: &[u16]) -> Self {
        let slots = (0..64).map(|_| Slot::new()).collect::<Vec<_>>().leak();
        let claimed = vec![P::AtomicU32::new(0), P::AtomicU32::new(0)].leak();
        let in_use = Box::leak(Box::new(P::AtomicU32::new(0)));
        let mut queue = Bench {
            table: Box::leak(Box::new(Waiters::new(slots, claimed, in_use))),
            ids: Vec::new(),
            tail: P::AtomicU16::new(0),
        };
        for &domain in domains {
            queue.arrive(domain);
        }
        queue
    }

    /// A newcomer queues.
    fn arrive(&mut self, domain: u16) -> usize {
        if let Some((previous, link)) = self.swap_tail(domain) {
            assert!(!self.table.link(previous, link));
        }
        self.ids.len() - 1
    }

    /// Swaps the tail for a newcomer. Returns its predecessor and the link that it still has to
    /// store there; `None`: it is the head.
    fn swap_tail(&mut self, domain: u16) -> Option<(Id, Link)> {
        // Each waiter has a node of another slot, with an odd number, so that ids differ from
        // positions.
        let id = Id::decode(((self.ids.len() as u16 + 1) * 2 + 1) << 2).unwrap();
        self.table.node(id).prepare(domain, false);
        let previous = self.tail.swap(id.encode(), SeqCst);
        let link = Link::new(id, is_guarded(self.ids.len()), domain);
        self.ids.push(id);
        Id::decode(previous).map(|previous| (previous, link))
    }

    fn head(&self, waiter: usize, state: u32, domain: u16, tuning: Tuning) -> Head<P> {
        Head::new(self.table, self.ids[waiter], state, tuning, domain)
    }

    fn position(&self, node: &Node<P>) -> usize {
        let is_it = |&id: &Id| core::ptr::eq(self.table.node(id), node);
        self.ids.iter().position(is_it).unwrap()
    }

    /// Passes headship as a lock would. Returns the waiter that got it, if any, and the state that
    /// was granted.
    fn pass(&self, mut head: Head<P>) -> Option<(usize, u32)> {
        let mut granted = None;
        // Dropping the waiter would free the node.
        let place = ManuallyDrop::new(Waiter::new(self.table, head.place, false));
        head.leave(&self.tail, &place, |node, go, look| {
            let abandoned = node.state.load(Relaxed) == ABANDONED;
            assert!(
                look == is_guarded(self.position(node)) || abandoned,
                "a link lost or gained its guard"
            );
            let there = node.state.swap(go, AcqRel) != ABANDONED;
            if there {
                assert!(granted.is_none(), "headship was passed twice");
                granted = Some((self.position(node), go));
            }
            there
        });
        granted
    }

    fn index(&self, id: Id) -> usize {
        self.ids.iter().position(|&i| i == id).unwrap()
    }

    /// The primary queue, starting at `waiter`.
    fn primary_from(&self, waiter: usize) -> Vec<usize> {
        let mut found = vec![waiter];
        let mut id = self.ids[waiter];
        while let Some(next) = Link::decode(self.table.node(id).next.load(Acquire)) {
            let next = next.id();
            found.push(self.index(next));
            assert!(
                found.len() <= self.ids.len(),
                "the primary queue is a circle: {found:?}"
            );
            id = next;
        }
        found
    }

    /// The secondary queue that this state names, from its first waiter.
    fn secondary_of(&self, state: u32) -> Vec<usize> {
        let Some(last) = secondary_in(state) else {
            return vec![];
        };
        let mut found = Vec::new();
        let mut id = last;
        loop {
            id = Link::decode(self.table.node(id).next.load(Acquire))
                .expect("the secondary queue is open")
                .id();
            found.push(self.index(id));
            if id == last {
                return found;
            }
            assert!(
                found.len() <= self.ids.len(),
                "the secondary queue does not close: {found:?}"
            );
        }
    }

    /// The steps of `waiter` as the head: a pre-scan, then passing headship.
    fn turn(&self, waiter: usize, state: u32, domain: u16, tuning: Tuning) -> Option<(usize, u32)> {
        let mut head = self.head(waiter, state, domain, tuning);
        head.pre_scan();
        self.pass(head)
    }
}
