//! The torture of delayed invalidation: sound domains pass, broken ones are caught by the check
//! meant for them.

use kinlock_verify::Preemption;
use kinlock_verify::invalidation::torture::{Settings, run};
use kinlock_verify::invalidation::{ALL, Specimen, by_name};
use std::time::Duration;

fn settings(seconds: f64) -> Settings {
    Settings {
        threads: vec![4, 16],
        duration: Duration::from_secs_f64(seconds),
        seed: 1,
        preemption: Preemption::Light,
        hang: Duration::from_secs(3),
    }
}

#[test]
fn sound_domains_pass() {
    for specimen in ALL.iter().filter(|specimen| specimen.defect.is_none()) {
        let report = run(*specimen, &settings(1.0), |_| ());
        for check in &report.checks {
            println!("{} {} {}", check.passed, check.name, check.detail);
        }
        assert!(report.passed, "{report:#?}");
    }
}

fn is_caught(specimen: Specimen) {
    let report = run(specimen, &settings(8.0), |_| ());
    for check in &report.checks {
        println!("{} {} {}", check.passed, check.name, check.detail);
    }
    assert!(!report.passed && !report.escaped(), "{report:#?}");
}

#[test]
fn a_missing_wait_is_caught() {
    is_caught(by_name("busted-wait")[0]);
}

#[test]
fn a_lost_donation_is_caught() {
    is_caught(by_name("busted-donation")[0]);
}

#[test]
fn a_lost_wake_up_is_caught() {
    is_caught(by_name("busted-wakeup")[0]);
}
