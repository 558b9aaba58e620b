//! Recording, for `kinlock record`: the distributions of hold and think times, and which thread
//! follows which as a lock's holder.
//!
//! Only measured acquisitions are recorded. A think time begins where a measured hold ends, and
//! ends with the next acquisition of the lock by the same thread. So that acquisition is looked
//! at, too. Nothing here allocates, takes a lock or waits. What is changed belongs to the holder
//! of the lock, or to the calling thread.

use super::entries::index_in;
use super::memory::provide;
use super::threads::thread;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use kinlock_core::platform::Platform;
use kinlock_linux::Native;
use kinlock_report::{Lock, Owner, Pause, RECORDED_THREADS, RECORDS, Record, Table, Tally, class};

static IS_ON: AtomicBool = AtomicBool::new(false);

#[inline]
pub(super) fn is_on() -> bool {
    IS_ON.load(Relaxed)
}

/// Called before the table is used.
pub(super) fn begin(table: &Table) {
    let is_on = super::environment::variable(b"KINLOCK_RECORD") == Some(b"1") || is_on();
    table.header.is_recorded.store(is_on.into(), Relaxed);
    IS_ON.store(is_on, Relaxed);
}

/// The pause that belongs to a tally of the owner: the think time that runs, if any.
fn pause<'a>(owner: &'a Owner, tally: &Tally) -> Option<&'a Pause> {
    owner.pauses.get(index_in(&owner.tallies, tally))
}

/// Forgets the think time that runs, since the tally becomes another lock's.
pub(super) fn forget(owner: &Owner, tally: &Tally) {
    if let Some(pause) = pause(owner, tally) {
        pause.since.store(0, Relaxed);
    }
}

/// How often a lock must have been measured to get a record from the second half of the records.
/// The first half may go to locks that programs take only a few times, when they start.
const SAMPLES_FOR_RECORD: u64 = 32;

/// The lock's record. It gets one if there are any left.
fn of<'a>(table: &'a Table, lock: &Lock) -> Option<&'a Record> {
    let mut number = lock.record.load(Relaxed);
    if number == 0 {
        let used = table.header.records.load(Relaxed) as usize;
        if used >= RECORDS / 2 && lock.samples.load(Relaxed) < SAMPLES_FOR_RECORD {
            return None;
        }
        // A lock that finds none left gets a number above `RECORDS`, so that it does not ask again.
        number = match used {
            0..RECORDS => table.header.records.fetch_add(1, Relaxed) + 1,
            _ => RECORDS as u32 + 1,
        };
        let record = table.records.get(number as usize - 1);
        if record.is_some_and(|record| !provide(table, record)) {
            number = RECORDS as u32 + 1;
        }
        lock.record.store(number, Relaxed);
    }
    table.records.get(number as usize - 1)
}

/// Adds to a number that only the holder of the lock changes.
fn count(number: &AtomicU32, weight: u32) {
    number.store(number.load(Relaxed).saturating_add(weight), Relaxed);
}

/// How long the calling thread has waited so far, for all locks.
fn waited(table: &Table) -> u64 {
    thread(table).map_or(0, |thread| thread.wait_ns.load(Relaxed))
}

/// Notes that a measured hold of `hold` nanoseconds by the calling thread has ended: a think time
/// begins.
pub(super) fn held(table: &Table, lock: &Lock, owner: &Owner, tally: &Tally, hold: u64) {
    let weight = tally.weight.load(Relaxed).into();
    if let Some(record) = of(table, lock) {
        count(&record.holds[class(hold)], weight);
    }
    let Some(pause) = pause(owner, tally) else {
        return;
    };
    pause.weight.store(weight, Relaxed);
    pause.waited.store(waited(table), Relaxed);
    pause
        .sample_at
        .store(tally.sample_at.load(Relaxed), Relaxed);
    // The next acquisition has to end the think time, so it must not be one that is only counted.
    // It looks like one to be measured until `taken` restores the number.
    let next = (tally.locked.load(Relaxed) as u32).wrapping_add(1);
    tally.sample_at.store(next, Relaxed);
    // The clock is read last: the time of measuring is no part of the program's think time.
    pause.since.store(Native::now(), Relaxed);
}

/// The calling thread has taken the lock: ends the think time that runs, if any. `asked`: when it
/// asked for the lock, if that is known; `waited_for_it`: how many nanoseconds it then waited.
pub(super) fn taken(
    table: &Table,
    lock: &Lock,
    owner: &Owner,
    tally: &Tally,
    asked: Option<u64>,
    waited_for_it: u64,
) {
    let Some(pause) = pause(owner, tally) else {
        return;
    };
    let since = pause.since.load(Relaxed);
    if since == 0 {
        return;
    }
    pause.since.store(0, Relaxed);
    tally
        .sample_at
        .store(pause.sample_at.load(Relaxed), Relaxed);
    let asked = asked.unwrap_or_else(Native::now);
    let waited = waited(table).wrapping_sub(pause.waited.load(Relaxed));
    let for_others = waited.saturating_sub(waited_for_it);
    let think = asked.saturating_sub(since).saturating_sub(for_others);
    if let Some(record) = of(table, lock) {
        count(&record.thinks[class(think)], pause.weight.load(Relaxed));
    }
}

/// Notes a measured acquisition by the thread `token`. The last holder was `last`; 0: there was
/// none.
pub(super) fn follows(table: &Table, lock: &Lock, tally: &Tally, last: u32, token: u32) {
    if let Some(record) = of(table, lock).filter(|_| last != 0) {
        let [from, to] = [last, token].map(|token| token as usize % RECORDED_THREADS);
        count(&record.follows[from][to], tally.weight.load(Relaxed).into());
    }
}
