//! The explorer: ours pass, each broken lock is caught by the check meant for it, and what is found can be played again.

use kinlock_verify::explore::{self, Explored, Settings, locks, replay};
use kinlock_verify::report::Property;

/// A fraction of what CI plays; enough to reach every part of the queue.
const SCHEDULES: u64 = 3000;
/// A broken one is done when it is caught.
const ENOUGH: u64 = 50_000;

fn explore(lock: &str) -> Explored {
    let lock = locks::by_name(lock)[0];
    let settings = Settings {
        schedules: if lock.defect.is_some() {
            ENOUGH
        } else {
            SCHEDULES
        },
        seed: 1,
        threads: None,
        host_threads: 2,
    };
    let explored = explore::explore(&lock, &settings, |_| ());
    for check in &explored.report.checks {
        println!("{} {} {}", check.passed, check.name, check.detail);
    }
    explored
}

#[test]
fn sound_locks_pass() {
    for lock in locks::ALL.iter().filter(|lock| lock.defect.is_none()) {
        let explored = explore(lock.name);
        assert!(explored.report.passed, "{:#?}", explored.report);
        assert_eq!(explored.schedules, SCHEDULES);
    }
}

#[test]
fn broken_locks_are_caught_and_the_replay_fails_again() {
    for lock in locks::by_name(locks::BUSTED) {
        let explored = explore(lock.name);
        let failure = explored.failure.expect("caught");
        assert_eq!(Some(failure.property), lock.defect, "{failure:?}");
        assert!(!explored.report.escaped());

        let few = failure
            .shrunk
            .only
            .as_ref()
            .expect("shrunk to a list")
            .len();
        assert!(few <= failure.disruptions);
        let again = failure
            .shrunk
            .to_string()
            .parse()
            .expect("a replay can be read");
        let (property, detail) = replay(&again).expect_err("it fails again");
        assert_eq!((property, &detail), (failure.property, &failure.detail));
        let trace = explore::trace(&again);
        assert!(
            trace.last().is_some_and(|line| line.contains(&detail)),
            "{trace:#?}"
        );
    }
}

#[test]
fn what_is_found_does_not_depend_on_the_host() {
    let lock = locks::by_name("busted-splice")[0];
    let found = |host_threads| {
        let settings = Settings {
            schedules: SCHEDULES,
            seed: 5,
            threads: Some(4),
            host_threads,
        };
        let failure = explore::explore(&lock, &settings, |_| ())
            .failure
            .expect("caught");
        assert_eq!(failure.property, Property::Completion);
        failure.shrunk
    };
    assert_eq!(found(1), found(3));
}
