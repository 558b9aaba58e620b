//! The steps in which version 10 of CNA differs.
//!
//! Those set aside form a circle: the last one's `next` is the first. The head's flag names the
//! last one, so the lock has no memory of its own for them.

use super::{GO, LOCKED, LOCKED_BYTE, Native, Node, name};
use kinlock_core::platform::{Atomic, Ordering::*};

/// Hand-offs within a NUMA node after which those set aside get their turn.
const LIMIT: u32 = 1 << 16;

/// How many waiters a limited scan looks at when the lock is free, or was when the head took it.
const MOST_WHEN_FREE: u32 = 8;

/// What the scan at becoming head has found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Scan {
    /// Nothing was looked for.
    None,
    /// A waiter of the head's NUMA node comes next.
    Kin,
    /// The limit of hand-offs is reached.
    Limit,
    /// Nobody up to this one.
    NobodyUpTo(u32),
}

impl<const NUMA: bool> Native<NUMA> {
    /// At becoming head, while the lock is held.
    pub(super) fn scan_early(&self, me: usize) -> Scan {
        if self.nodes[me].run.load(Relaxed) == LIMIT {
            return Scan::Limit;
        }
        self.scan(me, name(me), u32::MAX)
    }

    /// Looks for a waiter of the NUMA node behind `from`. Sets aside all before it, if it is found.
    /// The processor predicts how the walk ends, and so waits for none of its loads. A limited scan
    /// looks at `most` waiters, and at no more than [`MOST_WHEN_FREE`] once the lock is free.
    fn scan(&self, me: usize, from: u32, mut most: u32) -> Scan {
        let node = &self.nodes[me];
        let domain = node.domain.load(Relaxed);
        let mut last = from;
        loop {
            if self.limited {
                if most > MOST_WHEN_FREE && self.word.load_ahead(Relaxed) & LOCKED_BYTE == 0 {
                    most = MOST_WHEN_FREE;
                }
                if most == 0 {
                    return Scan::NobodyUpTo(last);
                }
                most -= 1;
            }
            let candidate = self.node(last).next.load_ahead(Acquire);
            if candidate == 0 {
                return Scan::NobodyUpTo(last);
            }
            if self.node(candidate).domain.load_ahead(Relaxed) == domain {
                if last != name(me) {
                    self.set_aside(node, last, candidate);
                }
                return Scan::Kin;
            }
            last = candidate;
        }
    }

    /// Moves the waiters behind `head` up to `last` to the end of those set aside.
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

    /// The queue is empty but for the head `me`: takes the lock, makes those set aside the queue,
    /// and passes headship to their first. Returns false if a thread has joined the queue since
    /// `seen`.
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
        let scan = match scan {
            Scan::NobodyUpTo(last) => self.scan(me, last, MOST_WHEN_FREE),
            found => found,
        };
        let aside = node.flag.load(Relaxed);
        if scan == Scan::Kin {
            let kin = self.node(node.next.load(Relaxed));
            // A thread queues with a run of 0, and nobody is kept waiting by a run while nobody is
            // set aside.
            if aside > GO {
                kin.run.store(node.run.load(Relaxed) + 1, Relaxed);
            }
            kin.flag.store(aside.max(GO), Release);
        } else if aside > GO {
            let end = &self.node(aside).next;
            let first = end.load(Relaxed);
            end.store(next, Relaxed);
            self.node(first).flag.store(GO, Release);
        } else {
            self.node(next).flag.store(GO, Release);
        }
    }
}
