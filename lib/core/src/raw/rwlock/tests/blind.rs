//! Code without a table, such as a copy of the library that is apart, uses locks at which others
//! announce themselves.

use super::scripted::{
    Scripted, ScriptedLock, as_part, blind, in_a_sleep, lock, meets_a_stranger, seeing, sleeps,
};
use super::*;

const MILLI: u64 = 1_000_000;

#[test]
fn a_release_too_many_of_a_lock_that_nobody_has_made_biased_does_nothing() {
    for held in [0, WRITER, UPGRADABLE, WRITER | READER] {
        let lock = lock::<Fair, Scripted>();
        lock.state.set(held);
        blind(|| end(lock, ScriptedLock::<Fair, Scripted>::unlock_read));
        assert_eq!(word(lock), held);
    }
    // A reader of such a lock may be announced.
    for held in [BIASED, WRITER | REVOKING] {
        let lock = lock::<Fair, Scripted>();
        lock.state.set(held);
        assert!(meets_a_stranger(|| end(
            lock,
            ScriptedLock::<Fair, Scripted>::unlock_read
        )));
    }
}

/// A lock at which another thread is announced.
fn read_elsewhere() -> &'static ScriptedLock<Fair, Scripted> {
    let lock = lock::<Fair, Scripted>();
    lock.set_biased();
    assert!(as_part(1, || lock.read()));
    assert_eq!(word(lock), BIASED);
    lock
}

#[test]
fn a_biased_lock_counts_as_held() {
    let lock = read_elsewhere();
    blind(|| {
        assert!(lock.is_locked() && !lock.try_write());
        let limit = Scripted::now() + 5 * MILLI;
        assert!(!lock.write_until(limit) && Scripted::now() >= limit);
        assert!(lock.try_upgradable());
        // SAFETY: this thread is the upgradable reader.
        assert!(!unsafe { lock.try_upgrade() });
        let limit = Scripted::now() + 5 * MILLI;
        // SAFETY: as above.
        assert!(!unsafe { lock.upgrade_until(limit) } && Scripted::now() >= limit);
        assert_eq!(word(lock), BIASED | UPGRADABLE);
        end(lock, ScriptedLock::unlock_upgradable);
        assert!(lock.try_read(false));
        end(lock, ScriptedLock::<Fair, Scripted>::unlock_read);
    });
    assert_eq!(word(lock), BIASED);
    assert!(lock.is_announced());
    assert!(meets_a_stranger(|| lock.write()));
}

#[test]
fn a_writer_with_a_time_limit_waits_for_the_end_of_the_bias() {
    let lock = read_elsewhere();
    let start = sleeps().len();
    blind(|| {
        in_a_sleep(3, || {
            seeing(|| {
                as_part(1, || end(lock, ScriptedLock::<Fair, Scripted>::unlock_read));
                lock.write();
                end(lock, ScriptedLock::unlock_write);
            });
        });
        assert!(lock.write_until(Scripted::now() + 1000 * MILLI));
    });
    assert_eq!(word(lock), WRITER);
    assert!(sleeps().len() - start >= 4, "it napped");
}

#[test]
fn a_writer_that_finds_that_the_lock_has_just_become_biased_steps_back() {
    let lock = read_elsewhere();
    blind(|| {
        // The writer has looked at the flag before it was set.
        assert_eq!(lock.take(Want::Write, false), Ok(BIASED));
        assert!(!lock.end_bias(Want::Write, BIASED, Scripted::now() + MILLI));
        assert_eq!(word(lock), BIASED);
        assert!(lock.try_upgradable());
        // SAFETY: this thread is the upgradable reader.
        let upgraded = unsafe { lock.upgrade_until(0) };
        assert!(!upgraded);
    });
    assert_eq!(word(lock), BIASED | UPGRADABLE);
    assert!(lock.is_announced());
}
