//! Waiting for local waiters when several hand-offs were local; what the published form does
//! instead.

use super::super::limit::ROUSED_BEFORE;
use super::super::scan::LINGER_RUN;
use super::*;

/// A head of domain 0 after its pre-scan. Waiters of domain 1 were set aside `handoffs` hand-offs
/// ago.
fn dry(q: &Queue, handoffs: u32, tuning: Tuning) -> Head<Native> {
    let (heir, state) = q.turn(0, GO, 0, FULL).unwrap();
    q.table.node(q.ids[heir]).run.store(handoffs, Relaxed);
    let mut head = q.head(heir, state, 0, tuning);
    head.pre_scan();
    head
}

#[test]
fn a_holder_waits_for_local_waiters_only_where_there_were_some() {
    let domains = [0, 1, 0, 1];
    let after = |handoffs| dry(&Queue::new(&domains), handoffs, FULL).wants_local();
    assert!(!after(LINGER_RUN - 1));
    assert!(after(LINGER_RUN));
    // The flag in `run` does not count as hand-offs.
    assert!(!after(ROUSED_BEFORE));
    assert!(after(ROUSED_BEFORE | LINGER_RUN));
    let wants = |tuning| dry(&Queue::new(&domains), LINGER_RUN, tuning).wants_local();
    assert!(!wants(ALWAYS_FLUSH));
    // Less than a two-hundredth of the larger limit is used up, and more of the smaller limit.
    let limited = |log2| Tuning {
        limit: LocalLimit::Count { log2 },
        ..FULL
    };
    assert!(wants(limited(10)) && !wants(limited(9)));
    // No waiter is set aside, so no remote waiter would be next.
    let q = Queue::new(&[0, 1]);
    assert!(!q.head(0, GO, 0, FULL).wants_local());
}

#[test]
fn local_waiters_that_a_holder_waits_for_come_first() {
    let mut q = Queue::new(&[0, 1, 0, 1]);
    let mut head = dry(&q, LINGER_RUN, FULL);
    let mut pauses = 0;
    head.scan_while(|| {
        pauses += 1;
        q.arrive((pauses < 3) as u16);
        true
    });
    assert_eq!(pauses, 3, "the third newcomer is local");
    let (heir, state) = q.pass(head).unwrap();
    assert_eq!((heir, q.secondary_of(state)), (6, vec![1, 3, 4, 5]));
}

#[test]
fn a_holder_that_waits_for_local_waiters_in_vain_goes_to_another_domain() {
    let q = Queue::new(&[0, 1, 0, 1]);
    let mut head = dry(&q, LINGER_RUN, FULL);
    head.wait_for_local();
    assert_eq!(q.pass(head), Some((1, GO)));
    assert_eq!(q.primary_from(1), [1, 3]);
}
