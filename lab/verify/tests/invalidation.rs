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

    #[test]
    #[ignore = "deep: runs until the defect shows"]
    fn broken_domains_are_caught() {
        for broken in ALL.iter().filter(|one| one.defect().is_some()) {
            judge::<Specimen>(broken.name, &settings(8_000, &[4, 16], vec![]));
        }
    }
}
