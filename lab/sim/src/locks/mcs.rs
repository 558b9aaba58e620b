//! Mellor-Crummey and Scott's queue lock (TOCS 1991): each waiter spins on a cache line of its own.

use super::Lock;
use crate::platform::{Sim, SimU32};
use kinlock_core::platform::{Atomic, Ordering::*, Platform};

pub(super) struct Mcs {
    /// The last waiter's number + 1; 0 = free.
    tail: SimU32,
    nodes: &'static [Node],
}

#[repr(align(128))]
struct Node {
    next: SimU32,
    go: SimU32,
}

pub(super) fn place(threads: usize) -> &'static dyn Lock {
    crate::place(Mcs::new(threads))
}

impl Mcs {
    pub(super) fn new(threads: usize) -> Self {
        let node = |_| Node {
            next: SimU32::new(0),
            go: SimU32::new(0),
        };
        Mcs {
            tail: SimU32::new(0),
            nodes: crate::place_slice(threads, node),
        }
    }
}

impl Lock for Mcs {
    fn lock(&self, me: usize) {
        let node = &self.nodes[me];
        node.next.store(0, Relaxed);
        node.go.store(0, Relaxed);
        let before = self.tail.swap(me as u32 + 1, AcqRel);
        if before != 0 {
            let before = &self.nodes[before as usize - 1];
            before.next.store(me as u32 + 1, Release);
            Sim::wait(&node.go, Acquire, |go| go != 0);
        }
    }

    fn unlock(&self, me: usize) {
        let node = &self.nodes[me];
        let mut next = node.next.load(Acquire);
        if next == 0 {
            let free = self
                .tail
                .compare_exchange(me as u32 + 1, 0, Release, Relaxed);
            if free.is_ok() {
                return;
            }
            next = Sim::wait(&node.next, Acquire, |next| next != 0);
        }
        self.nodes[next as usize - 1].go.store(1, Release);
    }
}
