//! The steps in which version 10 of CNA differs.
//!
//! Those set aside form a circle: the last one's `next` is the first. The head's flag names the
//! last one, so the lock has no memory of its own for them.

use super::{GO, LOCKED, LOCKED_BYTE, Native, Node, PENDING_BYTE, TAIL, name};
use crate::platform::Sim;
use crate::world::with;
use kinlock_core::platform::{Atomic, Ordering::*, Platform};

/// Hand-offs within a NUMA node after which those set aside get their turn.
const LIMIT: u32 = 1 << 16;

/// How many waiters a limited scan looks at once the lock is free, for each NUMA node of the
/// machine.
const LOOKS_WHEN_FREE: usize = 4;

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
        match self.limited {
            true => self.scan_until_free(me),
            false => self.scan(me, name(me)),
        }
    }

    /// Looks for a waiter of the NUMA node behind `from`. Sets aside all before it, if it is found.
    /// The processor predicts how the walk ends, and so waits for none of its loads.
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

    /// The limited scan: looks at the lock before each step. While that is held the scan does not
    /// end: behind the last waiter it waits for a newcomer. Once the lock is free, it looks at
    /// [`LOOKS_WHEN_FREE`] waiters for each NUMA node.
    fn scan_until_free(&self, me: usize) -> Scan {
        let domain = self.nodes[me].domain.load(Relaxed);
        let mut looks = LOOKS_WHEN_FREE * with(|w| w.machine().shape.sockets);
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

    /// Whether the candidate, behind `last`, is of that NUMA node. Sets aside all before it then.
    fn ends_at(&self, me: usize, domain: u32, last: u32, candidate: u32) -> bool {
        let is_kin = self.node(candidate).domain.load_ahead(Relaxed) == domain;
        if is_kin && last != name(me) {
            self.set_aside(&self.nodes[me], last, candidate);
        }
        is_kin
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
            Scan::NobodyUpTo(last) if !self.limited => self.scan(me, last),
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
