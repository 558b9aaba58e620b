//! A kernel's cancellable queue of spinners (`osq_lock`), with a choice of where a spinner reads
//! its predecessor's CPU number. Linux changed that place in 2023 to cure false sharing, and what
//! the change gains is published.
//!
//! The library's own queue is an OSQ, too, with the best of these places; `raw/osq.rs` of
//! kinlock-core explains the steps by which a spinner leaves. In this one no waiter sleeps and no
//! thread is preempted: each spinner has a CPU.

use super::observed;
use crate::platform::{Sim, SimU16, SimU32};
use crate::world::with;
use kinlock_core::platform::{Atomic, NEVER, Ordering::*, Platform};
use std::cell::Cell;

/// Nanoseconds between two looks at the predecessor's CPU number. The published spin loop looks in
/// each iteration: a `pause`, two loads and a compare.
const LOOK_EVERY_NS: u64 = 50;

/// Where a spinner reads its predecessor's CPU number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum CpuNumber {
    /// In the predecessor's node. That line changes whenever a thread queues behind the
    /// predecessor, and when the predecessor hands headship on or leaves.
    InNode,
    /// In a separate line of the predecessor, which changes only when that thread queues anew.
    OwnLine,
    /// In the spinner's own node, copied when the two were linked.
    Copied,
}

const WAITING: u32 = 0;
const GO: u32 = 1;

#[repr(align(128))]
struct Node {
    state: SimU32,
    /// The next spinner's number + 1; 0 = none yet.
    next: SimU32,
    /// The spinner before this one, likewise.
    previous: SimU32,
    cpu: SimU16,
    predecessor_cpu: SimU16,
    apart: OwnLine,
}

#[repr(align(128))]
struct OwnLine(SimU16);

/// The queue. A thread's node is named by the thread's number.
pub(super) struct Osq {
    /// The last spinner's number + 1; 0 = the queue is empty.
    tail: SimU32,
    nodes: &'static [Node],
    number: CpuNumber,
    /// Looks at a predecessor's CPU number, and how many of them fetched a line.
    looks: Cell<[u64; 2]>,
}

impl Osq {
    pub(super) fn new(threads: usize, number: CpuNumber) -> Self {
        let node = |_| Node {
            state: SimU32::new(WAITING),
            next: SimU32::new(0),
            previous: SimU32::new(0),
            cpu: SimU16::new(0),
            predecessor_cpu: SimU16::new(0),
            apart: OwnLine(SimU16::new(0)),
        };
        Osq {
            tail: SimU32::new(0),
            nodes: crate::place_slice(threads, node),
            number,
            looks: Cell::default(),
        }
    }

    /// Queues, and waits until the thread is the head (`true`), or until `until` (`false`: it has
    /// left the queue). A head must call [`leave`](Self::leave).
    pub(super) fn join(&self, me: usize, until: u64) -> bool {
        let (node, name) = (&self.nodes[me], me as u32 + 1);
        node.state.store(WAITING, Relaxed);
        node.next.store(0, Relaxed);
        self.publish_cpu(node);
        let before = self.tail.swap(name, AcqRel);
        if before == 0 {
            return true;
        }
        self.link(before, name);
        self.spin(node, until) || !self.unqueue(name)
    }

    /// Hands headship on to the next spinner, if any.
    pub(super) fn leave(&self, me: usize) {
        let next = self.detach_next(me as u32 + 1, 0);
        if next != 0 {
            self.node(next).state.store(GO, Release);
        }
    }

    pub(super) fn observed(&self) -> [(&'static str, f64); 2] {
        let [looks, misses] = self.looks.get();
        let share = misses as f64 / looks.max(1) as f64;
        [(observed::LOOKS, looks as f64), (observed::MISSES, share)]
    }

    fn node(&self, name: u32) -> &Node {
        &self.nodes[name as usize - 1]
    }

    fn link(&self, before: u32, after: u32) {
        let (first, second) = (self.node(before), self.node(after));
        if self.number == CpuNumber::Copied {
            let cpu = first.cpu.load(Relaxed);
            second.predecessor_cpu.store(cpu, Relaxed);
        }
        second.previous.store(before, Release);
        first.next.store(after, Release);
    }

    /// Spins until headship comes (`true`) or the time is up.
    fn spin(&self, node: &Node, until: u64) -> bool {
        if until == NEVER {
            Sim::wait(&node.state, Acquire, |state| state == GO);
            return true;
        }
        loop {
            let left = until.saturating_sub(Sim::now());
            let pause = LOOK_EVERY_NS.min(left);
            if Sim::wait_for(&node.state, Acquire, pause, |state| state == GO).is_ok() {
                return true;
            }
            // Each spinner has a CPU, so this look never ends the spinning. It only has the cost
            // that it has in a kernel.
            let since = with(|w| w.now());
            self.predecessors_cpu(node);
            // Two loads at most.
            let hits = 2 * with(|w| w.costs().own_cache);
            let [looks, misses] = self.looks.get();
            let missed = with(|w| w.now()) - since > hits;
            self.looks.set([looks + 1, misses + missed as u64]);
            if Sim::now() >= until {
                return false;
            }
        }
    }

    /// Leaves the queue. `false`: the spinner got headship first.
    fn unqueue(&self, name: u32) -> bool {
        let node = self.node(name);
        let before = loop {
            let before = node.previous.load(Acquire);
            let next = &self.node(before).next;
            if next.compare_exchange(name, 0, AcqRel, Relaxed).is_ok() {
                break before;
            }
            if node.state.load(Acquire) == GO {
                return false;
            }
            // The predecessor leaves, too, and will write another one's name.
            Sim::relax();
        };
        let after = self.detach_next(name, before);
        if after != 0 {
            self.link(before, after);
        }
        true
    }

    /// Removes the successor's name from the node, so that the successor cannot leave until it is
    /// linked again. 0: there is none, and the tail is now `back`.
    fn detach_next(&self, name: u32, back: u32) -> u32 {
        let next = &self.node(name).next;
        loop {
            if self.tail.load(Relaxed) == name {
                let moved = self.tail.compare_exchange(name, back, AcqRel, Relaxed);
                if moved.is_ok() {
                    return 0;
                }
            }
            let after = next.swap(0, AcqRel);
            if after != 0 {
                return after;
            }
            // A newcomer is about to link itself, or a leaving successor to link its own.
            Sim::relax();
        }
    }

    /// Writes the number whenever the thread queues, although it seldom changes: the measured
    /// kernel does so with either patch.
    fn publish_cpu(&self, node: &Node) {
        let number = match self.number {
            CpuNumber::OwnLine => &node.apart.0,
            CpuNumber::InNode | CpuNumber::Copied => &node.cpu,
        };
        number.store(with(|w| w.current_cpu() as u16), Relaxed);
    }

    fn predecessors_cpu(&self, node: &Node) -> u16 {
        let before = || self.node(node.previous.load(Relaxed));
        match self.number {
            CpuNumber::InNode => before().cpu.load(Relaxed),
            CpuNumber::OwnLine => before().apart.0.load(Relaxed),
            CpuNumber::Copied => node.predecessor_cpu.load(Relaxed),
        }
    }
}
