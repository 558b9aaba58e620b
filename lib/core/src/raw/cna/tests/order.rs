//! Which waiter is next, and what both queues look like afterwards.

use super::*;

#[test]
fn fifo_passes_to_the_next_whatever_its_domain() {
    let q = Queue::new(&[0, 1, 0, 1]);
    assert_eq!(q.turn(0, GO, 0, FIFO), Some((1, GO)));
    assert_eq!(q.primary_from(1), [1, 2, 3]);
}

#[test]
fn the_last_waiter_empties_the_queue() {
    let q = Queue::new(&[0]);
    assert_eq!(q.turn(0, GO, 0, FULL), None);
    assert_eq!(q.tail.load(SeqCst), 0);
}

#[test]
fn full_scan_sets_aside_all_before_the_first_local_waiter() {
    let q = Queue::new(&[0, 1, 2, 0, 1]);
    let (heir, state) = q.turn(0, GO, 0, FULL).unwrap();
    assert_eq!(heir, 3);
    assert_eq!(q.primary_from(3), [3, 4]);
    assert_eq!(q.secondary_of(state), [1, 2]);
}

#[test]
fn waiters_set_aside_later_join_the_end_of_the_secondary_queue() {
    let q = Queue::new(&[0, 1, 0, 2, 0, 1]);
    let (heir, state) = q.turn(0, GO, 0, FULL).unwrap();
    assert_eq!((heir, q.secondary_of(state)), (2, vec![1]));
    let (heir, state) = q.turn(2, state, 0, FULL).unwrap();
    assert_eq!((heir, q.secondary_of(state)), (4, vec![1, 3]));
    assert_eq!(q.primary_from(4), [4, 5]);
}

#[test]
fn without_local_waiters_the_secondary_queue_goes_in_front() {
    let q = Queue::new(&[0, 1, 0, 2, 1]);
    let (heir, state) = q.turn(0, GO, 0, FULL).unwrap();
    assert_eq!((heir, q.secondary_of(state)), (2, vec![1]));
    let (heir, state) = q.turn(2, state, 0, FULL).unwrap();
    assert_eq!((heir, state), (1, GO));
    assert_eq!(q.primary_from(1), [1, 3, 4]);
}

#[test]
fn no_local_waiters_and_no_secondary_queue_is_plain_mcs() {
    let q = Queue::new(&[0, 1, 2]);
    assert_eq!(q.turn(0, GO, 0, FULL), Some((1, GO)));
    assert_eq!(q.primary_from(1), [1, 2]);
}

#[test]
fn the_secondary_queue_becomes_the_primary_one_when_that_is_empty() {
    let mut q = Queue::new(&[0, 1, 1, 0]);
    let (heir, state) = q.turn(0, GO, 0, FULL).unwrap();
    assert_eq!((heir, q.secondary_of(state)), (3, vec![1, 2]));
    assert_eq!(q.turn(3, state, 0, FULL), Some((1, GO)));
    assert_eq!(q.primary_from(1), [1, 2]);
    assert_eq!(q.tail.load(SeqCst), q.ids[2].encode());
    // The last waiter has no link, so newcomers can link themselves.
    q.arrive(0);
    assert_eq!(q.primary_from(1), [1, 2, 4]);
}

#[test]
fn a_newcomer_while_the_queue_is_emptied_is_not_lost() {
    let mut q = Queue::new(&[0, 1, 1, 0]);
    let (_, state) = q.turn(0, GO, 0, FULL).unwrap();
    let mut head = q.head(3, state, 0, FULL);
    head.pre_scan();
    // The newcomer has swapped the tail, but not linked itself, when the head wants to make the
    // secondary queue the primary one.
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
fn the_post_scan_finds_local_waiters_that_came_after_the_pre_scan() {
    let mut q = Queue::new(&[0, 1, 2]);
    let mut head = q.head(0, GO, 0, FULL);
    head.pre_scan();
    assert_eq!(
        head.search,
        Search::UpTo(q.ids[2]),
        "it stopped at the last waiter"
    );
    let local = q.arrive(0);
    let (heir, state) = q.pass(head).unwrap();
    assert_eq!((heir, q.secondary_of(state)), (local, vec![1, 2]));
}
