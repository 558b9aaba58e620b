//! Code without a table on locks in which others announce themselves: a copy of the library that is
//! apart.

use super::scripted::{ScriptedLock, blind, end, lock, meets_a_stranger, word};
use super::*;

#[test]
fn a_release_too_many_of_a_lock_that_nobody_has_made_biased_does_nothing() {
    for held in [0, WRITER, UPGRADABLE, WRITER | READER] {
        let lock = lock::<Sound>();
        lock.state.set(held);
        blind(|| end(lock, ScriptedLock::unlock_read));
        assert_eq!(word(lock), held);
    }
    // Its reader may be announced.
    for held in [BIASED, WRITER | REVOKING] {
        let lock = lock::<Sound>();
        lock.state.set(held);
        assert!(meets_a_stranger(|| end(lock, ScriptedLock::unlock_read)));
    }
}
