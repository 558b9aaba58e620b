//! The steps in which CNA differs.
//!
//! The waiters that are set aside form a circle: the last one's `next` is the first. The head's
//! flag names the last one, so the lock needs no memory for them.

use super::{GO, LOCKED, LOCKED_BYTE, Native, Node, PENDING_BYTE, TAIL, is_chosen, name};
use crate::platform::Sim;
use crate::world::with;
use kinlock_core::platform::{Atomic, Ordering::*, Platform};

/// How a version reorders its queue.
#[derive(Clone, Copy, Debug)]
pub(in crate::locks) struct Order {
    search: Search,
    pub(super) limit: Limit,
    /// Whether reordering only begins by chance, once in [`SELDOM`] hand-offs.
    seldom: bool,
    /// Whether some threads are never set aside.
    priority: bool,
}

/// How a head looks for a waiter of its node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Search {
    /// It looks at all waiters when it becomes head, and at later ones at the hand-off.
    Full,
    /// It looks at all waiters, at the hand-off only.
    AtHandOff,
    /// It looks only when it becomes head; see [`LOOKS_WHEN_FREE`].
    Limited,
    /// It looks at one waiter. If that is of another node it is set aside, and the waiter behind it
    /// is treated as one of this node.
    One,
}

/// The local limit: how long waiters that are set aside may have to wait.
#[derive(Clone, Copy, Debug)]
pub(super) enum Limit {
    /// Hand-offs within the NUMA node.
    Count(u32),
    /// Microseconds since the first was set aside.
    Time(u32),
}

impl Order {
    /// Version 10 of April 2020.
    pub(in crate::locks) const V10: Order = Order {
        search: Search::Full,
        limit: Limit::Count(1 << 16),
        seldom: false,
        priority: false,
    };
    /// Version 10, and some of the waiters have priority.
    pub(in crate::locks) const V10_PRIORITY: Order = Order {
        priority: true,
        ..Order::V10
    };
    /// Version 10 with the limited scan that was proposed in its discussion.
    pub(in crate::locks) const V10_LIMITED: Order = Order {
        search: Search::Limited,
        ..Order::V10
    };
    /// The paper of 2019, and the first versions. In these a node's turn ended by chance, on
    /// average after as many hand-offs as the limit here.
    pub(in crate::locks) const PAPER: Order = Order {
        search: Search::AtHandOff,
        ..Order::V10
    };
    /// Version 11 of September 2020.
    pub(in crate::locks) const V11: Order = Order {
        search: Search::One,
        limit: Limit::Time(10_000),
        ..Order::V10
    };
    /// Version 13 of December 2020.
    pub(in crate::locks) const V13: Order = Order {
        seldom: true,
        ..Order::V11
    };
}

/// If reordering begins by chance, it does once in this many hand-offs.
const SELDOM: u64 = 128;

/// How many waiters a limited scan looks at once the lock is free, for each NUMA node of the
/// machine.
const LOOKS_WHEN_FREE: usize = 4;

/// The result of the scan when a waiter becomes head.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Scan {
    /// There was no scan.
    None,
    /// A waiter of the head's NUMA node comes next.
    Kin,
    /// The limit of hand-offs is reached.
    Limit,
    /// No waiter of the node up to this one.
    NobodyUpTo(u32),
}

impl<const NUMA: bool> Native<NUMA> {
    /// The scan when a waiter becomes head, while the lock is held.
    pub(super) fn scan_early(&self, me: usize) -> Scan {
        if self.is_late(&self.nodes[me]) {
            return Scan::Limit;
        }
        if self.order.seldom
            && self.nodes[me].flag.load(Relaxed) <= GO
            && with(|w| w.random()) % SELDOM != 0
        {
            return Scan::None;
        }
        match self.order.search {
            Search::Full => self.scan(me, name(me)),
            Search::AtHandOff => Scan::NobodyUpTo(name(me)),
            Search::Limited => self.scan_until_free(me),
            Search::One => self.look_at_one(me),
        }
    }

    fn is_late(&self, node: &Node) -> bool {
        match self.order.limit {
            Limit::Count(limit) => node.run.load(Relaxed) >= limit,
            Limit::Time(limit) => {
                let waited = || microseconds().wrapping_sub(node.run.load(Relaxed));
                node.flag.load(Relaxed) > GO && waited() >= limit
            }
        }
    }

    /// Looks at the next waiter. Sets it aside if it is of another node and has a successor.
    fn look_at_one(&self, me: usize) -> Scan {
        let node = &self.nodes[me];
        let (domain, next) = (node.domain.load(Relaxed), node.next.load_ahead(Acquire));
        if next == 0 {
            return Scan::NobodyUpTo(name(me));
        }
        self.counts.stepped();
        if self.node(next).domain.load_ahead(Relaxed) == domain {
            return Scan::Kin;
        }
        let heir = self.node(next).next.load_ahead(Acquire);
        if heir == 0 {
            return Scan::NobodyUpTo(name(me));
        }
        if node.flag.load(Relaxed) <= GO {
            node.run.store(microseconds(), Relaxed);
        }
        self.set_aside(node, next, heir);
        Scan::Kin
    }

    /// Looks for a waiter of the NUMA node behind `from`. If there is one, sets aside all waiters
    /// before it. The processor predicts how the walk ends, and so waits for none of its loads.
    fn scan(&self, me: usize, from: u32) -> Scan {
        let domain = self.nodes[me].domain.load(Relaxed);
        let mut last = from;
        loop {
            let candidate = self.node(last).next.load_ahead(Acquire);
            if candidate == 0 {
                return Scan::NobodyUpTo(last);
            }
            if self.ends_at(me, domain, last, candidate) {
                return Scan::Kin;
            }
            last = candidate;
        }
    }

    /// The limited scan, which looks at the lock before each step. While the lock is held the scan
    /// does not end: behind the last waiter it waits for a newcomer. Once the lock is free, it
    /// looks at [`LOOKS_WHEN_FREE`] waiters for each NUMA node.
    fn scan_until_free(&self, me: usize) -> Scan {
        let domain = self.nodes[me].domain.load(Relaxed);
        let mut looks = LOOKS_WHEN_FREE * with(|w| w.setup.machine.shape.sockets);
        let is_held = |word: u32| word & (LOCKED_BYTE | PENDING_BYTE) != 0;
        let mut held = true;
        let mut last = name(me);
        while looks > 0 {
            if held {
                let mut word = self.word.load_ahead(Relaxed);
                if is_held(word) && word & TAIL == last {
                    let before = word;
                    word = Sim::wait(&self.word, Relaxed, |now| now != before);
                }
                held = is_held(word);
            }
            let candidate = self.node(last).next.load_ahead(Acquire);
            if !held {
                looks -= 1;
            }
            match candidate {
                0 if held => {
                    // A newcomer is about to link itself.
                    Sim::relax();
                    continue;
                }
                0 => break,
                _ if self.ends_at(me, domain, last, candidate) => return Scan::Kin,
                _ => last = candidate,
            }
        }
        Scan::NobodyUpTo(last)
    }

    /// Whether the candidate, behind `last`, is of that NUMA node. If so, sets aside all waiters
    /// before it.
    fn ends_at(&self, me: usize, domain: u32, last: u32, candidate: u32) -> bool {
        self.counts.stepped();
        let has_priority = self.order.priority && is_chosen((candidate >> 16) as usize - 1);
        let is_kin = has_priority || self.node(candidate).domain.load_ahead(Relaxed) == domain;
        if is_kin && last != name(me) {
            self.set_aside(&self.nodes[me], last, candidate);
        }
        is_kin
    }

    /// Moves the waiters behind `head` up to `last` to the end of the secondary queue.
    fn set_aside(&self, head: &Node, last: u32, kin: u32) {
        let first = head.next.load(Relaxed);
        head.next.store(kin, Relaxed);
        let aside = head.flag.load(Relaxed);
        let start = if aside > GO {
            let end = &self.node(aside).next;
            let start = end.load(Relaxed);
            end.store(first, Relaxed);
            start
        } else {
            first
        };
        self.node(last).next.store(start, Relaxed);
        head.flag.store(last, Relaxed);
    }

    /// Called when the queue has only the head `me`: takes the lock, makes the waiters set aside
    /// the queue, and passes headship to the first of them. Returns false if a thread has joined
    /// the queue since `seen`.
    pub(super) fn promote_those_set_aside(&self, me: usize, seen: u32) -> bool {
        let last = self.nodes[me].flag.load(Relaxed);
        let end = &self.node(last).next;
        let first = end.load(Relaxed);
        // Newcomers may queue behind the last one as soon as the tail names it.
        end.store(0, Relaxed);
        let done = self
            .word
            .compare_exchange(seen, last | LOCKED, Release, Relaxed);
        if done.is_err() {
            end.store(first, Relaxed);
            return false;
        }
        self.node(first).flag.store(GO, Release);
        true
    }

    /// Passes headship on. `next` was behind the head when it took the lock.
    pub(super) fn pass_to_kin(&self, me: usize, next: u32, scan: Scan) {
        let node = &self.nodes[me];
        let scan = match (scan, self.order.search) {
            (Scan::NobodyUpTo(last), Search::Full | Search::AtHandOff) => self.scan(me, last),
            (Scan::NobodyUpTo(_), Search::One) => self.look_at_one(me),
            (found, _) => found,
        };
        let aside = node.flag.load(Relaxed);
        // With one look at a time, the node is preferred even if it has no waiter left.
        let stays = self.order.search == Search::One && scan != Scan::Limit;
        if aside > GO && (scan == Scan::Kin || stays) {
            let kin = self.node(node.next.load(Relaxed));
            // A thread queues with a run of 0: a run keeps nobody waiting while nobody is set
            // aside.
            let run = node.run.load(Relaxed);
            match self.order.limit {
                Limit::Count(_) => kin.run.store(run + 1, Relaxed),
                Limit::Time(_) => kin.run.store(run, Relaxed),
            }
            if stays {
                kin.domain.store(node.domain.load(Relaxed), Relaxed);
            }
            kin.flag.store(aside, Release);
        } else if aside > GO {
            let end = &self.node(aside).next;
            let first = end.load(Relaxed);
            end.store(next, Relaxed);
            self.node(first).flag.store(GO, Release);
        } else {
            let heir = if scan == Scan::Kin {
                node.next.load(Relaxed)
            } else {
                next
            };
            self.node(heir).flag.store(GO, Release);
        }
    }
}

/// The lower 32 bits of the time in microseconds.
fn microseconds() -> u32 {
    (Sim::now() / 1000) as u32
}
