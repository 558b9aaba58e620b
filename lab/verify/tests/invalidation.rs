//! The torture of delayed invalidation: sound domains pass, broken ones are caught by the check
//! meant for them.

mod support;

use kinlock_verify::Named;
use kinlock_verify::invalidation::{ALL, Specimen};
use support::{judge, settings};

#[test]
fn sound_domains_pass() {
    for sound in ALL.iter().filter(|one| one.defect().is_none()) {
        judge::<Specimen>(sound.name, &settings(700, &[4, 16], vec![]));
    }
}

mod deep {
    use super::*;

    fn is_caught(name: &str) {
        judge::<Specimen>(name, &settings(8_000, &[4, 16], vec![]));
    }

    #[test]
    #[ignore = "deep: runs until the defect shows"]
    fn a_missing_wait_is_caught() {
        is_caught("busted-wait");
    }

    #[test]
    #[ignore = "deep: runs until the defect shows"]
    fn a_generation_that_is_given_twice_is_caught() {
        is_caught("busted-ticket");
    }

    #[test]
    #[ignore = "deep: runs until the defect shows"]
    fn a_lost_wake_up_is_caught() {
        is_caught("busted-wakeup");
    }
}
