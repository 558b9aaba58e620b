//! Idle IDs: marked, freed, taken by the next thread that needs one.

use super::*;

#[test]
fn a_recent_id_is_taken_again_if_nobody_has_it() {
    let ids = recent_first(4, 4);
    (0..4).for_each(|cpu| assert_eq!(visit(&ids, cpu), cpu));
    // The first call marks all, the second frees them.
    assert_eq!(ids.reclaim(1000), 0);
    assert_eq!(ids.reclaim(1000 + AGE), 4);
    assert_eq!(ids.in_use(), 0);
    for cpu in [3, 1, 2, 0] {
        assert_eq!(visit(&ids, cpu), cpu);
    }
    audit(&ids, &[]);
}

#[test]
fn what_was_marked_when_it_stopped_is_freed_in_one_step() {
    let ids = recent_first(2, 2);
    (0..2).for_each(|cpu| assert_eq!(visit(&ids, cpu), cpu));
    ids.mark_idle(0, 1000);
    // A second mark does not replace the first.
    ids.mark_idle(0, 2000);
    assert_eq!(ids.reclaim(AGE), 0);
    assert_eq!(ids.reclaim(1000 + AGE), 1);
    assert_eq!((kept(&ids, 0), kept(&ids, 1)), (None, Some(1)));
    audit(&ids, &[]);
}

#[test]
fn no_cpu_marks_what_a_member_keeps() {
    let ids: Ids = make(Policy::TaskOwned, 4, 2, 2);
    let held = ids.acquire_as(0, 0).unwrap();
    ids.release(0, held);
    let owner = (0..6).find(|&at| kept(&ids, at).is_some()).unwrap();
    for cpu in 0..8 {
        ids.mark_idle(cpu, 0);
    }
    let word = Word(ids.storage.records()[owner as usize].word.load(Relaxed));
    assert_eq!((owner, word.is_marked()), (4, false));
}

#[test]
fn an_owner_takes_a_marked_id_back() {
    let ids = recent_first(2, 2);
    visit(&ids, 0);
    ids.reclaim(0);
    // The ID is used in between: its mark is gone, and the next reclaim only marks.
    visit(&ids, 0);
    assert_eq!(ids.reclaim(AGE), 0);
    assert_eq!(kept(&ids, 0), Some(0));
    assert_eq!(ids.reclaim(2 * AGE), 1);
    audit(&ids, &[]);
}

#[test]
fn the_oldest_idle_id_goes_first() {
    let ids = recent_first(4, 3);
    (0..3).for_each(|cpu| assert_eq!(visit(&ids, cpu), cpu));
    // Only the ID of CPU 1 is old.
    let record = &ids.storage.records()[1];
    let word = Word(record.word.load(Relaxed));
    record.word.store(word.marked().0, Relaxed);
    record.marked_at.store(0, Relaxed);
    let before = <Native as kinlock_core::platform::Platform>::now();
    if before >= AGE {
        assert_eq!(visit(&ids, 3), 1);
    }
    audit(&ids, &[]);
}

#[test]
fn who_needs_an_id_gets_one_that_was_unused_for_long() {
    let ids = make(Policy::RecentFirst, 5, 4, 1).aging();
    (0..4).for_each(|cpu| assert_eq!(visit(&ids, cpu), cpu));
    // All IDs are young; the first thread that needs one marks them.
    let held = ids.acquire(4).unwrap();
    ids.release(4, held);
    let wait = std::time::Duration::from_nanos(AGE);
    for _ in 0..2 {
        std::thread::sleep(wait + wait / 10);
        // Only CPU 3 goes on; CPUs without records need IDs.
        visit(&ids, 3);
        visit(&ids, 7);
        visit(&ids, 3);
    }
    // The IDs of the CPUs that stopped are free.
    assert!((0..3).all(|cpu| kept(&ids, cpu).is_none()), "{ids:?}");
    assert!(kept(&ids, 3).is_some());
    audit(&ids, &[]);
}
