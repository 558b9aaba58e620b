//! The contention report: what each lock did, in a [table](table) that the command reads.
//!
//! Nothing here allocates or takes a lock. Only the first locks of a process may wait, for the one
//! of their threads that makes the table. What each acquisition changes belongs to the
//! thread that holds the lock: its [tally](tally) of it. An entry is added, and most of its numbers
//! are changed, by that thread, too: the program's own lock guards them. So plain loads and stores
//! suffice, and no two threads add the same lock.
//!
//! Each acquisition is counted. The clock is read, and the callers are looked up, only for those
//! that waited, for the first ones of each lock, and from then on for about one in 256.

mod cfi;
pub(crate) mod memory;
mod modules;
mod record;
mod stack;
mod table;
mod tally;
mod unwind;
mod uses;

use self::table::{add, bump, raise};
use self::uses::{stack_of, used};
use crate::thread::token;
use core::ffi::c_int;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use kinlock_core::Native;
use kinlock_core::platform::Platform;
use kinlock_report::{HELD, Lock, Owner, Table, Tally, Thread, bucket};

/// What is noted beside a lock, where its holder has its cache line anyway. Zeros at first. Only
/// the holder accesses it.
#[derive(Clone, Copy)]
pub(crate) struct Marks<'a> {
    /// The lock's serial number.
    pub(crate) serial: &'a AtomicU32,
    /// The token of the thread that held it last.
    pub(crate) last: &'a AtomicU32,
    /// The domain of that thread, if there are several.
    pub(crate) domain: &'a AtomicU32,
}

/// A lock of the program.
#[derive(Clone, Copy)]
pub(crate) struct Object<'a> {
    pub(crate) address: u64,
    /// Its own. One without room for them has them in its entry.
    pub(crate) marks: Option<Marks<'a>>,
    /// The C library's, or [`kinlock_report::SPIN`].
    pub(crate) kind: u32,
    /// The calling thread holds it already, as a recursive one.
    pub(crate) is_nested: bool,
}

/// How an acquisition went.
#[derive(Clone, Copy)]
pub(crate) struct Outcome {
    pub(crate) is_try: bool,
    pub(crate) waited: Option<Wait>,
    pub(crate) result: c_int,
    /// When it was asked for, if that is known.
    pub(crate) asked: Option<u64>,
}

/// A wait for a lock.
#[derive(Clone, Copy)]
pub(crate) struct Wait {
    since: u64,
    until: u64,
    /// For how many waits it stands if it is measured, or 0.
    weight: u32,
    /// By which callers, then.
    stack: u32,
}

impl Wait {
    /// The calling thread begins to wait. If the wait is measured, it looks up its callers now,
    /// while it would wait anyway, and not when it holds the lock.
    #[cold]
    #[inline(never)]
    pub(crate) fn begin(object: Object<'_>) -> Self {
        let mut wait = Wait {
            since: Native::now(),
            until: 0,
            weight: 0,
            stack: 0,
        };
        if let Some(table) = memory::own_table() {
            if let Some(thread) = thread(table) {
                thread.waits_for.store(object.address, Relaxed);
            }
            let one_in = kinlock_report::waits_per_sample(tally::waits_so_far(table, object));
            if one_in == 1 || Native::random() % one_in == 0 {
                wait.weight = one_in;
                wait.stack = stack_of(table, &unwind::capture());
            }
        }
        wait
    }

    pub(crate) fn end(self) -> Self {
        let until = Native::now();
        Wait { until, ..self }
    }

    pub(crate) fn nanos(&self) -> u64 {
        self.until.saturating_sub(self.since)
    }
}

/// The calling thread has found that it must not wait.
pub(crate) fn waits_no_more() {
    if let Some(thread) = memory::table().and_then(thread) {
        thread.waits_for.store(0, Relaxed);
    }
}

/// An acquisition has ended. If it succeeded, the lock is held.
pub(crate) fn acquisition(object: Object<'_>, outcome: Outcome) {
    let Some(table) = memory::own_table() else {
        return;
    };
    let is_taken = matches!(outcome.result, 0 | libc::EOWNERDEAD);
    if let Some(wait) = outcome.waited {
        has_waited(table, wait.nanos());
    }
    if !is_taken {
        return in_vain(table, object, outcome);
    }
    if object.is_nested || outcome.is_try {
        let Some((_, lock)) = table::lock_of_holder(table, object) else {
            return add(&table.header.dropped_locks, 1);
        };
        if outcome.is_try {
            add(&lock.tries, 1);
        }
        if object.is_nested {
            return bump(&lock.nested, 1);
        }
    }
    let marks = object.marks.or_else(|| marks_of_holder(table, object));
    let Some(marks) = marks else {
        return add(&table.header.dropped_locks, 1);
    };
    match tally::new(table, object, marks) {
        Some((owner, tally)) => count(table, owner, tally, marks, outcome),
        None => without_tally(table, object, marks, outcome.waited),
    }
}

/// A wait of the calling thread has ended.
fn has_waited(table: &Table, nanos: u64) {
    if let Some(thread) = thread(table) {
        thread.waits_for.store(0, Relaxed);
        bump(&thread.contended, 1);
        bump(&thread.wait_ns, nanos);
        raise(&thread.wait_max, nanos);
    }
}

/// A lock that has room for its marks was taken after a wait. The other threads wait for what this
/// does: most waits are only counted.
pub(crate) fn taken_after(object: Object<'_>, wait: Wait) {
    if counted_after(object, wait).is_none() {
        let outcome = Outcome {
            is_try: false,
            waited: Some(wait),
            result: 0,
            asked: None,
        };
        acquisition(object, outcome);
    }
}

/// Counts an acquisition after a wait, unless it needs more.
#[inline]
fn counted_after(object: Object<'_>, wait: Wait) -> Option<()> {
    let (table, marks) = (memory::table()?, object.marks?);
    let (owner, tally) = tally::found(object.address, marks)?;
    let (_, lock) = entry(table, tally)?;
    let waits = tally::waits_of(owner, tally)?;
    let sample_at = tally.sample_at.load(Relaxed);
    let locked = tally.locked.load(Relaxed).wrapping_add(1);
    let is_looked_at = wait.weight != 0 || sample_at == locked as u32;
    if is_looked_at || memory::has_domains() || wait.nanos() > lock.wait_max.load(Relaxed) {
        return None;
    }
    // It is none of those that the next sample stands for.
    tally.sample_at.store(sample_at.wrapping_add(1), Relaxed);
    holds(owner, tally, marks, locked);
    bump(&waits.count, 1);
    bump(&waits.nanos, wait.nanos());
    has_waited(table, wait.nanos());
    Some(())
}

/// The calling thread holds the lock, for the `locked`th time.
#[inline]
fn holds(owner: &Owner, tally: &Tally, marks: Marks<'_>, locked: u64) {
    tally.locked.store(locked, Relaxed);
    tally.since.store(HELD, Relaxed);
    // No branch: which thread was the last one cannot be predicted.
    let (last, token) = (marks.last.load(Relaxed), owner.token.load(Relaxed));
    bump(&tally.changed, ((last != token) & (last != 0)).into());
    marks.last.store(token, Relaxed);
}

/// A lock that has room for its marks was taken at once. Returns false unless that needed nothing
/// but counting; then [`taken_at_once`] has to follow.
#[inline]
pub(crate) fn counted(address: u64, marks: Marks<'_>) -> bool {
    let Some((owner, tally)) = tally::found(address, marks) else {
        return false;
    };
    let locked = tally.locked.load(Relaxed).wrapping_add(1);
    if tally.sample_at.load(Relaxed) == locked as u32 || memory::has_domains() {
        return false;
    }
    holds(owner, tally, marks, locked);
    true
}

/// The same, whatever it needs.
#[cold]
#[inline(never)]
pub(crate) fn taken_at_once(object: Object<'_>) {
    let outcome = Outcome {
        is_try: false,
        waited: None,
        result: 0,
        // Before what follows takes time.
        asked: record::is_on().then(Native::now),
    };
    acquisition(object, outcome);
}

/// The C library has taken the lock again for its holder.
pub(crate) fn taken_again(object: Object<'_>) {
    let is_nested = false;
    taken_at_once(Object {
        is_nested,
        ..object
    });
}

/// The marks of a lock that has no room for them.
fn marks_of_holder<'a>(table: &'a Table, object: Object<'a>) -> Option<Marks<'a>> {
    table::lock_of_holder(table, object).map(|(_, lock)| marks_in(lock))
}

fn marks_in(lock: &Lock) -> Marks<'_> {
    Marks {
        serial: &lock.serial,
        last: &lock.last,
        domain: &lock.domain,
    }
}

/// Counts an acquisition.
fn count(table: &Table, owner: &Owner, tally: &Tally, marks: Marks<'_>, outcome: Outcome) {
    let waited = outcome.waited;
    bump(&tally.locked, 1);
    tally.since.store(HELD, Relaxed);
    let recorded = entry(table, tally).filter(|_| record::is_on());
    if let Some((_, lock)) = recorded {
        let asked = waited.map(|wait| wait.since).or(outcome.asked);
        let waited = waited.map_or(0, |wait| wait.nanos());
        record::taken(table, lock, owner, tally, asked, waited);
    }
    let token = token();
    let last = marks.last.load(Relaxed);
    if last != token {
        marks.last.store(token, Relaxed);
        hand_off(last, marks, &tally.changed, &tally.remote, bump);
    }
    let sample_at = tally.sample_at.load(Relaxed);
    match waited {
        Some(wait) => {
            // It is none of those that the next sample stands for.
            tally.sample_at.store(sample_at.wrapping_add(1), Relaxed);
            after_wait(table, owner, tally, wait);
            if wait.weight == 0 {
                return;
            }
        }
        None if sample_at == tally.locked.load(Relaxed) as u32 => measured(table, tally),
        None => return,
    }
    if let Some((_, lock)) = recorded {
        record::follows(table, lock, tally, last, token);
    }
    // The last of all: what measuring took is no part of the hold.
    tally.since.store(Native::now(), Relaxed);
}

/// Its holder is another thread than the one before.
fn hand_off(
    last: u32,
    marks: Marks<'_>,
    changed: &AtomicU64,
    remote: &AtomicU64,
    add: impl Fn(&AtomicU64, u64),
) {
    if last != 0 {
        add(changed, 1);
    }
    if memory::has_domains() {
        let domain = u32::from(Native::domain());
        let before = marks.domain.load(Relaxed);
        if before != domain {
            marks.domain.store(domain, Relaxed);
            if last != 0 {
                add(remote, 1);
            }
        }
    }
}

/// Counts an acquisition by a thread that has no tally for the lock: the hold is not measured.
#[cold]
#[inline(never)]
fn without_tally(table: &Table, object: Object<'_>, marks: Marks<'_>, waited: Option<Wait>) {
    let Some((index, lock)) = table::lock_of_holder(table, object) else {
        return add(&table.header.dropped_locks, 1);
    };
    add(&lock.locked, 1);
    match thread(table) {
        Some(thread) => bump(&thread.locked, 1),
        None => add(&table.header.dropped_threads, 1),
    }
    let token = token();
    note_thread(lock, token);
    let last = marks.last.load(Relaxed);
    if last != token {
        marks.last.store(token, Relaxed);
        hand_off(last, marks, &lock.changed, &lock.remote, add);
    }
    if let Some(wait) = waited {
        note_wait(table, index, lock, wait);
    }
}

/// The thread is one of those that took the lock. Called by its holder.
fn note_thread(lock: &Lock, token: u32) {
    let number = token as usize % kinlock_report::THREAD_BITS;
    let word = &lock.threads[number / 64];
    let bit = 1 << (number % 64);
    if word.load(Relaxed) & bit == 0 {
        word.store(word.load(Relaxed) | bit, Relaxed);
    }
}

/// The entry of the lock that the calling thread holds and has a tally of.
fn entry<'a>(table: &'a Table, tally: &Tally) -> Option<(u32, &'a Lock)> {
    let index = tally.lock.load(Relaxed);
    let at = (index as usize).checked_sub(1)?;
    Some((index, table.locks.get(at)?))
}

#[cold]
#[inline(never)]
fn after_wait(table: &Table, owner: &Owner, tally: &Tally, wait: Wait) {
    let nanos = wait.nanos();
    match tally::waits_of(owner, tally) {
        Some(waits) => {
            bump(&waits.count, 1);
            bump(&waits.nanos, nanos);
        }
        None => return,
    }
    if let Some((index, lock)) = entry(table, tally) {
        let taken_by = measured_wait(table, index, lock, wait);
        if wait.weight != 0 {
            measure(tally, lock, wait.weight as u16, taken_by);
        }
    }
}

/// Notes a wait of a thread without a tally.
fn note_wait(table: &Table, index: u32, lock: &Lock, wait: Wait) {
    add(&lock.contended, 1);
    add(&lock.wait_ns, wait.nanos());
    measured_wait(table, index, lock, wait);
}

/// Notes what is known of a wait that has ended, if it is measured: by which use it was.
fn measured_wait(table: &Table, index: u32, lock: &Lock, wait: Wait) -> u32 {
    let nanos = wait.nanos();
    if nanos > lock.wait_max.load(Relaxed) {
        lock.wait_max.fetch_max(nanos, Relaxed);
    }
    if wait.weight == 0 {
        return 0;
    }
    add(&lock.waits[bucket(nanos)], wait.weight.into());
    let (taken_by, entry) = used(table, index, lock, wait.stack);
    if let Some(entry) = entry {
        let weight = u64::from(wait.weight);
        add(&entry.contended, weight);
        add(&entry.wait_ns, weight * nanos);
        entry.wait_max.fetch_max(nanos, Relaxed);
    }
    taken_by
}

/// A lock that was not taken.
#[cold]
fn in_vain(table: &Table, object: Object<'_>, outcome: Outcome) {
    let Some((index, lock)) = table::lock_at(table, object.address) else {
        return;
    };
    if outcome.is_try {
        add(&lock.tries, 1);
        add(&lock.failed, 1);
    }
    if let Some(wait) = outcome.waited {
        add(&lock.timeouts, 1);
        note_wait(table, index, lock, wait);
    }
}

/// So many are measured at first.
const FIRST: u64 = 8;
/// From here on the gaps between measured acquisitions are random.
const RAMP: u32 = 128;

/// Measures one of many acquisitions that did not wait.
#[cold]
#[inline(never)]
fn measured(table: &Table, tally: &Tally) {
    let Some((index, lock)) = entry(table, tally) else {
        return;
    };
    let next = match lock.gap.load(Relaxed).max(1) {
        _ if lock.samples.load(Relaxed) < FIRST => 1,
        gap if gap < RAMP => 2 * gap,
        // Of 256 on average, since what a program does may have a period.
        _ => RAMP + Native::random() % (256 + 1),
    };
    lock.gap.store(next, Relaxed);
    let stands_for = tally.gap.load(Relaxed);
    tally.gap.store(next as u16, Relaxed);
    let locked = tally.locked.load(Relaxed) as u32;
    tally.sample_at.store(locked.wrapping_add(next), Relaxed);
    let stack = stack_of(table, &unwind::capture());
    let (taken_by, _) = used(table, index, lock, stack);
    measure(tally, lock, stands_for, taken_by);
}

/// The hold that begins is measured.
fn measure(tally: &Tally, lock: &Lock, weight: u16, taken_by: u32) {
    tally.first.store(lock.first.load(Relaxed), Relaxed);
    tally.weight.store(weight, Relaxed);
    tally.taken_by.store(taken_by, Relaxed);
}

/// The calling thread is about to release a lock that has room for its marks. Unless that needs
/// nothing more, returns the time, with which [`release`] has to follow.
#[inline]
pub(crate) fn released(address: u64, marks: Marks<'_>) -> Option<u64> {
    if let Some((_, tally)) = tally::found(address, marks) {
        if tally.since.load(Relaxed) == HELD {
            tally.since.store(0, Relaxed);
            return None;
        }
    }
    // Here, since the rest is seldom in a cache, and would make a short hold twice as long.
    Some(Native::now())
}

/// The calling thread is about to release a lock. It may know the time.
#[cold]
#[inline(never)]
pub(crate) fn release(address: u64, marks: Option<Marks<'_>>, now: Option<u64>) {
    let Some(table) = memory::table() else { return };
    let entry = || Some(marks_in(table::lock_at(table, address)?.1));
    let Some(marks) = marks.or_else(entry) else {
        return;
    };
    let Some((owner, tally)) = tally::of_holder(table, address, marks) else {
        return;
    };
    let since = tally.since.load(Relaxed);
    tally.since.store(0, Relaxed);
    if since > HELD {
        let nanos = now.unwrap_or_else(Native::now).saturating_sub(since);
        end_of_hold(table, owner, tally, nanos);
    }
}

fn end_of_hold(table: &Table, owner: &Owner, tally: &Tally, nanos: u64) {
    let Some((_, lock)) = entry(table, tally) else {
        return;
    };
    let weight = u32::from(tally.weight.load(Relaxed));
    let total = nanos.saturating_mul(u64::from(weight));
    bump(&lock.samples, 1);
    bump(&lock.held, u64::from(weight));
    bump(&lock.hold_ns, total);
    raise(&lock.hold_max, nanos);
    bump(&lock.holds[bucket(nanos)], weight.into());
    let taken_by = tally.taken_by.load(Relaxed) as usize;
    if let Some(entry) = taken_by.checked_sub(1).and_then(|at| table.uses.get(at)) {
        add(&entry.held, u64::from(weight));
        add(&entry.hold_ns, total);
    }
    if record::is_on() && owner.token.load(Relaxed) == token() {
        record::held(table, lock, owner, tally, nanos);
    }
}

/// The lock was destroyed, or its memory becomes another lock.
pub(crate) fn end(address: u64) {
    if let Some(table) = memory::table() {
        if let Some((index, lock)) = table::lock_at(table, address) {
            table::end(table, index, lock);
        }
    }
}

/// Adds the numbers of one lock or use to those of another.
fn merge(pairs: &[(&AtomicU64, &AtomicU64)]) {
    for (from, to) in pairs {
        let n = from.swap(0, Relaxed);
        if n != 0 {
            add(to, n);
        }
    }
}

/// The entry of the calling thread.
fn thread(table: &Table) -> Option<&Thread> {
    let token = token();
    table::thread_of(table, token).or_else(|| table::new_thread(table, token))
}

/// The calling thread has taken a reader-writer lock, which is only counted.
pub(crate) fn rwlock_taken() {
    if let Some(table) = memory::own_table() {
        let shards = &table.header.rwlocked;
        add(&shards[token() as usize % shards.len()].0, 1);
    }
}
