//! Read locks that another thread releases, and releases of locks that no thread holds.

use super::scripted::{Scripted, ScriptedLock, as_part, at_a_look, forked, lock, looks, play};
use super::*;

/// The calling reader has registered with a writer, which has left; the reader has not run since.
/// Another, announced reader was released by another thread, so its entry stands for the first
/// reader. Returns the word that the first reader finds when a second writer has come.
pub(super) fn overtaken<P: Platform>(lock: &'static ScriptedLock<Fair, P>) -> u32 {
    as_part(1, || lock.write());
    assert_eq!(lock.register(), Some(Counted::Registered));
    as_part(1, || end(lock, ScriptedLock::unlock_write));
    assert_eq!(word(lock), READER, "it holds the lock");
    lock.set_biased();
    assert!(as_part(2, || lock.read()));
    assert_eq!(word(lock), BIASED | READER);
    as_part(3, || end(lock, ScriptedLock::unlock_read));
    assert_eq!(word(lock), BIASED, "the entry is the first reader's by now");
    let taken = as_part(1, || lock.take(Want::Write, false));
    assert_eq!(taken, Ok(BIASED));
    word(lock)
}

#[test]
fn a_registered_reader_does_not_wait_for_a_writer_that_waits_for_it() {
    let lock = lock::<Fair, Scripted>();
    assert_eq!(overtaken(lock), WRITER | REVOKING);
    assert!(lock.read_in_turn(Some(Counted::Registered), NEVER, false));
    end(lock, ScriptedLock::unlock_read);
    assert!(!lock.is_announced());
    assert!(as_part(1, || lock.revoke(NEVER)));
    as_part(1, || end(lock, ScriptedLock::unlock_write));
    assert_eq!(word(lock), 0);
}

#[test]
fn a_registered_reader_with_a_time_limit_does_not_withdraw_from_a_writer_that_waits_for_it() {
    let lock = lock::<Fair, Scripted>();
    overtaken(lock);
    assert!(lock.read_in_turn(
        Some(Counted::Registered),
        Scripted::now() + 1_000_000,
        false
    ));
    assert_eq!(word(lock), WRITER | REVOKING);
}

/// A reader sets the bias after a look, but another thread has left in its place since the look.
#[test]
fn a_bias_set_beside_a_writer_that_waits_for_readers_holds_once_it_has_left() {
    let lock = lock::<Fair, Scripted>();
    overtaken(lock);
    lock.state.set(BIASED);
    assert!(as_part(4, || !lock.read_at_once()), "it sees the writer");
    end(lock, ScriptedLock::unlock_read);
    assert!(!lock.is_announced(), "and has stepped back");
    assert!(as_part(1, || lock.revoke(NEVER)));
    assert_eq!(word(lock), WRITER | BIASED);
    assert_eq!(lock.register(), Some(Counted::Registered));
    assert!(as_part(4, || !lock.read_at_once()));
    as_part(1, || end(lock, ScriptedLock::unlock_write));
    assert_eq!(word(lock), BIASED | READER);
    assert!(
        lock.read_in_turn(Some(Counted::Registered), NEVER, false)
            && as_part(4, || lock.read_at_once())
    );
    assert!(lock.is_announced() && !as_part(1, || lock.try_write()));
}

/// A thread reads, and sends the guard. While the receiver looks for a count or an entry to end,
/// the sender reads again. Returns what is left in the word.
pub(super) fn read_again_meanwhile<P: Platform>() -> u32 {
    let lock = lock::<Fair, P>();
    lock.set_biased();
    assert!(as_part(1, || lock.read()));
    play(2);
    // The receiver has looked at its own row and at the count by then.
    at_a_look(0, || {
        as_part(1, || {
            assert!(lock.read());
            assert_eq!(word(lock), BIASED | READER, "the entry is taken");
            end(lock, ScriptedLock::unlock_read);
            assert!(!lock.is_announced());
        });
    });
    end(lock, ScriptedLock::unlock_read);
    assert!(!lock.is_announced());
    word(lock)
}

#[test]
fn a_release_goes_on_until_it_has_ended_a_reader_in_a_child_of_fork_too() {
    for forks in [0, 1, 2] {
        forked(forks);
        assert_eq!(read_again_meanwhile::<Scripted>(), BIASED, "{forks} forks");
    }
}

#[test]
fn a_release_too_many_comes_to_an_end_and_changes_nothing() {
    let free = lock::<Fair, Scripted>();
    end(free, ScriptedLock::unlock_read);
    assert_eq!(word(free), 0);
    let biased = lock::<Fair, Scripted>();
    biased.set_biased();
    end(biased, ScriptedLock::unlock_read);
    assert_eq!(word(biased), BIASED);
    let written = lock::<Fair, Scripted>();
    written.write();
    assert!(written.register().is_some());
    end(written, ScriptedLock::unlock_read);
    assert_eq!(
        word(written),
        WRITER | READER,
        "the registered reader stays"
    );
    let upgradable = lock::<Fair, Scripted>();
    assert!(upgradable.upgradable());
    end(upgradable, ScriptedLock::unlock_read);
    assert_eq!(word(upgradable), UPGRADABLE);
    let fair = lock::<Fair, Scripted>();
    end(fair, ScriptedLock::unlock_read_fair);
    end(fair, ScriptedLock::unlock_upgradable);
    end(fair, ScriptedLock::unlock_write);
    assert_eq!(word(fair), 0);
    assert!(looks() > 1000, "it looked often before it gave up");
    for lock in [free, biased, fair] {
        assert!(lock.read());
        end(lock, ScriptedLock::unlock_read);
        assert!(lock.try_write());
    }
}

/// Another release subtracted this reader's count right before this reader did so itself.
#[test]
fn a_reader_that_finds_no_count_takes_it_back_unless_another_has_done_so() {
    let lock = lock::<Fair, Scripted>();
    lock.set_biased();
    assert!(as_part(1, || lock.read()));
    let key = lock.key();
    // This reader has subtracted itself from a count of 0.
    lock.state.add();
    lock.state
        .fetch_update(Relaxed, |_| Some(BIASED.wrapping_sub(READER)))
        .unwrap();
    lock.left_last(key, BIASED);
    assert_eq!(word(lock), BIASED);
    assert!(!lock.is_announced(), "the entry stood for it");
    // Another reader has counted itself since.
    assert!(as_part(1, || lock.read()));
    lock.left_last(key, BIASED);
    assert_eq!(word(lock), BIASED);
    assert!(lock.is_announced(), "the entry stands for the other reader");
    // The other reader has left, and a writer has come.
    as_part(1, || end(lock, ScriptedLock::unlock_read));
    lock.state.fetch_update(Relaxed, |_| Some(WRITER)).unwrap();
    lock.left_last(key, BIASED);
    assert_eq!(word(lock), WRITER);
}
