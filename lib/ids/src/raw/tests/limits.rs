//! The limit, `grown`, and the end of the storage.

use super::*;

#[test]
fn ids_spread_up_to_the_limit_and_no_further() {
    let ids = recent_first(8, 3);
    let seen: HashSet<u32> = (0..8).map(|cpu| visit(&ids, cpu)).collect();
    assert_eq!(seen, HashSet::from([0, 1, 2]));
    ids.set_cpus_allowed(2);
    assert_eq!((ids.limit(), ids.shape.grown()), (2, 2));
    let seen: HashSet<u32> = (0..8).map(|cpu| visit(&ids, cpu)).collect();
    assert_eq!(seen, HashSet::from([0, 1]));
    audit(&ids, &[]);
}

#[test]
fn what_lies_above_the_limit_is_given_up() {
    let ids = recent_first(4, 4);
    (0..3).for_each(|cpu| assert_eq!(visit(&ids, cpu), cpu));
    let held = ids.acquire(3).unwrap();
    assert_eq!(held.id(), 3);
    ids.set_members(2);
    assert_eq!(
        (ids.limit(), ids.shape.grown(), kept(&ids, 2)),
        (2, 2, None)
    );
    audit(&ids, &[3]);
    // The recent ID of CPU 2 is above the limit.
    assert!(visit(&ids, 2) < 2);
    // ID 3 was held: the fast path keeps it, and the next acquisition there gives it up.
    ids.release(3, held);
    assert!(visit(&ids, 3) < 2);
    audit(&ids, &[]);
    ids.join();
    assert!(ids.limit() == 3 && (0..4).all(|cpu| visit(&ids, cpu) < 3));
    audit(&ids, &[]);
}

#[test]
fn growth_takes_what_was_left_above_the_limit() {
    let ids = recent_first(4, 4);
    (0..3).for_each(|cpu| assert_eq!(visit(&ids, cpu), cpu));
    let held = ids.acquire(3).unwrap();
    ids.set_members(3);
    ids.release(3, held);
    assert_eq!(kept(&ids, 3), Some(3));
    ids.set_members(4);
    let others: Vec<Held> = (0..3).map(|cpu| ids.acquire(cpu).unwrap()).collect();
    // CPU 2's own ID is held; this is a second one there.
    let held = ids.acquire(2).unwrap();
    assert_eq!((held.id(), kept(&ids, 3)), (3, None));
    ids.release(2, held);
    others.into_iter().for_each(|held| ids.release(0, held));
    audit(&ids, &[]);
}

/// A release on the CPU that lent it keeps an ID above the limit, and a search has moved `grown`
/// past it.
#[test]
fn what_is_kept_above_the_limit_is_taken_when_all_below_are_held() {
    for policy in [Policy::RecentFirst, Policy::LowestFree, Policy::TaskOwned] {
        let ids: Ids = make(policy, 4, 4, 1);
        let mut held: Vec<Held> = (0..4).map(|cpu| ids.acquire(cpu).unwrap()).collect();
        ids.set_members(2);
        held.push(ids.acquire(0).unwrap());
        assert_eq!((held[4].id(), ids.shape.grown()), (4, 5));
        ids.release(3, held.remove(3));
        assert_eq!(kept(&ids, 3), Some(3));
        // Not by `acquire` at first, which would loop forever if this failed.
        let found = ids.find_above(2, 0);
        assert_eq!(found, Ok(Some(3)), "{policy:?}");
        assert_eq!(kept(&ids, 3), None);
        ids.free(3);
        held.push(ids.acquire(0).unwrap());
        assert_eq!((held[4].id(), ids.shape.grown()), (3, 5));
        audit(&ids, &held.iter().map(Held::id).collect::<Vec<_>>());
    }
}

/// The acquisition has read a limit that is not fully published yet, or that has come down since.
#[test]
fn what_is_free_above_grown_is_not_handed_out_unasked() {
    for policy in [Policy::RecentFirst, Policy::LowestFree, Policy::TaskOwned] {
        let ids: Ids = make(policy, 4, 2, 1);
        let held: Vec<Held> = (0..2).map(|cpu| ids.acquire(cpu).unwrap()).collect();
        assert_eq!(
            (ids.shape.grown(), ids.find_below(4)),
            (2, None),
            "{policy:?}"
        );
        assert_eq!(held.len(), 2);
    }
}

#[test]
fn ids_are_exhausted_when_all_are_held() {
    for policy in Policy::ALL {
        let ids: Ids = make(policy, 2, 2, 1);
        let mut held: Vec<Held> = (0..32).map(|i| ids.acquire(i % 2).unwrap()).collect();
        assert_eq!(held.iter().map(Held::id).collect::<HashSet<_>>().len(), 32);
        assert_eq!(ids.acquire(0), Err(Exhausted), "{policy:?}");
        let last = held.pop().unwrap();
        ids.release(1, last);
        held.push(ids.acquire(0).unwrap());
        held.into_iter().for_each(|held| ids.release(1, held));
        audit(&ids, &[]);
    }
}

#[test]
fn holders_set_the_bound_where_there_are_no_members() {
    for blocks in [1, 3] {
        let ids: Ids = make(Policy::RecentFirst, 4, 0, blocks);
        for holders in [1, 2, 5, 3, 30] {
            let held: Vec<Held> = (0..holders).map(|i| ids.acquire(i % 4).unwrap()).collect();
            assert!(held.iter().all(|held| held.id() < holders.max(5)));
            held.into_iter().for_each(|held| ids.release(0, held));
            // Nothing is kept above the limit, which is 1.
            assert_eq!(ids.in_use(), 1);
        }
    }
}
