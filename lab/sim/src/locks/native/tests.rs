//! How queues are reordered, each step on a prepared state. The test of all locks checks mutual
//! exclusion, and that no thread is lost.

use super::cna::{Order, Scan};
use super::{GO, LOCKED, Native, PENDING, TAIL, WAIT, name};
use crate::machine;
use crate::platform::{Sim, place};
use crate::world::{Setup, run};
use kinlock_core::platform::{Atomic, Ordering::Relaxed, Platform};

/// Runs `body` on each of `threads` threads, with a lock of `nodes` nodes that all threads share.
fn play(
    threads: usize,
    nodes: usize,
    order: Order,
    body: impl Fn(&Native<true>, usize) + Copy + 'static,
) {
    let machine = machine::load("haswell-ex-4s").expect("it is built in");
    let setup = Setup {
        limit: 1 << 40,
        ..Setup::new(machine, threads)
    };
    let prepare = || -> &'static Native<true> { place(Native::new(nodes, order)) };
    let body = move |lock: &&'static Native<true>, me| body(lock, me);
    let (_, ended, ()) = run(&setup, prepare, body, |_, _| ());
    ended.expect("all threads end");
}

/// Runs `body` on one thread, with a lock whose queue has waiters of these NUMA nodes. The first
/// waiter is the head, number 0.
fn queue(order: Order, domains: &'static [u32], body: impl Fn(&Native<true>) + Copy + 'static) {
    play(1, domains.len(), order, move |lock, _| {
        for (i, &domain) in domains.iter().enumerate() {
            lock.nodes[i].domain.store(domain, Relaxed);
            if i > 0 {
                lock.nodes[i - 1].next.store(name(i), Relaxed);
            }
        }
        lock.nodes[0].flag.store(GO, Relaxed);
        lock.word.store(name(domains.len() - 1), Relaxed);
        body(lock);
    });
}

#[test]
fn what_lies_beside_the_word_is_in_its_line() {
    queue(Order::V10, &[0], |lock| {
        let line = |at: usize| at / 64;
        let beside = lock.beside.as_ptr_range();
        let word = line((&raw const lock.word).addr());
        assert_eq!(word, line(beside.start.addr()));
        assert_eq!(word, line(beside.end.addr() - 1));
    });
}

/// The names from `first` on, up to the end of the chain or, in a circle, back to `first`.
fn chain(lock: &Native<true>, first: u32) -> Vec<usize> {
    let mut names = vec![];
    let mut at = first;
    while at != 0 && !names.contains(&((at >> 16) as usize - 1)) {
        names.push((at >> 16) as usize - 1);
        at = lock.node(at).next.load(Relaxed);
    }
    names
}

fn word(lock: &Native<true>) -> u32 {
    lock.word.load(Relaxed)
}

#[test]
fn a_newcomer_waits_for_a_hand_over_a_bounded_time_only() {
    // Thread 0 sees pending alone forever, and queues in the end; thread 1 then ends the
    // hand-over.
    play(2, 2, Order::V10, |lock, me| {
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
fn a_scan_sets_aside_those_before_the_first_of_the_same_node() {
    queue(Order::V10, &[2, 0, 1, 2, 0], |lock| {
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
    queue(Order::V10, &[2, 0, 2, 1, 2], |lock| {
        lock.scan_early(0);
        // The head leaves, and its successor inherits the secondary queue.
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
    queue(Order::V10, &[2, 0, 1], |lock| {
        let scan = lock.scan_early(0);
        assert_eq!(scan, Scan::NobodyUpTo(name(2)));
        assert_eq!(chain(lock, name(0)), [0, 1, 2]);
        assert_eq!(lock.nodes[0].flag.load(Relaxed), GO);
        lock.pass_to_kin(0, name(1), scan);
        assert_eq!(lock.nodes[1].flag.load(Relaxed), GO);
    });
    // A waiter of the same node has queued behind the place where the scan stopped.
    queue(Order::V10, &[2, 0, 1, 2], |lock| {
        lock.pass_to_kin(0, name(1), Scan::NobodyUpTo(name(2)));
        assert_eq!(lock.nodes[3].flag.load(Relaxed), name(2));
        assert_eq!(lock.nodes[1].flag.load(Relaxed), WAIT);
    });
}

#[test]
fn without_kin_those_set_aside_come_before_the_queue() {
    queue(Order::V10, &[2, 0, 1, 2, 1], |lock| {
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
    queue(Order::V10, &[2, 0, 2, 2], |lock| {
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
    queue(Order::V10, &[2, 2, 2, 1, 2], |lock| {
        assert_eq!(lock.scan_early(0), Scan::Kin);
        lock.pass_to_kin(0, name(1), Scan::Kin);
        assert_eq!(lock.nodes[1].run.load(Relaxed), 0);
        assert_eq!(lock.scan_early(1), Scan::Kin);
        lock.pass_to_kin(1, name(2), Scan::Kin);
        assert_eq!(lock.nodes[2].run.load(Relaxed), 0);
        // The next head sets number 3 aside.
        assert_eq!(lock.scan_early(2), Scan::Kin);
        lock.pass_to_kin(2, name(4), Scan::Kin);
        assert_eq!(lock.nodes[4].run.load(Relaxed), 1);
    });
}

#[test]
fn an_empty_queue_is_replaced_by_those_set_aside() {
    queue(Order::V10, &[2, 0, 1, 2], |lock| {
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
    queue(Order::V10, &[2, 0, 1, 2, 1], |lock| {
        lock.scan_early(0);
        lock.pass_to_kin(0, name(3), Scan::Kin);
        // The word already names the newcomer, number 4.
        assert!(!lock.clear_tail(3, name(3)));
        assert_eq!(word(lock), name(4));
        assert_eq!(chain(lock, name(2)), [2, 1]);
        assert_eq!(lock.nodes[1].flag.load(Relaxed), WAIT);
    });
}

/// The machine has four nodes, so a limited scan of a free lock has 16 looks.
#[test]
fn a_limited_scan_looks_at_four_waiters_for_each_node_once_the_lock_is_free() {
    const FOUND: [u32; 18] = [2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0];
    const TOO_FAR: [u32; 18] = [2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2];
    queue(Order::V10_LIMITED, &FOUND, |lock| {
        assert_eq!(lock.scan_early(0), Scan::Kin);
        assert_eq!(chain(lock, name(0)), [0, 16, 17]);
    });
    queue(Order::V10_LIMITED, &TOO_FAR, |lock| {
        let scan = lock.scan_early(0);
        assert_eq!(scan, Scan::NobodyUpTo(name(16)));
        // There is no second scan.
        lock.pass_to_kin(0, name(1), scan);
        assert_eq!(lock.nodes[1].flag.load(Relaxed), GO);
        assert_eq!(lock.nodes[17].flag.load(Relaxed), WAIT);
    });
    queue(Order::V10_LIMITED, &TOO_FAR, |lock| {
        lock.word.store(word(lock) | LOCKED, Relaxed);
        assert_eq!(lock.scan_early(0), Scan::Kin);
    });
}

#[test]
fn a_limited_scan_waits_for_newcomers_while_the_lock_is_held() {
    play(2, 3, Order::V10_LIMITED, |lock, me| {
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
    queue(Order::V10_PRIORITY, &[2, 0, 0, 0, 0, 0, 0, 1, 2], |lock| {
        assert_eq!(lock.scan_early(0), Scan::Kin);
        assert_eq!(chain(lock, name(0)), [0, 7, 8]);
        lock.pass_to_kin(0, name(7), Scan::Kin);
        assert_eq!(lock.nodes[7].domain.load(Relaxed), 1);
        assert_eq!(lock.counts.steps.get(), 7);
    });
}

#[test]
fn the_incremental_scan_sets_one_aside_and_the_next_one_inherits_the_node() {
    queue(Order::V11, &[2, 0, 1, 2], |lock| {
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
    queue(Order::V11, &[2, 0, 1, 0], |lock| {
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
    queue(Order::PAPER, &[2, 0, 2], |lock| {
        let scan = lock.scan_early(0);
        assert_eq!(chain(lock, name(0)), [0, 1, 2]);
        lock.pass_to_kin(0, name(1), scan);
        assert_eq!(lock.nodes[2].flag.load(Relaxed), name(1));
    });
}
