//! The torture of delayed invalidation: sound domains pass, broken ones are caught by the check
//! meant for them.

mod support;

use kinlock_verify::invalidation::{ALL, Specimen};
use kinlock_verify::{BUSTED, Named, by_name};
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
        let broken = by_name::<Specimen>(BUSTED);
        assert_eq!(broken.len(), 3);
        for one in broken {
            judge::<Specimen>(one.name, &settings(8_000, &[4, 16], vec![]));
        }
    }
}
