//! The explorer: sound subjects pass, broken ones are caught by the check meant for them (in the
//! module `deep`), and failing schedules can be played again.

use kinlock_verify::explore::{self, Explored, Settings, Subject, ids, invalidation, locks};
use kinlock_verify::{BUSTED, by_name};

/// A fraction of the schedules that CI plays, but enough to reach every part of the queue.
const SCHEDULES: u64 = 2000;
/// Enough schedules to catch every broken subject. The exploration ends when it is caught.
const ENOUGH: u64 = 200_000;

fn explore<S: Subject>(one: &S) -> Explored<S> {
    let settings = Settings {
        schedules: if one.defect().is_some() {
            ENOUGH
        } else {
            SCHEDULES
        },
        seed: 1,
        threads: None,
        host_threads: 2,
    };
    let explored = explore::explore(one, &settings, |_| ());
    for check in &explored.report.checks {
        println!("{} {} {}", check.passed, check.name, check.detail);
    }
    explored
}

fn sound_ones_pass<S: Subject>() {
    for one in S::all().iter().filter(|one| one.defect().is_none()) {
        let explored = explore(one);
        assert!(explored.report.passed, "{:#?}", explored.report);
        assert_eq!(explored.schedules, SCHEDULES);
    }
}

/// All broken subjects are caught, and the replay of the failure fails again.
fn all_broken_are_caught<S: Subject>(count: usize) {
    let broken = by_name::<S>(BUSTED);
    assert_eq!(broken.len(), count);
    for one in &broken {
        let explored = explore(one);
        let failure = explored.failure.expect("caught");
        assert_eq!(Some(failure.property), one.defect(), "{failure:?}");
        assert!(!explored.report.escaped());

        let few = failure.shrunk.only.as_ref().expect("shrunk to a list");
        assert!(few.len() <= failure.disruptions);
        let word = failure.shrunk.to_string();
        let again = word.parse().expect("a replay can be read");
        let (property, detail) = explore::replay::<S>(&again).expect_err("it fails again");
        assert_eq!((property, &detail), (failure.property, &failure.detail));
        let trace = explore::trace(&again);
        assert!(
            trace.last().is_some_and(|line| line.contains(&detail)),
            "{trace:#?}"
        );
    }
}

#[test]
fn sound_locks_pass() {
    sound_ones_pass::<locks::Specimen>();
}

#[test]
fn sound_ids_pass() {
    sound_ones_pass::<ids::Specimen>();
}

#[test]
fn sound_invalidation_passes() {
    sound_ones_pass::<invalidation::Specimen>();
}

mod deep {
    use super::*;

    #[test]
    #[ignore = "deep: runs until the defect shows"]
    fn broken_invalidation_is_caught() {
        all_broken_are_caught::<invalidation::Specimen>(3);
    }
}

/// The failure that is found, as text.
fn found<S: Subject>(name: &str, threads: Option<usize>, host_threads: usize) -> String {
    let settings = Settings {
        schedules: 3000,
        seed: 5,
        threads,
        host_threads,
    };
    let one = by_name::<S>(name)[0];
    let explored = explore::explore(&one, &settings, |_| ());
    explored.failure.expect("caught").to_string()
}

#[test]
fn what_is_found_does_not_depend_on_the_host() {
    let one = |host| found::<invalidation::Specimen>("busted-wakeup", Some(4), host);
    assert_eq!(one(1), one(3));
}
