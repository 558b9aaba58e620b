//! The queued spinlock of Linux 5.6 and versions of its NUMA-aware variant, as they were measured
//! for the published tables: small models written from a description of what they do. They are not
//! the library's lock, which differs in several steps.
//!
//! The word is (tail, pending, locked). A tail of `0` means that nobody waits in the queue.
//!
//! | step | from | to | how |
//! | --- | --- | --- | --- |
//! | fast path | (0, 0, 0) | (0, 0, 1) | compare-and-swap |
//! | the only waiter | (0, 0, 1) | (0, 1, 1) | fetch-or; it is undone if others wait |
//! | ... and takes | (0, 1, 0) | (0, 0, 1) | a store of locked and pending together |
//! | queues | (t, p, l) | (me, p, l) | exchange of the tail |
//! | last head takes | (me, 0, 0) | (0, 0, 1) | compare-and-swap |
//! | another head takes | (t, 0, 0) | (t, 0, 1) | a store of the locked byte |
//! | unlock | (t, p, 1) | (t, p, 0) | a store of the locked byte |
//!
//! A head first takes the lock, and then passes headship on: its store to the flag becomes visible
//! after its store to the locked byte, since stores are visible in order.
//!
//! [`NUMA`-aware](self::cna) queues differ in three steps: a new head scans for a waiter of its
//! node, it looks at the secondary queue when it clears the tail, and it chooses to whom it passes
//! headship. A head that already has a successor fetches the successor's node for writing before it
//! waits.

mod cna;
#[cfg(test)]
mod tests;

use self::cna::Limit;
pub(super) use self::cna::Order;
use super::{Lock, observed};
use crate::platform::{Sim, SimU32, SimU64};
use crate::world::with;
use kinlock_core::config::LocalLimit;
use kinlock_core::platform::{Atomic, Ordering::*, Platform};
use std::cell::Cell;

const LOCKED: u32 = 1;
const LOCKED_BYTE: u32 = 0xff;
const PENDING: u32 = 1 << 8;
const PENDING_BYTE: u32 = 0xff << 8;
const TAIL: u32 = 0xffff << 16;

/// How often a newcomer checks whether a hand-over from pending to locked ends.
const LOOKS: u32 = 512;

/// The flag of a node: its thread waits.
const WAIT: u32 = 0;
/// The node's thread is the head, and nobody is set aside. A greater value also makes it the head,
/// and names the last waiter set aside, in the form of a tail.
const GO: u32 = 1;

/// The lock, which is NUMA-aware if `NUMA` is set.
// `repr(C)`: the word and the words beside it are in one line.
#[repr(C)]
struct Native<const NUMA: bool> {
    word: SimU32,
    beside: [SimU64; 2],
    order: Order,
    nodes: &'static [Node],
    counts: Counts,
}

/// Counts, which are kept outside of the machine.
#[derive(Default)]
struct Counts {
    handoffs: Cell<u64>,
    /// Waiters that scans looked at, and the most between two hand-offs.
    steps: Cell<u64>,
    most: Cell<u64>,
    /// How many waiters the current head has looked at.
    now: Cell<u64>,
    /// For ordinary threads and for those of [`is_chosen`]: cycles waited, number of waits, longest
    /// wait.
    waits: [Cell<[u64; 3]>; 2],
}

impl Counts {
    fn handed_off(&self) {
        self.handoffs.set(self.handoffs.get() + 1);
        self.most.set(self.most.get().max(self.now.replace(0)));
    }

    fn stepped(&self) {
        self.steps.set(self.steps.get() + 1);
        self.now.set(self.now.get() + 1);
    }

    fn waited(&self, me: usize, cycles: u64) {
        let of = &self.waits[is_chosen(me) as usize];
        let [sum, count, longest] = of.get();
        of.set([sum + cycles, count + 1, longest.max(cycles)]);
    }

    fn observed(&self) -> Vec<(&'static str, f64)> {
        let handoffs = self.handoffs.get().max(1) as f64;
        let mut all = vec![
            (observed::SCAN_STEPS, self.steps.get() as f64 / handoffs),
            (observed::MOST_STEPS, self.most.get() as f64),
        ];
        for (names, of) in observed::WAITS.iter().zip(&self.waits) {
            let [sum, count, longest] = of.get();
            let nanos = |cycles| with(|w| w.costs().nanos(cycles));
            all.push((names[0], nanos(sum) / count.max(1) as f64));
            all.push((names[1], nanos(longest)));
        }
        all
    }
}

/// Whether a thread has priority, in the model with priority waiters: one in sixteen has.
fn is_chosen(me: usize) -> bool {
    me % 16 == 7
}

/// A thread's place in the queue. In a kernel it belongs to the CPU.
#[repr(align(128))]
struct Node {
    flag: SimU32,
    /// The next waiter's name; 0: none yet.
    next: SimU32,
    /// The NUMA node of the thread's CPU.
    domain: SimU32,
    /// While others are set aside: the number of hand-offs in a row within the NUMA node, up to
    /// this thread's. If the limit is a time: the microsecond in which the first waiter was set
    /// aside.
    run: SimU32,
}

/// A thread's name in the word and in nodes: its number + 1, in the bits of the tail.
fn name(me: usize) -> u32 {
    (me as u32 + 1) << 16
}

pub(super) fn place_fifo(threads: usize) -> &'static dyn Lock {
    crate::place(Native::<false>::new(threads, Order::V10))
}

/// Places a CNA lock with the local limit of the run, if that is a count.
pub(super) fn place_cna(threads: usize) -> &'static dyn Lock {
    let mut order = Order::V10;
    if let LocalLimit::Count { log2, .. } = with(|w| w.setup.tuning.limit) {
        order.limit = Limit::Count(1 << log2);
    }
    place(threads, order)
}

pub(super) fn place(threads: usize, order: Order) -> &'static dyn Lock {
    crate::place(Native::<true>::new(threads, order))
}

impl<const NUMA: bool> Lock for Native<NUMA> {
    fn lock(&self, me: usize) {
        if let Err(seen) = self.word.compare_exchange(0, LOCKED, Acquire, Relaxed) {
            let since = with(|w| w.now());
            self.lock_contended(me, seen);
            self.counts.waited(me, with(|w| w.now()) - since);
        }
    }

    fn unlock(&self, _: usize) {
        self.word.store_part(LOCKED_BYTE, 0);
    }

    fn beside(&self) -> Option<&[SimU64; 2]> {
        Some(&self.beside)
    }

    fn observed(&self) -> Vec<(&'static str, f64)> {
        self.counts.observed()
    }
}

impl<const NUMA: bool> Native<NUMA> {
    fn new(threads: usize, order: Order) -> Self {
        let node = |_| Node {
            flag: SimU32::new(WAIT),
            next: SimU32::new(0),
            domain: SimU32::new(0),
            run: SimU32::new(0),
        };
        Native {
            word: SimU32::new(0),
            beside: [SimU64::new(0), SimU64::new(0)],
            order,
            nodes: crate::place_slice(threads, node),
            counts: Counts::default(),
        }
    }

    /// The node of the thread that a name or a tail names.
    fn node(&self, name: u32) -> &Node {
        &self.nodes[(name >> 16) as usize - 1]
    }

    fn lock_contended(&self, me: usize, mut seen: u32) {
        let mut looks = 0;
        while seen == PENDING && looks < LOOKS {
            Sim::relax();
            seen = self.word.load(Relaxed);
            looks += 1;
        }
        if seen & !LOCKED_BYTE != 0 || !self.wait_alone() {
            self.wait_in_queue(me);
        }
    }

    /// Takes the lock as its only waiter. Returns false if there are others.
    fn wait_alone(&self) -> bool {
        let before = self.word.fetch_or(PENDING, Acquire);
        if before & !LOCKED_BYTE != 0 {
            if before & PENDING_BYTE == 0 {
                self.word.store_part(PENDING_BYTE, 0);
            }
            return false;
        }
        if before & LOCKED_BYTE != 0 {
            Sim::wait(&self.word, Acquire, |word| word & LOCKED_BYTE == 0);
        }
        self.word.store_part(LOCKED_BYTE | PENDING_BYTE, LOCKED);
        true
    }

    fn wait_in_queue(&self, me: usize) {
        let node = &self.nodes[me];
        node.flag.store(WAIT, Relaxed);
        node.next.store(0, Relaxed);
        if NUMA {
            node.domain.store(Sim::domain() as u32, Relaxed);
            node.run.store(0, Relaxed);
        }
        // The node may have come from far away, and the lock may be free by now.
        let is_free = self.word.load(Relaxed) == 0;
        if is_free
            && self
                .word
                .compare_exchange(0, LOCKED, Acquire, Relaxed)
                .is_ok()
        {
            return;
        }
        let before = self.word.swap_part(TAIL, name(me)) & TAIL;
        if before != 0 {
            self.node(before).next.store(name(me), Release);
            Sim::wait(&node.flag, Acquire, |flag| flag != WAIT);
            let next = node.next.load(Relaxed);
            if next != 0 {
                Sim::prefetch_for_writing(&self.node(next).flag);
            }
        }
        self.take_as_head(me);
    }

    fn take_as_head(&self, me: usize) {
        let node = &self.nodes[me];
        let scan = if NUMA {
            self.scan_early(me)
        } else {
            cna::Scan::None
        };
        let is_free = |word: u32| word & (LOCKED_BYTE | PENDING_BYTE) == 0;
        let seen = Sim::wait(&self.word, Acquire, is_free);
        if seen & TAIL == name(me) && self.clear_tail(me, seen) {
            return;
        }
        self.word.store_part(LOCKED_BYTE, LOCKED);
        let next = Sim::wait(&node.next, Relaxed, |next| next != 0);
        self.counts.handed_off();
        if NUMA {
            self.pass_to_kin(me, next, scan);
        } else {
            self.node(next).flag.store(GO, Release);
        }
    }

    /// Takes the lock and empties the queue, unless a thread has joined it since `seen`.
    fn clear_tail(&self, me: usize, seen: u32) -> bool {
        if NUMA && self.nodes[me].flag.load(Relaxed) > GO {
            return self.promote_those_set_aside(me, seen);
        }
        self.word
            .compare_exchange(seen, LOCKED, Relaxed, Relaxed)
            .is_ok()
    }
}
