//! Slots and nodes: claiming, nesting, recycling.

use super::*;
use crate::Native;
use core::sync::atomic::AtomicU32;

fn table(slots: usize) -> &'static Waiters<Native> {
    let slots = (0..slots).map(|_| Slot::new()).collect::<Vec<_>>().leak();
    let claimed = (0..slots.len().div_ceil(32)).map(|_| AtomicU32::new(0));
    let claimed = claimed.collect::<Vec<_>>().leak();
    let in_use = Box::leak(Box::new(AtomicU32::new(0)));
    Box::leak(Box::new(Waiters::new(slots, claimed, in_use)))
}

#[test]
fn slots_are_dense_and_reused() {
    let table = table(40);
    let slots: Vec<_> = (0..40).map(|_| table.claim().unwrap()).collect();
    assert_eq!(slots, (1..=40).collect::<Vec<_>>());
    assert_eq!((table.claim(), table.in_use()), (None, 40));
    // SAFETY: no lock uses this table.
    unsafe { table.release(7) };
    // SAFETY: no lock uses this table.
    unsafe { table.release(33) };
    assert_eq!(
        (table.claim(), table.claim(), table.claim()),
        (Some(7), Some(33), None)
    );
}

#[test]
fn only_nodes_whose_owners_wait_count() {
    let table = table(40);
    let slots: Vec<_> = (0..35).map(|_| table.claim().unwrap()).collect();
    let waiting = |most, but| table.waiting_in(0..2, &mut table.in_use(), most, but);
    assert_eq!(waiting(9, 0), 0, "idle threads");
    let ids = [0, 1, 34].map(|n| table.claim_node(slots[n]).unwrap());
    let nested = table.claim_node(slots[1]).unwrap();
    assert_eq!((waiting(9, 0), waiting(2, 0)), (3, 2));
    assert_eq!(waiting(9, slots[34]), 2);
    table.node(ids[1]).state.store(ABANDONED, Relaxed);
    assert_eq!(waiting(9, 0), 3, "it waits in a second node");
    table.free(nested);
    assert_eq!(waiting(9, 0), 2);
    // SAFETY: no lock uses this table.
    unsafe { table.reset_in_child(|slot| slot == slots[0]) };
    assert_eq!((waiting(9, 0), table.in_use()), (0, 3));
}

#[test]
fn a_slot_has_four_nodes() {
    let table = table(1);
    let slot = table.claim().unwrap();
    let ids: Vec<_> = (0..NESTING)
        .map(|_| table.claim_node(slot).unwrap())
        .collect();
    assert_eq!(
        ids.iter().map(|id| id.encode()).collect::<Vec<_>>(),
        [4, 5, 6, 7]
    );
    assert!(table.claim_node(slot).is_none());
    table.free(ids[2]);
    assert_eq!(table.claim_node(slot), Some(ids[2]));
}

#[test]
fn a_signal_handler_that_interrupts_a_wait_is_never_set_aside() {
    let table = table(1);
    let slot = table.claim().unwrap();
    let claim = || Waiter::new(table, table.claim_node(slot).unwrap(), false);
    let (outer, inner) = (claim(), claim());
    outer.node().prepare(3, false);
    assert_eq!((outer.named(3), inner.named(3)), (3, PRIORITY));
    // The interrupted wait has headship, which the handler holds up.
    outer.node().state.store(GO, Relaxed);
    assert_eq!(inner.named(3), PRIORITY);
    // The outer wait has ended, as the head or by giving up: its node is only left behind.
    outer.node().next.store(GONE, Relaxed);
    assert_eq!(inner.named(3), 3);
    outer.node().prepare(3, true);
    outer.node().state.store(ABANDONED, Relaxed);
    assert_eq!(inner.named(3), 3);
    outer.node().prepare(3, false);
    drop(outer);
    assert_eq!(inner.named(3), 3);
}

#[test]
fn an_abandoned_node_keeps_its_slot_claimed_until_it_is_reaped() {
    let table = table(2);
    let slot = table.claim().unwrap();
    let id = table.claim_node(slot).unwrap();
    let waiter = Waiter::new(table, id, true);
    waiter.node().prepare(0, true);
    waiter.abandon(WAITING).unwrap();
    assert_eq!(table.in_use(), 1, "the owner is gone, its node is not");
    assert_eq!(table.claim(), Some(2));
    table.reap(id);
    assert_eq!(table.claim(), Some(1));
}

#[test]
fn a_waiter_that_was_granted_headship_cannot_abandon() {
    let table = table(1);
    let id = table.claim_node(table.claim().unwrap()).unwrap();
    let waiter = Waiter::new(table, id, true);
    waiter.node().prepare(0, true);
    waiter.node().state.store(GO, Relaxed);
    let waiter = waiter.abandon(WAITING).unwrap_err();
    drop(waiter);
    assert_eq!(table.in_use(), 0);
}

#[test]
fn a_forked_child_frees_slots_of_other_threads_unless_a_queue_may_name_them() {
    let table = table(70);
    for _ in 0..70 {
        table.claim().unwrap();
    }
    assert!(
        table.claim_node(3).is_some(),
        "another thread stands in a queue"
    );
    let own = table.claim_node(40).unwrap();
    // SAFETY: no lock uses this table.
    unsafe { table.reset_in_child(|slot| slot == 40) };
    assert_eq!(table.in_use(), 2);
    assert_ne!(
        table.claim_node(40),
        Some(own),
        "its own nodes stay as they were"
    );
    let claimed: Vec<_> = core::iter::from_fn(|| table.claim()).collect();
    assert_eq!(claimed.len(), 68);
    assert!(!claimed.contains(&3) && !claimed.contains(&40));
}

#[test]
fn in_a_forked_child_a_newcomer_behind_a_waiter_of_the_parent_is_head() {
    let table = table(2);
    let left: Vec<_> = (0..2)
        .map(|_| table.claim_node(table.claim().unwrap()).unwrap())
        .collect();
    for &id in &left {
        table.node(id).prepare(0, false);
    }
    // SAFETY: no lock uses this table.
    unsafe { table.reset_in_child(|_| false) };
    assert_eq!(table.in_use(), 2);
    let newcomer = Link::new(left[1], false, 0);
    assert!(table.link(left[0], newcomer));
    assert_eq!(
        (table.in_use(), table.claim()),
        (1, Some(1)),
        "it is reaped"
    );
}

#[test]
fn a_pinned_node_is_not_used_again() {
    let table = table(1);
    let slot = table.claim().unwrap();
    let id = table.claim_node(slot).unwrap();
    table.pin(id);
    table.free(id);
    assert_ne!(table.claim_node(slot), Some(id));
    table.unpin(id);
    assert_eq!(table.claim_node(slot), Some(id));
}
