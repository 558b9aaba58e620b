//! Hand-offs on queues built by hand.

mod leaving;
mod limits;
mod linger;
mod order;

use super::*;
use crate::Native;
use crate::raw::waiter::{ABANDONED, PARKED, Slot, WAITING};
use crate::tuning::LocalLimit;
use core::mem::ManuallyDrop;
use core::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64};

/// A platform with the atomics of hardware.
// The formatter would make one line of the bound, wider than the limit.
#[rustfmt::skip]
trait Hardware:
    Platform<
        AtomicU8 = AtomicU8,
        AtomicU16 = AtomicU16,
        AtomicU32 = AtomicU32,
        AtomicU64 = AtomicU64,
    >
{
}

impl<P> Hardware for P where
    P: Platform<
            AtomicU8 = AtomicU8,
            AtomicU16 = AtomicU16,
            AtomicU32 = AtomicU32,
            AtomicU64 = AtomicU64,
        >
{
}

type Sound = Native;

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

/// Every other waiter is guarded, and stays so however it is moved.
fn is_guarded(waiter: usize) -> bool {
    waiter % 2 == 1
}

/// A queue of waiters, each in the domain given; the first is the head.
struct Queue {
    table: &'static Waiters<Native>,
    ids: Vec<Id>,
    tail: AtomicU16,
}

impl Queue {
    fn new(domains: &[u16]) -> Self {
        let slots = (0..64).map(|_| Slot::new()).collect::<Vec<_>>().leak();
        let claimed = vec![AtomicU32::new(0), AtomicU32::new(0)].leak();
        let table: &'static Waiters<Native> = Box::leak(Box::new(Waiters::new(
            slots,
            claimed,
            Box::leak(Box::new(AtomicU32::new(0))),
        )));
        let mut queue = Queue {
            table,
            ids: Vec::new(),
            tail: AtomicU16::new(0),
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

    /// A newcomer has named itself in the tail. It is to link itself so behind that node.
    fn swap_tail(&mut self, domain: u16) -> Option<(Id, Link)> {
        // One node of a slot each: an odd slot number, so that ids are not in step with positions.
        let id = Id::decode(((self.ids.len() as u16 + 1) * 2 + 1) << 2).unwrap();
        self.table.node(id).prepare(domain, false);
        let previous = self.tail.swap(id.encode(), SeqCst);
        let link = Link::new(id, is_guarded(self.ids.len()), domain);
        self.ids.push(id);
        Id::decode(previous).map(|previous| (previous, link))
    }

    fn head<P: Hardware>(&self, waiter: usize, state: u32, domain: u16, tuning: Tuning) -> Head<P> {
        Head::new(
            self.table.of_platform(),
            self.ids[waiter],
            state,
            tuning,
            domain,
        )
    }

    fn position<P: Hardware>(&self, node: &Node<P>) -> usize {
        let address = core::ptr::from_ref(node).addr();
        self.ids
            .iter()
            .position(|&id| core::ptr::from_ref(self.table.node(id)).addr() == address)
            .unwrap()
    }

    /// Passes headship as a lock would, and returns the waiter that got it (or none) and
    /// with which state.
    fn pass<P: Hardware>(&self, mut head: Head<P>) -> Option<(usize, u32)> {
        let mut granted = None;
        // Dropping it would free the node.
        let place = ManuallyDrop::new(Waiter::new(self.table.of_platform(), head.place, false));
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

    /// The primary queue from `waiter` on.
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

    /// The secondary queue that this state names, from its head on.
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

    /// The steps of `waiter` at the head: pre-scan, then pass.
    fn turn<P: Hardware>(
        &self,
        waiter: usize,
        state: u32,
        domain: u16,
        tuning: Tuning,
    ) -> Option<(usize, u32)> {
        let mut head = self.head::<P>(waiter, state, domain, tuning);
        head.pre_scan();
        self.pass(head)
    }
}
