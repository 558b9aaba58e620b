//! Delayed invalidation under random schedules: ours pass, each broken one is caught by the check meant for it.
//!
//! `KINLOCK_SCHEDULES` says how many schedules of each (default 2000).

use kinlock_verify::explore::sections::{ALL, Settings, explore};

fn settings() -> Settings {
    let wanted = std::env::var("KINLOCK_SCHEDULES").ok();
    Settings {
        schedules: wanted.map_or(2000, |n| n.parse().expect("a number of schedules")),
        seed: 1,
    }
}

#[test]
fn sound_backends_pass() {
    for specimen in ALL.iter().filter(|specimen| specimen.defect.is_none()) {
        let report = explore(*specimen, &settings());
        for check in &report.checks {
            println!("{} {} {}", check.passed, check.name, check.detail);
        }
        assert!(report.passed, "{report:#?}");
    }
}

#[test]
fn broken_ones_are_caught_and_a_seed_gives_the_same_again() {
    for specimen in ALL.iter().filter(|specimen| specimen.defect.is_some()) {
        let report = explore(*specimen, &settings());
        for check in &report.checks {
            println!("{} {} {}", check.passed, check.name, check.detail);
        }
        assert!(!report.passed && !report.escaped(), "{report:#?}");
        let again = explore(*specimen, &settings());
        let details = |report: &kinlock_verify::report::Report| -> Vec<String> {
            let checks = report.checks.iter();
            checks.map(|check| check.detail.clone()).collect()
        };
        assert_eq!(details(&report), details(&again));
    }
}
