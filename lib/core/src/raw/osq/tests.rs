//! Queues that tests build by hand: leaving from each place, in each order, and what a spinner
//! watches.

use super::*;
use crate::Native;
use crate::raw::waiter::Slot;
use core::sync::atomic::{AtomicU16, AtomicU32};

/// A queue with its own table. `ids` has a node for each of its threads, none of which runs.
struct Bench {
    tail: &'static AtomicU16,
    table: &'static Waiters<Native>,
    ids: Vec<Id>,
}

impl Bench {
    fn new(threads: u16) -> Self {
        let slots = (0..threads).map(|_| Slot::new()).collect::<Vec<_>>().leak();
        let claimed = vec![AtomicU32::new(0)].leak();
        let in_use = Box::leak(Box::new(AtomicU32::new(0)));
        Bench {
            tail: Box::leak(Box::new(AtomicU16::new(0))),
            table: Box::leak(Box::new(Waiters::new(slots, claimed, in_use))),
            ids: (1..=threads)
                .map(|slot| Id::decode(slot << 2).unwrap())
                .collect(),
        }
    }

    fn waiter(&self, id: Id) -> Waiter<Native> {
        Waiter::new(self.table, id, false)
    }

    fn links(&self) -> Links<'_, Native> {
        Links {
            tail: self.tail,
            table: self.table,
        }
    }

    /// All threads queue, in order.
    fn full(threads: u16) -> Self {
        let bench = Self::new(threads);
        for (i, &id) in bench.ids.iter().enumerate() {
            assert_eq!(bench.links().append(id), i == 0);
        }
        bench
    }

    /// The queue from its head, by following `next`; also checks the other links.
    fn queue(&self) -> Vec<Id> {
        let links = self.links();
        let last = Id::decode(self.tail.load(Relaxed));
        let head = self.ids.iter().copied().find(|&id| self.is_head(id));
        let mut queue: Vec<Id> = head.into_iter().collect();
        while let Some(next) = queue
            .last()
            .and_then(|&id| Link::decode(links.node(id).next.load(Relaxed)))
            .map(Link::id)
        {
            assert_eq!(
                Id::decode(links.node(next).previous.load(Relaxed)),
                queue.last().copied()
            );
            queue.push(next);
        }
        assert_eq!(queue.last().copied(), last, "the tail names the last");
        queue
    }

    /// Whether this is the first remaining waiter: tests remove from `ids` the waiters that have
    /// left.
    fn is_head(&self, id: Id) -> bool {
        self.ids.first() == Some(&id)
    }

    fn leave(&mut self, i: usize) {
        let id = self.ids.remove(i);
        assert!(self.links().unqueue(&self.waiter(id)));
        assert_eq!(self.queue(), self.ids);
    }

    fn hand_on(&mut self) {
        let id = self.ids.remove(0);
        self.links().hand_on(&self.waiter(id));
        assert_eq!(self.queue(), self.ids);
        if let Some(&head) = self.ids.first() {
            assert_eq!(self.table.node(head).state.load(Relaxed), GO);
        }
    }
}

#[test]
fn headship_goes_round_in_order() {
    let mut bench = Bench::full(4);
    for _ in 0..4 {
        bench.hand_on();
    }
    assert_eq!(bench.tail.load(Relaxed), 0);
}

#[test]
fn all_but_the_head_may_leave_in_any_order() {
    for order in [[1, 1, 1], [3, 2, 1], [2, 1, 1], [1, 2, 1]] {
        let mut bench = Bench::full(4);
        for waiter in order {
            bench.leave(waiter);
        }
        bench.hand_on();
        assert_eq!(bench.tail.load(Relaxed), 0);
    }
}

#[test]
fn the_queue_goes_on_after_its_last_has_left() {
    let mut bench = Bench::full(3);
    let last = bench.ids[2];
    bench.leave(2);
    // The same node queues again, behind another predecessor.
    assert!(!bench.links().append(last));
    bench.ids.push(last);
    assert_eq!(bench.queue(), bench.ids);
    bench.leave(1);
    bench.hand_on();
}

#[test]
fn headship_that_has_come_wins_over_leaving() {
    let bench = Bench::full(3);
    let links = bench.links();
    links.hand_on(&bench.waiter(bench.ids[0]));
    assert!(
        !links.unqueue(&bench.waiter(bench.ids[1])),
        "it is the head now"
    );
    assert!(links.unqueue(&bench.waiter(bench.ids[2])));
    links.hand_on(&bench.waiter(bench.ids[1]));
    assert_eq!(bench.tail.load(Relaxed), 0);
}

#[test]
fn a_sleeping_successor_is_made_head_too() {
    let bench = Bench::full(2);
    let links = bench.links();
    links.node(bench.ids[1]).state.store(PARKED, Relaxed);
    links.hand_on(&bench.waiter(bench.ids[0]));
    assert_eq!(links.node(bench.ids[1]).state.load(Relaxed), GO);
}

/// A queue of the threads `a`, the head, `b` and `c`. The link behind `a` is late.
fn late_link(threads: u16) -> (Bench, [Id; 3]) {
    let bench = Bench::full(threads);
    let node = |i: usize| bench.table.node(bench.ids[i]);
    assert_eq!(
        node(0).next.swap(0, Relaxed),
        link_to(bench.ids[1]).encode()
    );
    let ids = [0, 1, 2].map(|i| *bench.ids.get(i).unwrap_or(&bench.ids[0]));
    (bench, ids)
}

#[test]
fn a_head_does_not_wait_for_a_newcomer_that_has_not_linked_itself() {
    let (bench, [a, b, _]) = late_link(2);
    let links = bench.links();
    let waiter = bench.waiter(a);
    links.hand_on(&waiter);
    assert!(waiter.is_left_behind());
    assert_eq!(bench.tail.load(Relaxed), b.encode());
    assert!(bench.table.link(a, link_to(b)), "the newcomer is head");
    links.hand_on(&bench.waiter(b));
    assert_eq!(bench.tail.load(Relaxed), 0);
}

#[test]
fn a_waiter_that_leaves_makes_its_successor_head_if_the_head_is_gone() {
    let (bench, [a, b, c]) = late_link(3);
    let links = bench.links();
    links.node(c).state.store(PARKED, Relaxed);
    links.hand_on(&bench.waiter(a));
    assert!(links.leave_between(&bench.waiter(b), a));
    assert_eq!(links.node(c).state.load(Relaxed), GO);
    assert_ne!(links.node(a).next.load(Relaxed), link_to(c).encode());
    links.hand_on(&bench.waiter(c));
    assert_eq!(bench.tail.load(Relaxed), 0);
}

#[test]
fn the_last_waiter_empties_the_queue_if_the_head_is_gone() {
    let (bench, [a, b, _]) = late_link(2);
    let links = bench.links();
    links.hand_on(&bench.waiter(a));
    assert!(links.leave_between(&bench.waiter(b), a));
    assert_eq!(bench.tail.load(Relaxed), 0, "it names a node that is gone");
}

#[test]
fn a_head_leaves_as_ever_if_the_tail_has_come_back() {
    let (bench, [a, b, _]) = late_link(2);
    let links = bench.links();
    assert!(links.leave_between(&bench.waiter(b), a));
    let waiter = bench.waiter(a);
    links.hand_on(&waiter);
    assert!(!waiter.is_left_behind());
    assert_eq!(bench.tail.load(Relaxed), 0);
}

/// A queue of the threads `a`, the head, `b`, whose node can be left behind, and `c`, whose link
/// behind `b` is late.
fn late_behind_a_waiter() -> (Bench, [Id; 3]) {
    let bench = Bench::full(3);
    let ids = [0, 1, 2].map(|i| bench.ids[i]);
    let next = &bench.table.node(ids[1]).next;
    assert_eq!(next.swap(0, Relaxed), link_to(ids[2]).encode());
    (bench, ids)
}

/// The thread of `c` may run a signal handler that waits for a lock which the leaving thread holds.
#[test]
fn a_waiter_that_leaves_does_not_wait_for_a_newcomer_that_has_not_linked_itself() {
    let (bench, [a, b, c]) = late_behind_a_waiter();
    let links = bench.links();
    let waiter = bench.waiter(b);
    assert!(links.unqueue(&waiter));
    assert!(waiter.is_left_behind());
    let node = |id| bench.table.node(id);
    assert_eq!(node(b).state.load(Relaxed), ABANDONED);
    assert!(
        !bench.table.link(b, link_to(c)),
        "it stands behind one that has left"
    );
    node(c).state.store(PARKED, Relaxed);
    links.hand_on(&bench.waiter(a));
    assert_eq!(node(c).state.load(Relaxed), GO);
    links.hand_on(&bench.waiter(c));
    assert_eq!(bench.tail.load(Relaxed), 0);
}

#[test]
fn a_head_passes_over_a_waiter_that_has_left_before_the_late_link_comes() {
    let (bench, [a, b, c]) = late_behind_a_waiter();
    let links = bench.links();
    assert!(links.unqueue(&bench.waiter(b)));
    let waiter = bench.waiter(a);
    links.hand_on(&waiter);
    assert!(!waiter.is_left_behind());
    assert_eq!(bench.tail.load(Relaxed), c.encode());
    assert!(bench.table.link(b, link_to(c)), "the newcomer is head");
    links.hand_on(&bench.waiter(c));
    assert_eq!(bench.tail.load(Relaxed), 0);
}

/// Otherwise the node could be the last of the queue again when the thread that has marked it looks
/// at the tail.
#[test]
fn a_node_is_not_used_again_before_the_thread_that_marks_it_has_looked_at_the_tail() {
    let (bench, [a, b, c]) = late_behind_a_waiter();
    let links = bench.links();
    let owner = bench.table.claim().unwrap();
    assert_eq!(owner, b.slot() - 1, "the lowest is the slot of `a`");
    let owner = bench.table.claim().unwrap();
    assert_eq!(owner, b.slot());
    assert!(links.unqueue(&bench.waiter(b)));
    let mark = || {
        let marked = bench.table.mark_gone(b);
        assert!(bench.table.link(b, link_to(c)), "it reaps the node");
        assert_ne!(bench.table.claim_node(owner), Some(b));
        marked
    };
    assert!(links.detach_next(a, None).is_some());
    assert!(links.take_out(b, mark).is_none());
    assert_eq!(bench.table.claim_node(owner), Some(b));
    assert_eq!(bench.tail.load(Relaxed), c.encode());
}

#[test]
fn a_waiter_that_leaves_behind_a_gone_head_is_the_head_and_waits_for_no_link_either() {
    let (bench, [a, b, c]) = late_behind_a_waiter();
    let links = bench.links();
    let next = &bench.table.node(a).next;
    assert_eq!(next.swap(0, Relaxed), link_to(b).encode());
    assert!(bench.waiter(a).leave_behind(|| bench.table.mark_gone(a)));
    let waiter = bench.waiter(b);
    assert!(links.leave_between(&waiter, a));
    assert!(waiter.is_left_behind());
    assert!(bench.table.link(b, link_to(c)), "the newcomer is head");
    links.hand_on(&bench.waiter(c));
    assert_eq!(bench.tail.load(Relaxed), 0);
}

/// The predecessor is between its steps B and C, and will link this waiter to another predecessor.
#[test]
fn a_waiter_that_leaves_does_not_wait_for_its_predecessor() {
    let (bench, [a, b, c]) = late_behind_a_waiter();
    let links = bench.links();
    // Step A of `b`; step B was the late link.
    let next = &bench.table.node(a).next;
    assert_eq!(next.swap(0, Relaxed), link_to(b).encode());
    let waiter = bench.waiter(c);
    assert!(links.unqueue(&waiter));
    assert!(waiter.is_left_behind());
    // Step C of `b`.
    links.set_previous(c, a);
    assert!(!bench.table.link(a, link_to(c)));
    links.hand_on(&bench.waiter(a));
    assert_eq!(bench.tail.load(Relaxed), 0);
}

#[test]
fn several_that_have_left_are_passed_over_at_once() {
    let bench = Bench::full(4);
    let links = bench.links();
    for &id in &bench.ids[1..] {
        assert!(links.abandon(&bench.waiter(id)));
    }
    links.hand_on(&bench.waiter(bench.ids[0]));
    assert_eq!(bench.tail.load(Relaxed), 0);
}

#[test]
fn waiters_ahead_are_counted_up_to_a_limit() {
    let mut bench = Bench::full(12);
    let ahead = |bench: &Bench, i: usize| {
        let links = bench.links();
        links.count_ahead(links.node(bench.ids[i]), 8)
    };
    // First behind a head that has found the queue empty, then behind a waiter that was made the
    // head.
    for _ in 0..2 {
        for i in 1..=8 {
            assert_eq!(ahead(&bench, i), Some(i as u64));
        }
        assert_eq!(ahead(&bench, 9), None);
        bench.links().hand_on(&bench.waiter(bench.ids[0]));
        bench.ids.remove(0);
    }
    bench.leave(3);
    assert_eq!(ahead(&bench, 4), Some(4), "after one has left the middle");
}

/// Until it queues again, a node names its last predecessor.
#[test]
fn a_head_that_has_waited_before_has_nobody_ahead() {
    let bench = Bench::full(2);
    let links = bench.links();
    let [first, second] = bench.ids[..] else {
        unreachable!("there are two")
    };
    links.hand_on(&bench.waiter(first));
    links.hand_on(&bench.waiter(second));
    assert!(links.append(second), "the queue is empty");
    assert!(!links.append(first));
    assert_eq!(links.count_ahead(links.node(first), 8), Some(1));
}

/// A newcomer that finds the last node gone is the head. It must not keep naming that node as its
/// predecessor.
#[test]
fn a_head_behind_a_gone_node_has_nobody_ahead() {
    let bench = Bench::new(3);
    let links = bench.links();
    let [gone, head, behind] = bench.ids[..] else {
        unreachable!("there are three")
    };
    assert!(links.append(gone));
    let waiter = bench.waiter(gone);
    assert!(waiter.leave_behind(|| bench.table.mark_gone(gone)));
    assert!(links.append(head), "the last node is gone");
    assert!(!links.append(behind));
    assert_eq!(links.count_ahead(links.node(behind), 8), Some(1));
}
