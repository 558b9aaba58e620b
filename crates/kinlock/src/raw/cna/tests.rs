//! Hand-offs on queues built by hand: who comes next, and what both queues look like afterwards.

use super::*;
use crate::config::{LocalLimit, Scan};
use crate::platform::Native;
use crate::raw::waiter::{ABANDONED, Slot, WAITING};
use core::sync::atomic::{AtomicU16, AtomicU32};

#[derive(Clone, Copy, Debug)]
struct Sound;
impl Config for Sound {
    fn tuning() -> Tuning {
        unreachable!("tests pass their tuning to the head")
    }
}

#[derive(Clone, Copy, Debug)]
struct Published;
impl Config for Published {
    const AS_PUBLISHED: bool = true;
    fn tuning() -> Tuning {
        Sound::tuning()
    }
}

#[derive(Clone, Copy, Debug)]
struct Lossy;
impl Config for Lossy {
    const FAULT: Fault = Fault::LostSplice;
    fn tuning() -> Tuning {
        Sound::tuning()
    }
}

const FULL: Tuning = Tuning {
    reorder: true,
    scan: Scan::Full,
    limit: LocalLimit::Count { log2: 16 },
    ..Tuning::DEFAULT
};
const INCREMENTAL: Tuning = Tuning {
    scan: Scan::Incremental,
    ..FULL
};
const FIFO: Tuning = Tuning {
    reorder: false,
    ..FULL
};
const ALWAYS_FLUSH: Tuning = Tuning {
    limit: LocalLimit::Count { log2: 0 },
    ..FULL
};

/// Every other waiter is guarded, and stays so however it is moved.
fn is_guarded(waiter: usize) -> bool {
    waiter % 2 == 1
}

/// A queue of waiters, each in the domain given; the first is the head.
struct Queue {
    table: &'static Waiters<Native>,
    ids: Vec<Id>,
    tail: AtomicU16,
}

impl Queue {
    fn new(domains: &[u16]) -> Self {
        let slots = (0..64).map(|_| Slot::new()).collect::<Vec<_>>().leak();
        let claimed = vec![AtomicU32::new(0), AtomicU32::new(0)].leak();
        let table: &'static Waiters<Native> = Box::leak(Box::new(Waiters::new(
            slots,
            claimed,
            Box::leak(Box::new(AtomicU32::new(0))),
        )));
        let mut queue = Queue {
            table,
            ids: Vec::new(),
            tail: AtomicU16::new(0),
        };
        for &domain in domains {
            queue.arrive(domain);
        }
        queue
    }

    /// A newcomer queues.
    fn arrive(&mut self, domain: u16) -> usize {
        // One node of a slot each: an odd slot number, so that ids are not in step with positions.
        let id = Id::decode(((self.ids.len() as u16 + 1) * 2 + 1) << 2).unwrap();
        self.table.node(id).prepare(domain, false);
        let previous = self.tail.swap(id.encode(), SeqCst);
        if let Some(previous) = Id::decode(previous) {
            let link = Link::new(id, is_guarded(self.ids.len()), domain);
            self.table.node(previous).next.store(link.encode(), Release);
        }
        self.ids.push(id);
        self.ids.len() - 1
    }

    fn head<C: Config>(
        &self,
        waiter: usize,
        state: u32,
        domain: u16,
        tuning: Tuning,
    ) -> Head<Native, C> {
        Head::new(self.table, self.ids[waiter], state, tuning, domain)
    }

    fn position(&self, node: &Node<Native>) -> usize {
        self.ids
            .iter()
            .position(|&id| core::ptr::eq(self.table.node(id), node))
            .unwrap()
    }

    /// Passes headship as a lock would, and returns who got it (if anybody) and with which state.
    fn pass<C: Config>(&self, mut head: Head<Native, C>) -> Option<(usize, u32)> {
        let mut granted = None;
        head.pass(&self.tail, |node, go, look| {
            assert_eq!(
                look,
                is_guarded(self.position(node)),
                "a link lost or gained its guard"
            );
            let there = node.state.swap(go, AcqRel) != ABANDONED;
            if there {
                assert!(granted.is_none(), "headship was passed twice");
                granted = Some((self.position(node), go));
            }
            there
        });
        granted
    }

    fn index(&self, id: Id) -> usize {
        self.ids.iter().position(|&i| i == id).unwrap()
    }

    /// The primary queue from `waiter` on.
    fn primary_from(&self, waiter: usize) -> Vec<usize> {
        let mut found = vec![waiter];
        let mut id = self.ids[waiter];
        while let Some(next) = Link::decode(self.table.node(id).next.load(Acquire)) {
            let next = next.id();
            found.push(self.index(next));
            assert!(
                found.len() <= self.ids.len(),
                "the primary queue is a circle: {found:?}"
            );
            id = next;
        }
        found
    }

    /// The secondary queue that this state names, from its head on.
    fn secondary_of(&self, state: u32) -> Vec<usize> {
        let Some(last) = secondary_in(state) else {
            return vec![];
        };
        let mut found = Vec::new();
        let mut id = last;
        loop {
            id = Link::decode(self.table.node(id).next.load(Acquire))
                .expect("the secondary queue is open")
                .id();
            found.push(self.index(id));
            if id == last {
                return found;
            }
            assert!(
                found.len() <= self.ids.len(),
                "the secondary queue does not close: {found:?}"
            );
        }
    }

    /// One turn of `waiter` at the head: look for kin, then pass.
    fn turn<C: Config>(
        &self,
        waiter: usize,
        state: u32,
        domain: u16,
        tuning: Tuning,
    ) -> Option<(usize, u32)> {
        let mut head = self.head::<C>(waiter, state, domain, tuning);
        head.look_for_kin();
        self.pass(head)
    }
}

#[test]
fn fifo_passes_to_the_next_whatever_its_domain() {
    let q = Queue::new(&[0, 1, 0, 1]);
    assert_eq!(q.turn::<Sound>(0, GO, 0, FIFO), Some((1, GO)));
    assert_eq!(q.primary_from(1), [1, 2, 3]);
}

#[test]
fn the_last_waiter_empties_the_queue() {
    let q = Queue::new(&[0]);
    assert_eq!(q.turn::<Sound>(0, GO, 0, FULL), None);
    assert_eq!(q.tail.load(SeqCst), 0);
}

#[test]
fn full_scan_sets_aside_everybody_before_the_first_kin() {
    let q = Queue::new(&[0, 1, 2, 0, 1]);
    let (heir, state) = q.turn::<Sound>(0, GO, 0, FULL).unwrap();
    assert_eq!(heir, 3);
    assert_eq!(q.primary_from(3), [3, 4]);
    assert_eq!(q.secondary_of(state), [1, 2]);
}

#[test]
fn waiters_set_aside_later_join_the_end_of_the_secondary_queue() {
    let q = Queue::new(&[0, 1, 0, 2, 0, 1]);
    let (heir, state) = q.turn::<Sound>(0, GO, 0, FULL).unwrap();
    assert_eq!((heir, q.secondary_of(state)), (2, vec![1]));
    let (heir, state) = q.turn::<Sound>(2, state, 0, FULL).unwrap();
    assert_eq!((heir, q.secondary_of(state)), (4, vec![1, 3]));
    assert_eq!(q.primary_from(4), [4, 5]);
}

#[test]
fn a_broken_splice_loses_waiters_here() {
    let q = Queue::new(&[0, 1, 0, 2, 0, 1]);
    let (_, state) = q.turn::<Lossy>(0, GO, 0, FULL).unwrap();
    let (_, state) = q.turn::<Lossy>(2, state, 0, FULL).unwrap();
    assert_eq!(
        q.secondary_of(state),
        [3],
        "waiter 1 is in no queue any more"
    );
}

#[test]
fn without_kin_the_secondary_queue_goes_in_front() {
    let q = Queue::new(&[0, 1, 0, 2, 1]);
    let (heir, state) = q.turn::<Sound>(0, GO, 0, FULL).unwrap();
    assert_eq!((heir, q.secondary_of(state)), (2, vec![1]));
    let (heir, state) = q.turn::<Sound>(2, state, 0, FULL).unwrap();
    assert_eq!((heir, state), (1, GO));
    assert_eq!(q.primary_from(1), [1, 3, 4]);
}

#[test]
fn no_kin_and_no_secondary_queue_is_plain_mcs() {
    let q = Queue::new(&[0, 1, 2]);
    assert_eq!(q.turn::<Sound>(0, GO, 0, FULL), Some((1, GO)));
    assert_eq!(q.primary_from(1), [1, 2]);
}

#[test]
fn the_secondary_queue_becomes_the_primary_one_when_that_is_empty() {
    let mut q = Queue::new(&[0, 1, 1, 0]);
    let (heir, state) = q.turn::<Sound>(0, GO, 0, FULL).unwrap();
    assert_eq!((heir, q.secondary_of(state)), (3, vec![1, 2]));
    assert_eq!(q.turn::<Sound>(3, state, 0, FULL), Some((1, GO)));
    assert_eq!(q.primary_from(1), [1, 2]);
    assert_eq!(q.tail.load(SeqCst), q.ids[2].encode());
    // Newcomers find an open end.
    q.arrive(0);
    assert_eq!(q.primary_from(1), [1, 2, 4]);
}

#[test]
fn a_newcomer_while_the_queue_is_emptied_is_not_lost() {
    let mut q = Queue::new(&[0, 1, 1, 0]);
    let (_, state) = q.turn::<Sound>(0, GO, 0, FULL).unwrap();
    let mut head = q.head::<Sound>(3, state, 0, FULL);
    head.look_for_kin();
    // The newcomer has swapped the tail, but not linked itself, when the head tries to make the secondary queue the primary one.
    let late = q.ids.len();
    let id = Id::decode(63 << 2).unwrap();
    q.table.node(id).prepare(0, false);
    q.tail.store(id.encode(), SeqCst);
    assert_eq!(head.empty_primary(&q.tail), None);
    q.ids.push(id);
    assert_eq!(q.secondary_of(state), [1, 2], "the circle is closed again");
    let link = Link::new(id, is_guarded(late), 0);
    q.table.node(q.ids[3]).next.store(link.encode(), Release);
    assert_eq!(q.pass(head), Some((late, state)));
    assert_eq!(q.secondary_of(state), [1, 2]);
}

#[test]
fn the_post_scan_finds_kin_that_came_after_the_pre_scan() {
    let mut q = Queue::new(&[0, 1, 2]);
    let mut head = q.head::<Sound>(0, GO, 0, FULL);
    head.look_for_kin();
    assert_eq!(
        head.search,
        Search::UpTo(q.ids[2]),
        "it stopped at the last waiter"
    );
    let kin = q.arrive(0);
    let (heir, state) = q.pass(head).unwrap();
    assert_eq!((heir, q.secondary_of(state)), (kin, vec![1, 2]));
}

/// A head of domain 0 with waiters of domain 1 set aside, after so many hand-offs within its own, that has looked for kin.
fn dry<C: Config>(q: &Queue, handoffs: u32, tuning: Tuning) -> Head<Native, C> {
    let (heir, state) = q.turn::<C>(0, GO, 0, FULL).unwrap();
    q.table.node(q.ids[heir]).run.store(handoffs, Relaxed);
    let mut head = q.head::<C>(heir, state, 0, tuning);
    head.look_for_kin();
    head
}

#[test]
fn a_holder_waits_for_kin_only_where_there_were_some() {
    let domains = [0, 1, 0, 1];
    let after = |handoffs| dry::<Sound>(&Queue::new(&domains), handoffs, FULL).wants_kin();
    assert!(!after(LINGER_RUN - 1));
    assert!(after(LINGER_RUN));
    // That the first set aside has been roused is no number of hand-offs.
    assert!(!after(ROUSED_BEFORE));
    assert!(after(ROUSED_BEFORE | LINGER_RUN));
    let wants = |tuning| dry::<Sound>(&Queue::new(&domains), LINGER_RUN, tuning).wants_kin();
    assert!(!wants(INCREMENTAL));
    assert!(!wants(ALWAYS_FLUSH));
    // The larger limit has hardly begun to run, a smaller one has.
    let limited = |log2| Tuning {
        limit: LocalLimit::Count { log2 },
        ..FULL
    };
    assert!(wants(limited(10)) && !wants(limited(9)));
    // Nobody is set aside who would be next instead.
    let q = Queue::new(&[0, 1]);
    assert!(!q.head::<Sound>(0, GO, 0, FULL).wants_kin());
}

#[test]
fn kin_that_a_holder_waits_for_come_first() {
    let mut q = Queue::new(&[0, 1, 0, 1]);
    let mut head = dry::<Sound>(&q, LINGER_RUN, FULL);
    let mut pauses = 0;
    head.scan_while(|| {
        pauses += 1;
        q.arrive((pauses < 3) as u16);
        true
    });
    assert_eq!(pauses, 3, "the third newcomer is kin");
    let (heir, state) = q.pass(head).unwrap();
    assert_eq!((heir, q.secondary_of(state)), (6, vec![1, 3, 4, 5]));
}

#[test]
fn a_holder_that_waits_for_kin_in_vain_goes_to_another_domain() {
    let q = Queue::new(&[0, 1, 0, 1]);
    let mut head = dry::<Sound>(&q, LINGER_RUN, FULL);
    head.wait_for_kin();
    assert_eq!(q.pass(head), Some((1, GO)));
    assert_eq!(q.primary_from(1), [1, 3]);
}

#[test]
fn as_published_nobody_waits_for_kin() {
    // Kin that have come are left to the hand-off.
    let mut q = Queue::new(&[0, 1, 0, 1]);
    let mut head = dry::<Published>(&q, LINGER_RUN, FULL);
    q.arrive(0);
    head.wait_for_kin();
    assert!(matches!(head.search, Search::UpTo(_)));
    let mut head = dry::<Sound>(&Queue::new(&[0, 1, 0, 1]), LINGER_RUN, FULL);
    head.wait_for_kin();
    assert!(matches!(head.search, Search::UpTo(_)));
}

#[test]
fn as_published_domains_are_read_in_nodes() {
    let q = Queue::new(&[0, 1, 0]);
    // What the links say is not looked at.
    q.table.node(q.ids[1]).domain.store(0, Relaxed);
    assert_eq!(q.turn::<Published>(0, GO, 0, FULL), Some((1, GO)));
    let q = Queue::new(&[0, 1, 0]);
    q.table.node(q.ids[1]).domain.store(0, Relaxed);
    assert_eq!(q.turn::<Sound>(0, GO, 0, FULL).unwrap().0, 2);
}

#[test]
fn a_scan_stops_at_a_priority_waiter() {
    let q = Queue::new(&[0, 1, PRIORITY, 0]);
    let (heir, state) = q.turn::<Sound>(0, GO, 0, FULL).unwrap();
    assert_eq!((heir, q.secondary_of(state)), (2, vec![1]));
    assert_eq!(q.primary_from(2), [2, 3]);
}

#[test]
fn a_priority_waiter_that_is_next_gets_the_lock_from_another_domain() {
    for tuning in [FULL, INCREMENTAL] {
        let q = Queue::new(&[0, PRIORITY, 0]);
        assert_eq!(q.turn::<Sound>(0, GO, 0, tuning), Some((1, GO)));
    }
}

#[test]
fn the_count_limit_flushes_the_secondary_queue() {
    let q = Queue::new(&[0, 1, 0, 0, 0]);
    let (heir, state) = q.turn::<Sound>(0, GO, 0, ALWAYS_FLUSH).unwrap();
    assert_eq!((heir, q.secondary_of(state)), (2, vec![1]));
    // One local hand-off has been made: 2^0.
    assert_eq!(q.turn::<Sound>(2, state, 0, ALWAYS_FLUSH), Some((1, GO)));
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
    while let Some((next, s)) = q.turn::<Sound>(waiter, state, 0, limit) {
        order.push(next);
        (waiter, state) = (next, s);
    }
    assert_eq!(order, [2, 3, 1, 4, 5]);
}

#[test]
fn the_time_limit_flushes_the_secondary_queue() {
    let limit = Tuning {
        limit: LocalLimit::Time { ms: 1 },
        ..FULL
    };
    let q = Queue::new(&[0, 1, 0, 0]);
    let (heir, state) = q.turn::<Sound>(0, GO, 0, limit).unwrap();
    assert_eq!((heir, q.secondary_of(state)), (2, vec![1]));
    std::thread::sleep(std::time::Duration::from_millis(2));
    assert_eq!(q.turn::<Sound>(2, state, 0, limit), Some((1, GO)));
}

#[test]
fn the_incremental_scan_sets_one_aside_and_hands_the_preference_on() {
    let q = Queue::new(&[0, 1, 2, 1, 0, 1]);
    let (heir, state) = q.turn::<Sound>(0, GO, 0, INCREMENTAL).unwrap();
    // Waiter 2 is foreign too, and inherits the preference for domain 0.
    assert_eq!((heir, q.secondary_of(state)), (2, vec![1]));
    let (heir, state) = q.turn::<Sound>(2, state, 2, INCREMENTAL).unwrap();
    assert_eq!((heir, q.secondary_of(state)), (4, vec![1, 3]));
    // Only waiter 5 is left: it cannot be set aside, and the secondary queue waits for the limit.
    let (heir, state) = q.turn::<Sound>(4, state, 0, INCREMENTAL).unwrap();
    assert_eq!((heir, q.secondary_of(state)), (5, vec![1, 3]));
    assert_eq!(q.turn::<Sound>(5, state, 1, INCREMENTAL), Some((1, GO)));
}

#[test]
fn shuffle_reduction_mostly_leaves_a_queue_alone_but_keeps_reordering_once_begun() {
    let lazy = Tuning {
        shuffle_reduction: true,
        ..FULL
    };
    let reordered = (0..256)
        .filter(|_| {
            Queue::new(&[0, 1, 0])
                .turn::<Sound>(0, GO, 0, lazy)
                .unwrap()
                .0
                == 2
        })
        .count();
    assert!(
        reordered < 64,
        "{reordered} of 256 queues were reordered; 1 in 128 was asked for"
    );
    let q = Queue::new(&[0, 1, 0, 2, 0]);
    let (_, state) = q.turn::<Sound>(0, GO, 0, FULL).unwrap();
    let (heir, state) = q.turn::<Sound>(2, state, 0, lazy).unwrap();
    assert_eq!((heir, q.secondary_of(state)), (4, vec![1, 3]));
}

#[test]
fn abandoned_waiters_are_passed_over_wherever_they_stand() {
    for abandoned in [&[1][..], &[1, 2], &[2], &[3], &[1, 2, 3]] {
        let q = Queue::new(&[0, 0, 0, 0]);
        for &i in abandoned {
            q.table.node(q.ids[i]).state.store(ABANDONED, SeqCst);
        }
        let mut order = vec![];
        let (mut waiter, mut state) = (0, GO);
        while let Some((next, s)) = q.turn::<Sound>(waiter, state, 0, FULL) {
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
    let (_, state) = q.turn::<Sound>(0, GO, 0, FULL).unwrap();
    q.table.node(q.ids[1]).state.store(ABANDONED, SeqCst);
    assert_eq!(q.turn::<Sound>(3, state, 0, FULL), Some((2, GO)));
    assert_eq!(q.turn::<Sound>(2, GO, 1, FULL), None);
}

#[test]
fn only_sleeping_kin_are_woken_ahead_and_only_if_the_next_one_sleeps() {
    let woken = |asleep: &[usize], most: usize| {
        let q = Queue::new(&[0, 0, 0, 0, 0, 1, 0]);
        for &i in asleep {
            q.table.node(q.ids[i]).state.store(PARKED, SeqCst);
        }
        let woken = core::cell::RefCell::new(vec![]);
        q.head::<Sound>(0, GO, 0, FULL)
            .wake_ahead(most, |node| woken.borrow_mut().push(q.position(node)));
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
    let mut roused = vec![];
    // The first head sets waiters 1 and 2 aside.
    while waiter != 1 {
        let mut head = q.head::<Sound>(waiter, state, 0, four);
        head.look_for_kin();
        head.rouse_ahead(|node| roused.push((waiter, q.position(node))));
        (waiter, state) = q.pass(head).unwrap();
    }
    // Waiter 5 is the last but one before the limit.
    assert_eq!(roused, [(5, 1)]);
}

#[test]
fn an_heir_that_was_seen_drowsy_is_looked_at() {
    for drowsy in [false, true] {
        let q = Queue::new(&[0, 0, 0]);
        let heir = q.table.node(q.ids[2]);
        heir.drowsy.store(drowsy as u8, SeqCst);
        let mut head = q.head::<Sound>(1, GO, 0, FULL);
        head.wake_ahead(8, |_| unreachable!("it does not sleep"));
        let mut looked = None;
        head.pass(&q.tail, |_, _, look| {
            looked = Some(look);
            true
        });
        assert_eq!(looked, Some(drowsy));
    }
}

/// Any mixture of domains, priorities, newcomers and abandonment: everybody who stays gets headship exactly once.
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
            scan: if pick(2) == 0 {
                Scan::Full
            } else {
                Scan::Incremental
            },
            limit: LocalLimit::Count {
                log2: pick(5) as u8,
            },
            shuffle_reduction: pick(4) == 0,
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
            let mut head = q.head::<Sound>(waiter, state, domain, tuning);
            head.look_for_kin();
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
