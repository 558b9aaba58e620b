//! Tests on words prepared for them.

use super::word::*;
use super::*;
use crate::Native;
use crate::tuning::{Quantum, Tuning};
use std::sync::atomic::AtomicU32;

mod blind;
mod front;
mod scripted;
mod sent;
mod waits;

#[derive(Clone, Copy, Debug)]
struct Fair;

impl LockConfig for Fair {
    const TRIALS: u32 = 0;
    fn tuning() -> Tuning {
        // Waiters request hand-offs at once.
        let mut tuning = Tuning::DEFAULT;
        tuning.quantum = Quantum::FAIR;
        tuning
    }
}

type Lock<P = Native> = QueuedRwLock<P, Fair>;

fn with<P: Platform>(word: u32) -> Lock<P> {
    let lock = Lock::<P>::default();
    lock.state.set(word);
    lock
}

fn word<P: Platform, C: LockConfig>(lock: &QueuedRwLock<P, C>) -> u32 {
    lock.state.load(Relaxed)
}

/// Calls `release`, for a caller whose prepared word or script says that the lock is held so.
fn end<P: Platform, C: LockConfig>(
    lock: &QueuedRwLock<P, C>,
    release: unsafe fn(&QueuedRwLock<P, C>),
) {
    // SAFETY: every caller holds the lock in that way, or tests that a needless release does no
    // harm.
    unsafe { release(lock) }
}

#[test]
fn a_request_stops_readers_and_barging_writers_but_not_its_maker() {
    let requested = REQUEST | READER;
    assert_eq!(with_reader::<Native>(requested, false), None);
    assert_eq!(
        with_reader::<Native>(requested, true),
        Some(requested + READER)
    );
    assert_eq!(taken::<Native>(REQUEST, Want::Write, false), None);
    assert_eq!(taken::<Native>(REQUEST, Want::Write, true), Some(WRITER));
    assert_eq!(
        taken::<Native>(requested, Want::Write, true),
        None,
        "one reads"
    );
    let upgradable = taken::<Native>(requested, Want::Upgradable, true);
    assert_eq!(upgradable, Some(UPGRADABLE | READER));
}

#[test]
fn a_writer_that_leaves_admits_all_that_are_registered() {
    let lock = with::<Native>(WRITER);
    assert!(lock.register().is_some() && lock.register().is_some());
    assert_eq!(word(&lock), WRITER + 2 * READER);
    end(&lock, Lock::unlock_write);
    assert_eq!(word(&lock), 2 * READER);
    assert!(!lock.try_write(), "they hold it");
    end(&lock, Lock::unlock_read);
    end(&lock, Lock::unlock_read);
    assert!(lock.try_write());
}

#[test]
fn registered_readers_go_before_the_writer_that_is_next_and_nobody_after_them() {
    let lock = with::<Native>(WRITER | REQUEST);
    assert!(lock.register().is_some());
    end(&lock, Lock::unlock_write);
    assert_eq!(word(&lock), REQUEST | READER);
    assert!(!lock.try_read(false) && lock.register().is_none() && !lock.try_write());
    end(&lock, Lock::unlock_read);
    assert!(
        !lock.try_write() && !lock.try_read(false),
        "the writer is next"
    );
    assert_eq!(lock.take(Want::Write, true), Ok(REQUEST));
    assert!(lock.register().is_some(), "readers wait for this one only");
}

#[test]
fn a_reader_whose_time_is_up_is_no_longer_registered() {
    let lock = with::<Native>(WRITER);
    assert!(!lock.read_until(Native::now() + 1_000_000, false));
    assert_eq!(word(&lock) & !READERS_SLEEP, WRITER);
    end(&lock, Lock::unlock_write);
    assert_eq!(word(&lock), 0);
}

#[test]
fn a_reader_that_comes_late_waits_for_the_writer() {
    // Each reader has seen a free lock, and counts itself when the word has become this one.
    let late = |word| with::<Native>(word).add();
    assert_eq!(late(WRITER), Counted::Registered);
    // The writer waits for counted readers.
    assert_eq!(late(WRITER | REVOKING), Counted::Reads);
    for held in [0, READER, BIASED, REQUEST, UPGRADABLE | UPGRADING] {
        assert_eq!(late(held), Counted::Reads, "{held:#x}");
    }
}

#[test]
fn readers_count_themselves_only_where_nothing_else_has_to_change() {
    assert!(may_add::<Native>(0) && may_add::<Native>(READER | FRONT_SLEEPS));
    assert!(may_add::<Native>(WRITER | READERS_SLEEP));
    // A reader that enters a free lock clears the flag.
    assert!(!may_add::<Native>(FRONT_SLEEPS));
    assert!(
        !may_add::<Native>(LIMIT / 2),
        "more might come than can be counted"
    );
}

/// The word that a writer leaves behind when it gives up waiting for a reader.
fn after_giving_up<P: Platform>(nanos: u64) -> u32 {
    let lock = with::<P>(READER);
    assert!(!lock.write_until(P::now() + nanos));
    word(&lock)
}

#[test]
fn a_writer_that_gives_up_leaves_no_request() {
    assert_eq!(after_giving_up::<Native>(50_000_000), READER);
}

#[test]
fn the_flag_of_a_sleeper_is_cleared_by_the_next_to_enter_a_free_lock() {
    let sleeping = FRONT_SLEEPS;
    assert_eq!(with_reader::<Native>(sleeping, false), Some(READER));
    assert_eq!(taken::<Native>(sleeping, Want::Write, false), Some(WRITER));
    let held = sleeping | READER;
    assert_eq!(with_reader::<Native>(held, false), Some(held + READER));
}

#[test]
fn a_writer_that_leaves_to_readers_wakes_a_front_that_can_enter_beside_them() {
    let registered = WRITER | FRONT_SLEEPS | READER;
    assert_eq!(after_writer::<Native>(registered, Leave::Free), READER);
    let downgraded = after_writer::<Native>(WRITER | FRONT_SLEEPS, Leave::Reader);
    assert_eq!(downgraded, READER);
    let upgradable = after_writer::<Native>(WRITER | FRONT_SLEEPS, Leave::Upgradable);
    assert_eq!(upgradable, UPGRADABLE | FRONT_SLEEPS);
}

/// Readers leave in place of each other, so several may have subtracted from a count of 0 at once.
#[test]
fn an_announced_reader_that_finds_a_count_below_zero_empties_its_entry() {
    let below = 0_u32.wrapping_sub(READER);
    for before in [0, below, below.wrapping_sub(READER)] {
        let lock = Lock::<Native>::default();
        lock.set_biased();
        assert!(lock.read());
        assert!(lock.is_announced());
        // A writer has ended the bias since.
        lock.state.fetch_update(Relaxed, |_| Some(before)).unwrap();
        lock.leave_counted();
        assert_eq!(word(&lock), before);
        assert!(!lock.is_announced());
    }
}

#[test]
fn marks_of_another_process_are_void() {
    // Marks that a thread of the parent left: this process has another generation.
    let other = 1 << 9;
    assert_eq!(
        after_writer::<Native>(WRITER | (other + 3 * READER), Leave::Free),
        0
    );
    assert_eq!(
        taken::<Native>(REQUEST | other, Want::Write, false),
        Some(WRITER)
    );
    let read = with_reader::<Native>(REQUEST | other, false);
    assert!(read.is_some_and(|word| count(word) == READER));
    let registered = with_registered::<Native>(WRITER | (other + 3 * READER));
    assert_eq!(registered, Some(WRITER + READER));
}

#[test]
fn a_full_lock_admits_no_more_readers() {
    assert_eq!(with_reader::<Native>(LIMIT, false), None);
    assert_eq!(with_registered::<Native>(WRITER | LIMIT), None);
    assert!(
        !is_refused::<Native>(LIMIT, false),
        "nobody would wake a sleeper"
    );
    assert!(with_reader::<Native>(LIMIT - READER, false).is_some());
}

/// The writer or the upgradable reader may go on as a reader without a look at the count.
#[test]
fn a_full_lock_has_a_place_for_the_upgradable_reader_or_the_writer_that_holds_it() {
    let full = with::<Native>(LIMIT);
    assert!(!full.try_upgradable() && !full.upgradable_until(Native::now() + 1_000_000));
    assert_eq!(word(&full), LIMIT);
    end(&full, Lock::unlock_read);
    assert!(full.try_upgradable() && full.is_full());
    assert!(!full.try_read(false) && !full.try_read(true) && !full.read_at_once());
    end(&full, Lock::downgrade_upgradable);
    assert_eq!(word(&full), LIMIT);
    end(&full, Lock::unlock_read);
    assert!(full.read());
    assert!(full.is_full() && !full.try_read(false) && !full.try_upgradable());
    assert_eq!(word(&full), LIMIT, "it does not become biased by that");

    let written = with::<Native>(WRITER | (LIMIT - (2 * READER)));
    assert!(!written.is_full() && written.register().is_some());
    assert!(written.is_full() && written.register().is_none());
    assert!(!is_refused::<Native>(word(&written), false));
    end(&written, Lock::downgrade);
    assert_eq!(word(&written), LIMIT);
}

/// The waiter at the front never gets the lock, since its readers were leaked.
#[test]
fn an_upgradable_reader_does_not_queue_for_a_full_lock() {
    let full = with::<Native>(LIMIT);
    let front = Native::waiters().take_node().expect("a slot is free");
    assert!(full.writers.join(&front, true, NEVER), "no other queues");
    full.state.set(REQUEST);
    assert!(!full.upgradable_until(NEVER));
    full.writers.leave(&front);
}

#[test]
fn no_reader_sets_the_bias_that_sees_a_waiter_or_a_full_lock() {
    assert!(may_be_biased(READER) && may_be_biased(LIMIT - READER) && !may_be_biased(LIMIT));
    for others in [WRITER, UPGRADING, BIASED, REQUEST, FRONT_SLEEPS] {
        assert!(!may_be_biased(READER | others));
    }
}

#[test]
fn the_longer_the_end_of_the_bias_took_the_fewer_reads_set_it() {
    for (nanos, one_in) in [
        (0, 8),
        (2_047, 8),
        (2_048, 16),
        (20_000, 128),
        (4_000_000, 4096),
        (u64::MAX, 4096),
    ] {
        assert_eq!(1 << rarity_after(nanos), one_in, "{nanos} ns");
    }
}

#[test]
fn chance_chooses_the_reads_that_set_the_bias() {
    const READS: usize = 4096;
    let hints = Hints::<Native>::new();
    let chosen = || (0..READS).filter(|_| hints.sets_bias()).count();
    assert_eq!(chosen(), READS, "nothing is known yet");
    hints.keep();
    hints.bias_ended(1_000_000);
    hints.bias_ended(300);
    // 512 on average. The bounds are twelve standard deviations away, or more.
    assert!((256..1024).contains(&chosen()), "one in eight");
    assert!(hints.is_kept());
    hints.share();
    assert!(!hints.is_kept() && (256..1024).contains(&chosen()));
}

#[test]
fn a_writer_that_ends_the_bias_makes_the_next_one_rarer() {
    let lock = Lock::<Native>::default();
    lock.set_biased();
    lock.write();
    end(&lock, Lock::unlock_write);
    let sets_bias = |_| lock.hints.sets_bias();
    assert!(!(0..4096).all(sets_bias), "all reads still do");
}

#[test]
fn a_read_that_counts_itself_on_the_slow_path_sets_the_bias() {
    let lock = Lock::<Native>::default();
    assert_eq!(lock.announce_or_enter(false), Some(Counted::Reads));
    assert_eq!(word(&lock), BIASED | READER);
    end(&lock, Lock::unlock_read);
    assert_eq!(word(&lock), BIASED);
}

#[test]
fn announced_readers_hold_the_lock_until_they_leave() {
    let lock = Lock::<Native>::default();
    lock.set_biased();
    assert!(lock.read());
    assert_eq!(word(&lock), BIASED, "no shared word was written");
    assert!(lock.is_locked() && lock.is_announced() && !lock.is_locked_exclusive());
    assert!(!lock.try_write());
    // The entry is taken, so the second read is counted.
    assert!(lock.read());
    assert_eq!(word(&lock), BIASED | READER);
    assert!(!lock.write_until(Native::now() + 1_000_000));
    end(&lock, Lock::unlock_read);
    end(&lock, Lock::unlock_read);
    assert!(!lock.is_locked() && !lock.is_announced());
    assert!(lock.try_write());
    assert_eq!(word(&lock), WRITER, "the bias is over");
}

#[test]
fn a_writer_that_gives_up_leaves_the_bias_to_announced_readers() {
    let lock = Lock::<Native>::default();
    lock.set_biased();
    assert!(lock.read());
    assert!(!lock.write_until(Native::now() + 1_000_000));
    assert_eq!(word(&lock), BIASED);
    assert!(lock.is_locked());
    end(&lock, Lock::unlock_read);
    assert!(lock.write_until(NEVER));
}

/// A configuration with the longest quantum.
#[derive(Clone, Copy, Debug)]
struct Patient;

impl LockConfig for Patient {
    const TRIALS: u32 = 0;
    fn tuning() -> Tuning {
        let mut tuning = Tuning::DEFAULT;
        tuning.quantum = Quantum::THROUGHPUT;
        tuning
    }
}

/// Readers would wait for such a writer even if it then gives up, and it may start again at once.
#[test]
fn with_a_time_limit_readers_are_spared_for_an_eighth_of_it() {
    let lock = QueuedRwLock::<Native, Patient>::default();
    let (limit, week) = (4_000_000, 604_800_000_000_000);
    let spared = |limit, others: fn(u32) -> bool| {
        let begun = Native::now();
        lock.spare_readers(begun + limit, others);
        Native::now() - begun
    };
    let counted: fn(u32) -> bool = |word| count(word) != 0;
    lock.set_biased();
    assert!(lock.read(), "announced");
    assert!(spared(limit, |_| false) >= limit / 8);
    lock.spare_readers(NEVER, |_| true);
    // It spares them for a quantum: with an eighth of a week this test would not end.
    assert!(spared(week, |_| false) >= limit / 8);
    assert_eq!(word(&lock), BIASED, "new readers may enter");
    lock.state.clear(BIASED);
    assert!(lock.read(), "counted");
    assert!(spared(limit, counted) >= limit / 8, "by an upgrade");
}
