//! Priority waiters, and the limits on local hand-offs.

use super::*;

#[test]
fn a_scan_stops_at_a_priority_waiter() {
    let q = Queue::new(&[0, 1, PRIORITY, 0]);
    let (heir, state) = q.turn(0, GO, 0, FULL).unwrap();
    assert_eq!((heir, q.secondary_of(state)), (2, vec![1]));
    assert_eq!(q.primary_from(2), [2, 3]);
}

#[test]
fn a_priority_waiter_that_is_next_gets_the_lock_from_another_domain() {
    let q = Queue::new(&[0, PRIORITY, 0]);
    assert_eq!(q.turn(0, GO, 0, FULL), Some((1, GO)));
}

#[test]
fn the_count_limit_flushes_the_secondary_queue() {
    let q = Queue::new(&[0, 1, 0, 0, 0]);
    let (heir, state) = q.turn(0, GO, 0, ALWAYS_FLUSH).unwrap();
    assert_eq!((heir, q.secondary_of(state)), (2, vec![1]));
    // There was one local hand-off, 2^0.
    assert_eq!(q.turn(2, state, 0, ALWAYS_FLUSH), Some((1, GO)));
    assert_eq!(q.primary_from(1), [1, 3, 4]);
}

#[test]
fn the_count_limit_counts_hand_offs_since_the_first_was_set_aside() {
    let limit = Tuning {
        limit: LocalLimit::Count { log2: 1 },
        ..FULL
    };
    let q = Queue::new(&[0, 1, 0, 0, 0, 0]);
    let mut order = vec![];
    let (mut waiter, mut state) = (0, GO);
    while let Some((next, s)) = q.turn(waiter, state, 0, limit) {
        order.push(next);
        (waiter, state) = (next, s);
    }
    assert_eq!(order, [2, 3, 1, 4, 5]);
}

#[test]
fn the_time_limit_flushes_the_secondary_queue() {
    let limit = Tuning {
        limit: LocalLimit::Time { ms: 10 },
        ..FULL
    };
    // A busy machine may let the limit pass within a turn.
    let first = |_| {
        let q = Queue::new(&[0, 1, 0, 0]);
        let (heir, state) = q.turn(0, GO, 0, limit).unwrap();
        (heir == 2).then_some((q, state))
    };
    let (q, state) = (0..20).find_map(first).expect("a turn within the limit");
    assert_eq!(q.secondary_of(state), [1]);
    std::thread::sleep(std::time::Duration::from_millis(11));
    assert_eq!(q.turn(2, state, 0, limit), Some((1, GO)));
}
