//! Single steps, on records, bitmaps and limits built by hand.

mod ageing;
mod limits;

use super::*;
use kinlock_linux::Native;
use std::collections::HashSet;

type Parts = (&'static [Record<Native>], &'static [Block<Native>]);
type Ids = IdAllocator<Native, Parts>;

fn make(policy: Policy, cpus: u32, members: u32, blocks: usize) -> Ids {
    // A record for each CPU and for each member.
    let records: Vec<Record<Native>> = (0..cpus + members).map(|_| Record::new()).collect();
    let blocks: Vec<Block<Native>> = (0..blocks).map(|_| Block::new()).collect();
    let parts: Parts = (records.leak(), blocks.leak());
    let ids = IdAllocator::new(parts, cpus, policy);
    ids.set_members(members);
    ids
}

fn recent_first(cpus: u32, members: u32) -> Ids {
    make(Policy::RecentFirst, cpus, members, 1)
}

/// Acquires and releases on `cpu`; returns the ID.
fn visit(ids: &Ids, cpu: u32) -> u32 {
    let held = ids.acquire(cpu).unwrap();
    let id = held.id();
    ids.release(cpu, held);
    id
}

/// The ID that the record keeps.
fn kept(ids: &Ids, at: u32) -> Option<u32> {
    let word = Word(ids.storage.records()[at as usize].word.load(Relaxed));
    word.keeps().then_some(word.id())
}

/// Every ID is free, kept once, or one of `held`.
fn audit(ids: &Ids, held: &[u32]) {
    let mut places: Vec<u32> = held.to_vec();
    places.extend((0..ids.storage.records().len() as u32).filter_map(|at| kept(ids, at)));
    let unique: HashSet<_> = places.iter().collect();
    assert_eq!(unique.len(), places.len(), "an ID is in two places");
    let used: HashSet<u32> = (0..ids.capacity())
        .filter(|&id| ids.used(id).load(Relaxed) >> (id % BLOCK) & 1 != 0)
        .collect();
    assert_eq!(used, places.into_iter().collect(), "an ID is lost");
    for at in 0..ids.storage.records().len() as u32 {
        if let Some(id) = kept(ids, at) {
            assert_eq!(ids.keeper(id).load(Relaxed), at);
        }
    }
}

#[test]
fn a_cpu_keeps_its_id() {
    let ids = recent_first(4, 4);
    for round in 0..3 {
        for cpu in [2, 0, 3, 1] {
            let place = [2, 0, 3, 1].iter().position(|&c| c == cpu).unwrap();
            assert_eq!(visit(&ids, cpu), place as u32, "round {round}");
        }
    }
    audit(&ids, &[]);
}

#[test]
fn lowest_free_forgets() {
    let ids: Ids = make(Policy::LowestFree, 4, 4, 1);
    (0..4).for_each(|cpu| assert_eq!(visit(&ids, cpu), cpu));
    assert_eq!((visit(&ids, 3), ids.in_use()), (3, 4));
    ids.reclaim(0);
    ids.reclaim(AGE);
    assert_eq!(visit(&ids, 3), 0);
    audit(&ids, &[]);
}

#[test]
fn two_threads_of_a_cpu_hold_two_ids() {
    let ids = recent_first(1, 2);
    let a = ids.acquire(0).unwrap();
    let b = ids.acquire(0).unwrap();
    // The limit is one: the second ID was handed out because the first is held.
    assert_eq!((a.id(), b.id(), ids.limit()), (0, 1, 1));
    audit(&ids, &[0, 1]);
    ids.release(0, b);
    ids.release(0, a);
    assert_eq!((kept(&ids, 0), ids.in_use()), (Some(0), 1));
    audit(&ids, &[]);
}

#[test]
fn a_moved_lease_takes_its_id_along() {
    // More CPUs than members: the destination keeps the ID.
    let ids = recent_first(4, 2);
    let held = ids.acquire(0).unwrap();
    ids.release(1, held);
    assert_eq!((kept(&ids, 0), kept(&ids, 1)), (None, Some(0)));
    // As many members as CPUs: the ID goes home, because the destination has a recent one.
    let ids = recent_first(2, 2);
    let there = ids.acquire(1).unwrap();
    let held = ids.acquire(0).unwrap();
    ids.release(1, held);
    assert_eq!((kept(&ids, 0), kept(&ids, 1)), (Some(1), None));
    ids.release(1, there);
    assert_eq!(kept(&ids, 1), Some(0));
    audit(&ids, &[]);
}

#[test]
fn a_cpu_that_had_an_id_does_not_get_that_of_a_thread_that_comes() {
    let ids = recent_first(4, 3);
    (0..2).for_each(|cpu| assert_eq!(visit(&ids, cpu), cpu));
    // CPU 1 has a recent ID only.
    ids.mark_idle(1, 0);
    assert_eq!(ids.reclaim(AGE), 1);
    let held = ids.acquire(0).unwrap();
    ids.release(1, held);
    assert_eq!(
        (kept(&ids, 0), kept(&ids, 1), ids.in_use()),
        (None, None, 0)
    );
    assert_eq!(visit(&ids, 1), 1);
    audit(&ids, &[]);
}

#[test]
fn a_cpu_whose_lease_ended_elsewhere_has_no_recent_id() {
    // The ID came along to CPU 1, and comes back with the next thread that moves.
    let ids = recent_first(4, 2);
    let held = ids.acquire(0).unwrap();
    ids.release(1, held);
    let held = ids.acquire(1).unwrap();
    ids.release(0, held);
    assert_eq!((kept(&ids, 0), kept(&ids, 1)), (Some(0), None));
    audit(&ids, &[]);
    // The ID of CPU 0 became free, since CPU 1 keeps one. The ID of CPU 1 can then move to CPU 0.
    let ids = recent_first(4, 3);
    (0..2).for_each(|cpu| assert_eq!(visit(&ids, cpu), cpu));
    let held = ids.acquire(0).unwrap();
    ids.release(1, held);
    assert_eq!((kept(&ids, 0), ids.in_use()), (None, 1));
    let held = ids.acquire(1).unwrap();
    ids.release(0, held);
    assert_eq!((kept(&ids, 0), kept(&ids, 1)), (Some(1), None));
    audit(&ids, &[]);
}

#[test]
fn the_fast_path_serves_threads_that_nothing_counts() {
    let ids = recent_first(4, 0);
    assert_eq!((visit(&ids, 2), ids.limit()), (0, 1));
    assert_eq!(kept(&ids, 2), Some(0));
}

#[test]
fn per_cpu_is_the_index_of_the_cpu() {
    let ids: Ids = make(Policy::PerCpu, 40, 2, 3);
    for cpu in [39, 0, 17, 39] {
        assert_eq!(visit(&ids, cpu), cpu);
    }
    let own = ids.acquire(17).unwrap();
    let second = ids.acquire(17).unwrap();
    assert_eq!((own.id(), second.id()), (17, 40));
    // Released elsewhere, it goes home.
    ids.release(3, own);
    ids.release(17, second);
    assert_eq!((kept(&ids, 17), kept(&ids, 3)), (Some(17), None));
    audit(&ids, &[]);
}

#[test]
fn tasks_own_ids_while_there_are_enough_cpus() {
    let ids: Ids = make(Policy::TaskOwned, 4, 3, 1);
    let visit = |cpu, member| {
        let held = ids.acquire_as(cpu, member).unwrap();
        let id = held.id();
        ids.release(cpu, held);
        id
    };
    // Members have their IDs on any CPU.
    for cpu in 0..4 {
        assert_eq!([visit(cpu, 0), visit(3 - cpu, 1), visit(cpu, 2)], [0, 1, 2]);
    }
    // One more member than CPUs: CPUs take over what members left behind.
    ids.set_members(5);
    let owned: Vec<u32> = (0..4).map(|cpu| visit(cpu, 0)).collect();
    assert_eq!(owned.iter().collect::<HashSet<_>>().len(), 4);
    assert_eq!((0..4).map(|cpu| visit(cpu, 1)).collect::<Vec<_>>(), owned);
    audit(&ids, &[]);
    // Four members on four CPUs are too many to switch back; three are not.
    ids.leave();
    assert_eq!(visit(2, 0), owned[2]);
    ids.leave();
    let own = visit(0, 0);
    assert!((0..4).all(|cpu| visit(cpu, 0) == own));
    audit(&ids, &[]);
}

#[test]
fn cpus_without_record_keep_nothing() {
    let ids = recent_first(2, 2);
    let held = ids.acquire(5000).unwrap();
    ids.release(u32::MAX, held);
    assert_eq!(ids.in_use(), 0);
    audit(&ids, &[]);
}

#[test]
fn a_child_starts_anew() {
    let ids = recent_first(2, 2);
    let held = ids.acquire(0).unwrap();
    visit(&ids, 1);
    ids.reset(|id| (id == held.id()).then_some(&held));
    audit(&ids, &[0]);
    assert_eq!(visit(&ids, 1), 1);
    ids.release(0, held);
    audit(&ids, &[]);
}

#[test]
fn in_a_child_only_the_record_that_lent_what_is_held_stays_lent() {
    let ids = recent_first(2, 2);
    // A thread releases its ID on another CPU, and has got as far as leaving it there.
    let other = ids.acquire(0).unwrap();
    assert!(ids.keep(1, other.id()));
    // The thread that will fork acquires it.
    let held = ids.acquire(1).unwrap();
    assert_eq!(held.id(), other.id());
    let lent = |at: usize| Word(ids.storage.records()[at].word.load(Relaxed)).is_lent();
    assert!(lent(0) && lent(1));
    ids.reset(|id| (id == held.id()).then_some(&held));
    assert!(!lent(0) && lent(1));
    // So both CPUs can keep an ID again.
    let id = visit(&ids, 0);
    assert_eq!(kept(&ids, 0), Some(id));
    ids.release(1, held);
    assert_eq!(kept(&ids, 1), Some(0));
    audit(&ids, &[]);
}
