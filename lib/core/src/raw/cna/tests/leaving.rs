//! Waiters that have left, that sleep, or that are about to; and random mixtures of these.

use super::*;

#[test]
fn abandoned_waiters_are_passed_over_wherever_they_stand() {
    for abandoned in [&[1][..], &[1, 2], &[2], &[3], &[1, 2, 3]] {
        let q = Queue::new(&[0, 0, 0, 0]);
        for &i in abandoned {
            q.table.node(q.ids[i]).state.store(ABANDONED, SeqCst);
        }
        let mut order = vec![];
        let (mut waiter, mut state) = (0, GO);
        while let Some((next, s)) = q.turn(waiter, state, 0, FULL) {
            order.push(next);
            (waiter, state) = (next, s);
        }
        let expected: Vec<usize> = (1..4).filter(|i| !abandoned.contains(i)).collect();
        assert_eq!(order, expected);
        assert_eq!(q.tail.load(SeqCst), 0, "the queue ends empty");
    }
}

#[test]
fn an_abandoned_waiter_of_the_secondary_queue_is_passed_over() {
    let q = Queue::new(&[0, 1, 1, 0]);
    let (_, state) = q.turn(0, GO, 0, FULL).unwrap();
    q.table.node(q.ids[1]).state.store(ABANDONED, SeqCst);
    assert_eq!(q.turn(3, state, 0, FULL), Some((2, GO)));
    assert_eq!(q.turn(2, GO, 1, FULL), None);
}

#[test]
fn a_head_does_not_wait_for_a_newcomer_that_has_not_linked_itself() {
    // The head is alone, or passes over an abandoned waiter.
    for abandoned in [&[][..], &[1]] {
        let mut q = Queue::new(&[0, 0][..=abandoned.len()]);
        for &i in abandoned {
            q.table.node(q.ids[i]).state.store(ABANDONED, SeqCst);
        }
        let (before, link) = q.swap_tail(0).unwrap();
        assert_eq!(q.turn(0, GO, 0, FULL), None);
        assert_ne!(q.tail.load(SeqCst), 0);
        assert!(q.table.link(before, link), "the newcomer is head");
        let newcomer = q.ids.len() - 1;
        assert_eq!(q.turn(newcomer, GO, 0, FULL), None);
        assert_eq!(q.tail.load(SeqCst), 0, "the queue ends empty");
    }
}

#[test]
fn waiters_set_aside_do_not_wait_for_a_late_newcomer_either() {
    for links_itself_first in [true, false] {
        let mut q = Queue::new(&[0, 1, 1, 0]);
        let (_, state) = q.turn(0, GO, 0, FULL).unwrap();
        let (before, link) = q.swap_tail(0).unwrap();
        assert_eq!(q.turn(3, state, 0, FULL), Some((1, GO)));
        if links_itself_first {
            assert!(!q.table.link(before, link));
        }
        assert_eq!(q.turn(1, GO, 1, FULL), Some((2, GO)));
        // The head comes to the node of waiter 3.
        let next = q.turn(2, GO, 1, FULL);
        assert_eq!(next, links_itself_first.then_some((4, GO)));
        assert!(links_itself_first || q.table.link(before, link), "head");
        assert_eq!(q.turn(4, GO, 0, FULL), None);
        assert_eq!(q.tail.load(SeqCst), 0, "the queue ends empty");
    }
}

#[test]
fn a_head_comes_back_to_its_own_node_if_all_set_aside_have_left() {
    let mut q = Queue::new(&[0, 1, 0]);
    let (_, state) = q.turn(0, GO, 0, FULL).unwrap();
    q.table.node(q.ids[1]).state.store(ABANDONED, SeqCst);
    let (before, link) = q.swap_tail(0).unwrap();
    assert_eq!(q.turn(2, state, 0, FULL), None);
    assert!(q.table.link(before, link), "the newcomer is head");
    assert_eq!(q.turn(3, GO, 0, FULL), None);
}

#[test]
fn only_sleeping_local_waiters_are_roused_ahead_and_only_if_the_next_one_sleeps() {
    let woken = |asleep: &[usize], most: usize| {
        let q = Queue::new(&[0, 0, 0, 0, 0, 1, 0]);
        for &i in asleep {
            q.table.node(q.ids[i]).state.store(PARKED, SeqCst);
        }
        let woken = core::cell::RefCell::new(vec![]);
        q.head(0, GO, 0, FULL)
            .rouse_ahead(most, |node| woken.borrow_mut().push(q.position(node)));
        woken.into_inner()
    };
    assert_eq!(woken(&[1, 3, 4, 5, 6], 8), [1, 3, 4]);
    assert_eq!(woken(&[1, 2, 3, 4], 2), [1, 2]);
    assert_eq!(woken(&[2, 3, 4], 8), []);
    assert_eq!(woken(&[], 8), []);
}

#[test]
fn the_first_of_those_set_aside_is_roused_once_when_the_limit_is_near() {
    let four = Tuning {
        limit: LocalLimit::Count { log2: 2 },
        ..FULL
    };
    let q = Queue::new(&[0, 1, 2, 0, 0, 0, 0]);
    let (mut waiter, mut state) = (0, GO);
    let roused = core::cell::RefCell::new(vec![]);
    // The first head sets waiters 1 and 2 aside.
    while waiter != 1 {
        let mut head = q.head(waiter, state, 0, four);
        head.pre_scan();
        head.rouse_ahead(0, |node| {
            roused.borrow_mut().push((waiter, q.position(node)))
        });
        (waiter, state) = q.pass(head).unwrap();
    }
    // Waiter 5 is the second to last head before the limit.
    assert_eq!(roused.into_inner(), [(5, 1)]);
}

#[test]
fn an_heir_that_was_seen_drowsy_is_checked() {
    for drowsy in [false, true] {
        let q = Queue::new(&[0, 0, 0]);
        let heir = q.table.node(q.ids[2]);
        heir.drowsy.store(drowsy as u8, SeqCst);
        let mut head = q.head(1, GO, 0, FULL);
        head.rouse_ahead(8, |_| unreachable!("it does not sleep"));
        let mut looked = None;
        let place = core::mem::ManuallyDrop::new(Waiter::new(q.table, head.place, false));
        head.leave(&q.tail, &place, |_, _, look| {
            looked = Some(look);
            true
        });
        assert_eq!(looked, Some(drowsy));
    }
}

/// Any mixture of domains, priorities, newcomers and abandonment: each waiter that stays gets
/// headship exactly once.
#[test]
fn nobody_is_lost_or_served_twice_in_random_queues() {
    let mut random = 0x2545_f491u32;
    let mut pick = move |n: u32| {
        random ^= random << 13;
        random ^= random >> 17;
        random ^= random << 5;
        random % n
    };
    for round in 0..if cfg!(miri) { 10 } else { 2_000 } {
        let tuning = Tuning {
            reorder: pick(8) != 0,
            limit: LocalLimit::Count {
                log2: pick(5) as u8,
            },
            ..FULL
        };
        let domain_of = |r: u32| if r == 9 { PRIORITY } else { (r % 3) as u16 };
        let mut q = Queue::new(&[0]);
        for _ in 0..pick(12) {
            q.arrive(domain_of(pick(10)));
        }
        let mut gone = [false; 64];
        let mut served = vec![0];
        let (mut waiter, mut state) = (0, GO);
        loop {
            let domain = q.table.node(q.ids[waiter]).domain.load(Relaxed) % 3;
            let mut head = q.head(waiter, state, domain, tuning);
            head.pre_scan();
            if q.ids.len() < 24 && pick(3) == 0 {
                q.arrive(domain_of(pick(10)));
            }
            for (i, &id) in q.ids.iter().enumerate() {
                let n = q.table.node(id);
                if !served.contains(&i) && pick(12) == 0 && n.state.load(Relaxed) == WAITING {
                    n.state.store(ABANDONED, SeqCst);
                    gone[i] = true;
                }
            }
            let Some((next, s)) = q.pass(head) else { break };
            served.push(next);
            (waiter, state) = (next, s);
        }
        served.sort();
        let expected: Vec<usize> = (0..q.ids.len()).filter(|&i| !gone[i]).collect();
        assert_eq!(served, expected, "round {round}, {tuning:?}");
    }
}
