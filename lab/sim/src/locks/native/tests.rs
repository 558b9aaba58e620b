//! Each step on a prepared state, then whole runs.

use super::cna::{Order, Scan};
use super::{GO, LOCKED, Native, PENDING, TAIL, WAIT, name};
use crate::locks::Lock;
use crate::machine;
use crate::platform::{Sim, place};
use crate::world::{Placement, Setup, run};
use kinlock_core::config::Tuning;
use kinlock_core::platform::{Atomic, Ordering::Relaxed, Platform};
use kinlock_linux::topology::DomainKind;
use std::cell::Cell;

/// Runs `body` on each of `threads` threads, with a lock of `nodes` nodes that all threads share.
fn play_with<const NUMA: bool>(
    threads: usize,
    nodes: usize,
    order: Order,
    body: impl Fn(&Native<NUMA>, usize) + Copy + 'static,
) {
    let setup = Setup {
        machine: machine::load("haswell-ex-4s").expect("it is built in"),
        threads,
        placement: Placement::Compact,
        tuning: Tuning::DEFAULT,
        domain: DomainKind::Node,
        seed: 1,
        cpus: None,
        start: 0,
        end: 0,
        limit: 1 << 40,
        max_accesses: u64::MAX,
        disturbance: None,
        patience: u64::MAX,
        factors: Vec::new(),
        trace: None,
    };
    let prepare = || -> &'static Native<NUMA> { place(Native::new(nodes, order)) };
    let body = move |lock: &&'static Native<NUMA>, me| body(lock, me);
    let (_, ended, ()) = run(&setup, prepare, body, |_, _| ());
    ended.expect("all threads end");
}

/// The same with a node for each thread.
fn play<const NUMA: bool>(threads: usize, body: impl Fn(&Native<NUMA>, usize) + Copy + 'static) {
    play_with(threads, threads, Order::V10, body);
}

/// Runs `body` on one thread, with a lock whose queue has waiters of these NUMA nodes. The first
/// one is the head, number 0.
fn queue(domains: &'static [u32], body: impl Fn(&Native<true>) + Copy + 'static) {
    queue_with(domains, Order::V10, body);
}

/// The same with another order.
fn queue_with(
    domains: &'static [u32],
    order: Order,
    body: impl Fn(&Native<true>) + Copy + 'static,
) {
    play_with(1, domains.len(), order, move |lock, _| {
        for (i, &domain) in domains.iter().enumerate() {
            lock.nodes[i].domain.store(domain, Relaxed);
            let next = if i + 1 < domains.len() {
                name(i + 1)
            } else {
                0
            };
            lock.nodes[i].next.store(next, Relaxed);
        }
        lock.nodes[0].flag.store(GO, Relaxed);
        lock.word.store(name(domains.len() - 1), Relaxed);
        body(lock);
    });
}

/// The names from `first` on, up to the end or back to it.
fn chain(lock: &Native<true>, first: u32) -> Vec<usize> {
    let mut names = vec![];
    let mut at = first;
    while at != 0 && !names.contains(&((at >> 16) as usize - 1)) {
        names.push((at >> 16) as usize - 1);
        at = lock.node(at).next.load(Relaxed);
    }
    names
}

fn word<const NUMA: bool>(lock: &Native<NUMA>) -> u32 {
    lock.word.load(Relaxed)
}

#[test]
fn a_free_lock_is_taken_and_released_through_the_locked_byte() {
    play::<false>(1, |lock, me| {
        lock.lock(me);
        assert_eq!(word(lock), LOCKED);
        lock.unlock(me);
        assert_eq!(word(lock), 0);
    });
}

#[test]
fn unlock_leaves_the_waiters_in_the_word() {
    play::<false>(1, |lock, me| {
        lock.word.store(name(7) | PENDING | LOCKED, Relaxed);
        lock.unlock(me);
        assert_eq!(word(lock), name(7) | PENDING);
    });
}

#[test]
fn the_only_waiter_of_a_lock_that_was_freed_takes_it_without_a_node() {
    play::<false>(1, |lock, _| {
        assert!(lock.wait_alone());
        assert_eq!(word(lock), LOCKED);
    });
}

#[test]
fn pending_is_undone_if_others_queue_and_left_if_it_was_set() {
    play::<false>(1, |lock, _| {
        lock.word.store(name(3) | LOCKED, Relaxed);
        assert!(!lock.wait_alone());
        assert_eq!(word(lock), name(3) | LOCKED);
        lock.word.store(PENDING | LOCKED, Relaxed);
        assert!(!lock.wait_alone());
        assert_eq!(word(lock), PENDING | LOCKED);
    });
}

#[test]
fn a_newcomer_waits_for_a_hand_over_a_bounded_time_only() {
    // Thread 0 sees pending alone forever, and queues in the end; thread 1 then ends the
    // hand-over.
    play::<false>(2, |lock, me| {
        if me == 0 {
            lock.word.store(PENDING, Relaxed);
            lock.lock_contended(me, PENDING);
            assert_eq!(word(lock), LOCKED);
        } else {
            Sim::wait(&lock.word, Relaxed, |word| word & TAIL != 0);
            lock.word.store_part(super::PENDING_BYTE, 0);
        }
    });
}

#[test]
fn a_head_that_is_last_empties_the_queue() {
    play::<false>(1, |lock, me| {
        lock.word.store(name(me), Relaxed);
        lock.take_as_head(me);
        assert_eq!(word(lock), LOCKED);
    });
}

#[test]
fn a_head_with_a_successor_sets_the_locked_byte_and_the_successors_flag() {
    play::<false>(2, |lock, me| {
        if me != 0 {
            return;
        }
        lock.nodes[0].next.store(name(1), Relaxed);
        lock.word.store(name(1), Relaxed);
        lock.take_as_head(0);
        assert_eq!(word(lock), name(1) | LOCKED);
        assert_eq!(lock.nodes[1].flag.load(Relaxed), GO);
    });
}

#[test]
fn a_scan_sets_aside_those_before_the_first_of_the_same_node() {
    queue(&[2, 0, 1, 2, 0], |lock| {
        assert_eq!(lock.scan_early(0), Scan::Kin);
        assert_eq!(chain(lock, name(0)), [0, 3, 4]);
        let last = lock.nodes[0].flag.load(Relaxed);
        assert_eq!(last, name(2));
        // A circle: the last one leads to the first.
        assert_eq!(chain(lock, last), [2, 1]);
    });
}

#[test]
fn later_ones_set_aside_join_the_end_of_the_circle() {
    queue(&[2, 0, 2, 1, 2], |lock| {
        lock.scan_early(0);
        // The head leaves, its successor inherits.
        lock.pass_to_kin(0, name(2), Scan::Kin);
        assert_eq!(lock.nodes[2].flag.load(Relaxed), name(1));
        assert_eq!(lock.nodes[2].run.load(Relaxed), 1);
        assert_eq!(lock.scan_early(2), Scan::Kin);
        assert_eq!(lock.nodes[2].flag.load(Relaxed), name(3));
        assert_eq!(chain(lock, name(3)), [3, 1]);
        assert_eq!(chain(lock, name(2)), [2, 4]);
    });
}

#[test]
fn a_scan_that_finds_nobody_changes_nothing_and_goes_on_later() {
    queue(&[2, 0, 1], |lock| {
        let scan = lock.scan_early(0);
        assert_eq!(scan, Scan::NobodyUpTo(name(2)));
        assert_eq!(chain(lock, name(0)), [0, 1, 2]);
        assert_eq!(lock.nodes[0].flag.load(Relaxed), GO);
        lock.pass_to_kin(0, name(1), scan);
        assert_eq!(lock.nodes[1].flag.load(Relaxed), GO);
    });
    // A waiter of the same node has come behind the place where the scan stopped.
    queue(&[2, 0, 1, 2], |lock| {
        lock.pass_to_kin(0, name(1), Scan::NobodyUpTo(name(2)));
        assert_eq!(lock.nodes[3].flag.load(Relaxed), name(2));
        assert_eq!(lock.nodes[1].flag.load(Relaxed), WAIT);
    });
}

#[test]
fn without_kin_those_set_aside_come_before_the_queue() {
    queue(&[2, 0, 1, 2, 1], |lock| {
        lock.scan_early(0);
        lock.pass_to_kin(0, name(3), Scan::Kin);
        // Its only successor is of another node.
        let scan = lock.scan_early(3);
        assert_eq!(scan, Scan::NobodyUpTo(name(4)));
        lock.pass_to_kin(3, name(4), scan);
        assert_eq!(lock.nodes[1].flag.load(Relaxed), GO);
        assert_eq!(chain(lock, name(1)), [1, 2, 4]);
    });
}

#[test]
fn at_the_limit_those_set_aside_get_their_turn() {
    queue(&[2, 0, 2, 2], |lock| {
        lock.scan_early(0);
        lock.pass_to_kin(0, name(2), Scan::Kin);
        lock.nodes[2].run.store(1 << 16, Relaxed);
        assert_eq!(lock.scan_early(2), Scan::Limit);
        lock.pass_to_kin(2, name(3), Scan::Limit);
        assert_eq!(lock.nodes[1].flag.load(Relaxed), GO);
        assert_eq!(lock.nodes[1].run.load(Relaxed), 0);
        assert_eq!(chain(lock, name(1)), [1, 3]);
    });
}

#[test]
fn hand_offs_count_only_while_a_waiter_is_set_aside() {
    queue(&[2, 2, 2, 1, 2], |lock| {
        assert_eq!(lock.scan_early(0), Scan::Kin);
        lock.pass_to_kin(0, name(1), Scan::Kin);
        assert_eq!(lock.nodes[1].run.load(Relaxed), 0);
        assert_eq!(lock.scan_early(1), Scan::Kin);
        lock.pass_to_kin(1, name(2), Scan::Kin);
        assert_eq!(lock.nodes[2].run.load(Relaxed), 0);
        // The next one sets number 3 aside.
        assert_eq!(lock.scan_early(2), Scan::Kin);
        lock.pass_to_kin(2, name(4), Scan::Kin);
        assert_eq!(lock.nodes[4].run.load(Relaxed), 1);
    });
}

#[test]
fn an_empty_queue_is_replaced_by_those_set_aside() {
    queue(&[2, 0, 1, 2], |lock| {
        lock.scan_early(0);
        lock.pass_to_kin(0, name(3), Scan::Kin);
        assert!(lock.clear_tail(3, name(3)));
        assert_eq!(word(lock), name(2) | LOCKED);
        assert_eq!(chain(lock, name(1)), [1, 2]);
        assert_eq!(lock.nodes[1].flag.load(Relaxed), GO);
    });
}

#[test]
fn the_circle_stays_if_a_newcomer_queues_meanwhile() {
    queue(&[2, 0, 1, 2, 1], |lock| {
        lock.scan_early(0);
        lock.pass_to_kin(0, name(3), Scan::Kin);
        // The word names the newcomer, number 4, already.
        assert!(!lock.clear_tail(3, name(3)));
        assert_eq!(word(lock), name(4));
        assert_eq!(chain(lock, name(2)), [2, 1]);
        assert_eq!(lock.nodes[1].flag.load(Relaxed), WAIT);
    });
}

/// On the four nodes of the machine a limited scan of a free lock has 16 looks.
#[test]
fn a_limited_scan_looks_at_four_waiters_for_each_node_once_the_lock_is_free() {
    const FOUND: [u32; 18] = [2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0];
    const TOO_FAR: [u32; 18] = [2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2];
    queue_with(&FOUND, Order::V10_LIMITED, |lock| {
        assert_eq!(lock.scan_early(0), Scan::Kin);
        assert_eq!(chain(lock, name(0)), [0, 16, 17]);
    });
    queue_with(&TOO_FAR, Order::V10_LIMITED, |lock| {
        let scan = lock.scan_early(0);
        assert_eq!(scan, Scan::NobodyUpTo(name(16)));
        // There is no second scan.
        lock.pass_to_kin(0, name(1), scan);
        assert_eq!(lock.nodes[1].flag.load(Relaxed), GO);
        assert_eq!(lock.nodes[17].flag.load(Relaxed), WAIT);
    });
    queue_with(&TOO_FAR, Order::V10_LIMITED, |lock| {
        lock.word.store(word(lock) | LOCKED, Relaxed);
        assert_eq!(lock.scan_early(0), Scan::Kin);
    });
}

#[test]
fn a_limited_scan_waits_for_newcomers_while_the_lock_is_held() {
    play_with::<true>(2, 3, Order::V10_LIMITED, |lock, me| {
        if me == 0 {
            lock.nodes[2].domain.store(9, Relaxed);
            lock.nodes[0].next.store(name(2), Relaxed);
            lock.word.store(name(2) | LOCKED, Relaxed);
            assert_eq!(lock.scan_early(0), Scan::Kin);
            assert_eq!(chain(lock, name(0)), [0, 1]);
        } else {
            crate::compute(10_000.0);
            lock.word.swap_part(TAIL, name(1));
            crate::compute(500.0);
            lock.nodes[2].next.store(name(1), Relaxed);
        }
    });
}

#[test]
fn a_waiter_with_priority_is_not_set_aside_and_its_node_is_preferred_then() {
    queue_with(&[2, 0, 0, 0, 0, 0, 0, 1, 2], Order::V10_PRIORITY, |lock| {
        assert_eq!(lock.scan_early(0), Scan::Kin);
        assert_eq!(chain(lock, name(0)), [0, 7, 8]);
        lock.pass_to_kin(0, name(7), Scan::Kin);
        assert_eq!(lock.nodes[7].domain.load(Relaxed), 1);
        assert_eq!(lock.counts.steps.get(), 7);
    });
}

#[test]
fn what_lies_beside_the_word_is_in_its_line() {
    play::<false>(1, |lock, _| {
        let line = |at: usize| at / 64;
        let beside = lock.beside().expect("there is room").as_ptr_range();
        assert_eq!(
            line((&raw const lock.word).addr()),
            line(beside.start.addr())
        );
        assert_eq!(line(beside.start.addr()), line(beside.end.addr() - 1));
    });
}

#[test]
fn the_incremental_scan_sets_one_aside_and_the_next_one_inherits_the_node() {
    queue_with(&[2, 0, 1, 2], Order::V11, |lock| {
        assert_eq!(lock.scan_early(0), Scan::Kin);
        assert_eq!(lock.nodes[0].flag.load(Relaxed), name(1));
        assert_eq!(chain(lock, name(0)), [0, 2, 3]);
        lock.pass_to_kin(0, name(2), Scan::Kin);
        assert_eq!(lock.nodes[2].flag.load(Relaxed), name(1));
        assert_eq!(lock.nodes[2].domain.load(Relaxed), 2);
        // The last one is of that node.
        assert_eq!(lock.scan_early(2), Scan::Kin);
        assert_eq!(chain(lock, name(2)), [2, 3]);
    });
}

#[test]
fn with_the_incremental_scan_those_set_aside_wait_for_the_limit() {
    queue_with(&[2, 0, 1, 0], Order::V11, |lock| {
        assert_eq!(lock.scan_early(0), Scan::Kin);
        lock.pass_to_kin(0, name(2), Scan::Kin);
        let scan = lock.scan_early(2);
        assert_eq!(scan, Scan::NobodyUpTo(name(2)));
        lock.pass_to_kin(2, name(3), scan);
        assert_eq!(lock.nodes[1].flag.load(Relaxed), WAIT);
        assert_eq!(lock.nodes[3].flag.load(Relaxed), name(1));
        crate::compute(11e6);
        assert_eq!(lock.scan_early(3), Scan::Limit);
    });
}

#[test]
fn the_scan_of_the_paper_is_at_the_hand_off() {
    queue_with(&[2, 0, 2], Order::PAPER, |lock| {
        let scan = lock.scan_early(0);
        assert_eq!(chain(lock, name(0)), [0, 1, 2]);
        lock.pass_to_kin(0, name(1), scan);
        assert_eq!(lock.nodes[2].flag.load(Relaxed), name(1));
    });
}

#[test]
fn all_threads_get_the_lock_and_one_at_a_time() {
    fn counts<const NUMA: bool>(order: Order) {
        let inside = place_counter();
        play_with::<NUMA>(64, 64, order, move |lock, me| {
            for _ in 0..50 {
                lock.lock(me);
                assert_eq!(inside.replace(inside.get() + 1), 0);
                crate::compute(20.0);
                inside.set(inside.get() - 1);
                lock.unlock(me);
            }
        });
    }
    counts::<false>(Order::V10);
    for order in [
        Order::V10,
        Order::V10_LIMITED,
        Order::PAPER,
        Order::V11,
        Order::V13,
    ] {
        counts::<true>(order);
    }
}

/// A counter that outlives the simulation; all its threads run on one host thread.
fn place_counter() -> &'static Cell<u32> {
    Box::leak(Box::new(Cell::new(0)))
}
