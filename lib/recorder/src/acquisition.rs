//! What happens to a lock: taken, waited for, released, ended.

use super::entries::{add, bump, number_in, raise};
use super::held::Handed;
use super::is_taken;
use super::locks::{self, lock_at, lock_of_holder, note_thread};
use super::misuses;
use super::object::{Marks, Object, marks_in};
use super::thread::token;
use super::threads::thread;
use super::uses::{stack_of, use_of, used};
use super::{held, make, memory, order, record, tally, unwind};
use core::ffi::c_int;
use core::sync::atomic::{AtomicU64, Ordering::*};
use kinlock_core::platform::Platform;
use kinlock_linux::Native;
use kinlock_report::{
    FOREIGN, HELD, Lock, NOT_HELD, Owner, READING, RELOCKED, RWLOCK, Table, Tally, bucket,
    waits_per_sample,
};

/// How an acquisition went.
#[derive(Clone, Copy)]
pub struct Outcome {
    /// The program's call does not wait.
    pub is_try: bool,
    /// It waits without a limit.
    pub is_endless: bool,
    /// The wait, if the lock was found taken.
    pub waited: Option<Wait>,
    /// What the program's call returns.
    pub result: c_int,
    /// When the program asked for the lock, if that is known.
    pub asked: Option<u64>,
}

impl Outcome {
    /// A call that waits without a limit has taken the lock at once.
    pub const AT_ONCE: Self = Outcome {
        is_try: false,
        is_endless: true,
        waited: None,
        result: 0,
        asked: None,
    };
}

/// A wait for a lock.
#[derive(Clone, Copy)]
pub struct Wait {
    since: u64,
    until: u64,
    /// The number of waits that this one stands for if it is measured; 0: it is not measured.
    weight: u32,
    /// The call stack of a measured wait; 0: none.
    stack: u32,
    /// For a reader-writer lock: who held it when the wait began.
    behind: Behind,
    /// The table that the stack is in.
    tag: usize,
}

/// Who holds a reader-writer lock for which a thread is going to wait: the index in
/// [`Lock::behind`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Behind {
    /// Readers.
    Readers = 0,
    /// A writer.
    Writer = 1,
}

impl Wait {
    /// Begins a wait of the calling thread for the object whose entry has this address. `one_in`
    /// returns `n` if one wait in `n` is measured.
    pub(super) fn at(address: u64, one_in: impl FnOnce(&Table) -> u32) -> Self {
        let mut wait = Wait {
            since: Native::now(),
            until: 0,
            weight: 0,
            stack: 0,
            behind: Behind::Readers,
            tag: 0,
        };
        if let Some(table) = make::own_table() {
            if let Some(thread) = thread(table) {
                thread.waits_since.store(wait.since, Relaxed);
                thread.waits_for.store(address, Relaxed);
            }
            wait.tag = memory::tag();
            let one_in = one_in(table);
            if one_in == 1 || Native::random() % one_in == 0 {
                wait.weight = one_in;
                wait.stack = stack_of(table, &unwind::capture());
            }
        }
        wait
    }

    /// The same wait, for a reader-writer lock that is held in this way.
    pub fn behind(self, behind: Behind) -> Self {
        Wait { behind, ..self }
    }

    /// Begins a wait of the calling thread. If the wait is measured, the thread looks up its
    /// callers now, while it would wait anyway, and not later, while it holds the lock.
    /// `is_endless`: the wait has no limit.
    #[cold]
    #[inline(never)]
    pub fn begin(object: Object<'_>, is_endless: bool) -> Self {
        Wait::at(object.address, |table| {
            // Shows a wait that does not end. A lock with marks of its own gets its entry from a
            // thread that holds it.
            if object.marks.is_none() {
                lock_of_holder(table, object);
            }
            // For a reader-writer lock both have been noted already.
            if object.kind & RWLOCK == 0 {
                if !object.travels {
                    tell_of_relock(table, object);
                }
                if is_endless && order::is_on() {
                    order::waits(table, object);
                }
            }
            waits_per_sample(tally::waits_so_far(table, object))
        })
    }

    /// Ends the wait: the thread has the lock, or its time limit has expired.
    pub fn end(self) -> Self {
        let ended = Wait {
            until: Native::now(),
            ..self
        };
        match memory::table() {
            // The wait began in another window, or before this one.
            Some(table) if memory::tag() != self.tag => Wait {
                since: self.since.max(table.header.begin.load(Relaxed)),
                weight: 0,
                stack: 0,
                ..ended
            },
            _ => ended,
        }
    }

    /// Drops the wait, which was none: the lock's function returned an error at once.
    pub fn discard(self) {
        if let Some(thread) = memory::table().and_then(thread) {
            thread.waits_for.store(0, Relaxed);
        }
    }

    /// How long the wait took.
    pub fn nanos(&self) -> u64 {
        self.until.saturating_sub(self.since)
    }
}

/// Notes misuse if the calling thread, which is going to wait for a lock, holds it.
fn tell_of_relock(table: &Table, object: Object<'_>) {
    if let Some((owner, tally)) = tally::held_by_caller(table, object) {
        let holder = misuses::holder_by(table, owner, tally);
        misuses::note(table, RELOCKED, (object.address, object.kind), holder);
    }
}

/// Notes that an acquisition has ended. If it succeeded, the calling thread holds the lock.
pub fn acquisition(object: Object<'_>, outcome: Outcome) {
    if let Some(table) = make::own_table() {
        count_acquisition(table, object, outcome);
        // For a mutex only the lock order notes what is held.
        if object.kind & RWLOCK != 0 && is_taken(outcome.result) {
            let (address, mode) = object.lock_and_mode();
            let [serial, stack] = match order::is_on() {
                true => order::taken_rwlock(table, object),
                false => [0, 0],
            };
            held::push(table, address, serial, stack, mode);
        }
    }
}

fn count_acquisition(table: &Table, object: Object<'_>, outcome: Outcome) {
    if let Some(wait) = outcome.waited {
        has_waited(table, wait.nanos());
    }
    if !is_taken(outcome.result) {
        return not_taken(table, object, outcome);
    }
    // The holder of a robust mutex has ended, at a time that is not known: its hold does not count.
    if outcome.result == libc::EOWNERDEAD {
        if let Some((_, tally)) = tally::of_holder(table, object) {
            tally.since.store(0, Relaxed);
        }
    }
    let waits = outcome.waited.is_some();
    match object.marks {
        Some(marks) => {
            if let Some(shared) = locks::shared_entry(table, object, marks, waits) {
                if outcome.is_try {
                    add(&shared.tries, 1);
                }
                if object.is_nested {
                    return add(&shared.nested, 1);
                }
                return without_tally(table, shared, object, marks, outcome.waited);
            }
        }
        None if locks::is_left_out(table, object, waits) => {
            // A recursive lock that is taken again is the same acquisition.
            return add(&table.header.dropped_locks, u64::from(!object.is_nested));
        }
        None => {}
    }
    if object.is_nested || outcome.is_try {
        let Some(lock) = lock_of_holder(table, object) else {
            return add(&table.header.dropped_locks, 1);
        };
        if outcome.is_try {
            add(&lock.tries, 1);
        }
        if object.is_nested {
            return bump(&lock.nested, 1);
        }
    }
    let entry = || lock_of_holder(table, object).map(marks_in);
    let Some(marks) = object.marks.or_else(entry) else {
        return add(&table.header.dropped_locks, 1);
    };
    match tally::new(table, object, marks) {
        Some((owner, tally)) if object.is_reading() => {
            count_reading(table, owner, tally, outcome.waited);
        }
        Some((owner, tally)) => count(table, owner, tally, marks, outcome),
        None => match lock_of_holder(table, object) {
            Some(entry) => without_tally(table, entry, object, marks, outcome.waited),
            None => add(&table.header.dropped_locks, 1),
        },
    }
    if order::is_on() && object.kind & RWLOCK == 0 {
        order::taken(table, object, outcome.is_endless);
    }
}

/// Adds a wait that has ended to the numbers of the calling thread.
fn has_waited(table: &Table, nanos: u64) {
    if let Some(thread) = thread(table) {
        thread.waits_for.store(0, Relaxed);
        bump(&thread.contended, 1);
        bump(&thread.wait_ns, nanos);
        raise(&thread.wait_max, nanos);
    }
}

/// Notes that a lock with marks of its own was taken after a wait. Other threads probably wait for
/// the lock now, so this function prolongs their wait. Most waits are only counted.
pub fn taken_after(object: Object<'_>, wait: Wait) {
    if counted_after(object, wait).is_none() {
        taken(object, Some(wait), None);
    }
}

/// Notes that a lock was taken by a call that waits without a limit.
fn taken(object: Object<'_>, waited: Option<Wait>, asked: Option<u64>) {
    let outcome = Outcome {
        waited,
        asked,
        ..Outcome::AT_ONCE
    };
    acquisition(object, outcome);
}

/// Counts an acquisition after a wait. `None`: it has to be counted by [`acquisition`], since more
/// than counting is needed.
#[inline]
fn counted_after(object: Object<'_>, wait: Wait) -> Option<()> {
    let (table, marks) = (memory::table()?, object.marks?);
    let (owner, tally) = tally::found(object.address, marks.serial)?;
    let lock = entry(table, tally)?;
    let waits = tally::waits_of(owner, tally)?;
    let sample_at = tally.sample_at.load(Relaxed);
    let locked = tally.locked.load(Relaxed).wrapping_add(1);
    let is_measured = wait.weight != 0 || sample_at == locked as u32;
    if is_measured || memory::has_domains() || wait.nanos() > lock.wait_max.load(Relaxed) {
        return None;
    }
    // The next measured acquisition stands for acquisitions without a wait; this is not one.
    tally.sample_at.store(sample_at.wrapping_add(1), Relaxed);
    holds(owner, tally, marks, locked);
    bump(&waits.count, 1);
    bump(&waits.nanos, wait.nanos());
    has_waited(table, wait.nanos());
    Some(())
}

/// Notes in the tally and the marks that the calling thread holds the lock; `locked` is the number
/// of this acquisition.
#[inline]
pub(super) fn holds(owner: &Owner, tally: &Tally, marks: Marks<'_>, locked: u64) {
    tally.locked.store(locked, Relaxed);
    tally.since.store(HELD, Relaxed);
    // Without a branch: the processor cannot predict which thread held the lock last.
    let (last, token) = (marks.last.load(Relaxed), owner.token.load(Relaxed));
    bump(&tally.changed, ((last != token) & (last != 0)).into());
    marks.last.store(token, Relaxed);
}

/// Counts that a lock with marks of its own was taken without a wait. Returns whether that was
/// possible; if not, more than counting is needed, and the caller has to call [`taken_at_once`].
#[inline]
pub fn count_taken(address: u64, marks: Marks<'_>) -> bool {
    counted(address, marks).is_some()
}

/// Like [`count_taken`], for a call that does not wait.
#[inline]
pub fn count_tried(address: u64, marks: Marks<'_>) -> bool {
    let Some(tally) = counted(address, marks) else {
        return false;
    };
    if let Some(lock) = entry_of(tally) {
        add(&lock.tries, 1);
    }
    true
}

/// Counts that a recursive lock with marks of its own was taken by the thread that holds it.
/// Returns whether that was possible.
#[inline]
pub fn count_nested(address: u64, marks: Marks<'_>) -> bool {
    let lock = tally::found(address, marks.serial).and_then(|(_, tally)| entry_of(tally));
    lock.inspect(|lock| bump(&lock.nested, 1)).is_some()
}

/// Counts an acquisition without a wait, if no more than counting is needed. Returns the tally.
#[inline]
fn counted(address: u64, marks: Marks<'_>) -> Option<&'static Tally> {
    let (owner, tally) = tally::found(address, marks.serial)?;
    let locked = next(tally)?;
    if memory::has_domains() && marks.last.load(Relaxed) != owner.token.load(Relaxed) {
        return None;
    }
    holds(owner, tally, marks, locked);
    Some(tally)
}

/// The number of the acquisition that is not counted yet, unless it is to be measured.
#[inline]
pub(super) fn next(tally: &Tally) -> Option<u64> {
    let locked = tally.locked.load(Relaxed).wrapping_add(1);
    (tally.sample_at.load(Relaxed) != locked as u32).then_some(locked)
}

/// Notes that a lock was taken without a wait.
#[cold]
#[inline(never)]
pub fn taken_at_once(object: Object<'_>) {
    // The clock is read first, since what follows takes time.
    taken(object, None, record::is_on().then(Native::now));
}

/// Notes that a wait for a condition variable, by the C library, has taken the mutex again.
pub fn taken_again(object: Object<'_>) {
    let is_nested = false;
    taken_at_once(Object {
        is_nested,
        ..object
    });
}

/// Counts an acquisition of a lock for which the calling thread has a tally.
fn count(table: &Table, owner: &Owner, tally: &Tally, marks: Marks<'_>, outcome: Outcome) {
    let waited = outcome.waited;
    bump(&tally.locked, 1);
    tally.since.store(HELD, Relaxed);
    let recorded = entry(table, tally).filter(|_| record::is_on());
    if let Some(lock) = recorded {
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
            // The next measured acquisition stands for acquisitions without a wait; this is not
            // one.
            tally.sample_at.store(sample_at.wrapping_add(1), Relaxed);
            let taken_by = after_wait(table, owner, tally, wait);
            if wait.weight == 0 {
                return;
            }
            measure(table, tally, wait.weight as u16, taken_by);
        }
        None if sample_at == tally.locked.load(Relaxed) as u32 => {
            if let Some((weight, taken_by)) = sampled(table, tally) {
                measure(table, tally, weight, taken_by);
            }
        }
        None => return,
    }
    if let Some(lock) = recorded {
        record::follows(table, lock, tally, last, token);
    }
    // The clock is read last, so that the time of measuring is no part of the hold.
    tally.since.store(Native::now(), Relaxed);
}

/// Counts an acquisition of a lock that several threads can hold at a time, and a thread more than
/// once: then one hold lasts from the first acquisition to the last release.
fn count_reading(table: &Table, owner: &Owner, tally: &Tally, waited: Option<Wait>) {
    bump(&tally.locked, 1);
    let (locked, sample_at) = (tally.locked.load(Relaxed), tally.sample_at.load(Relaxed));
    let is_again = tally.since.load(Relaxed) != 0;
    if !is_again {
        tally.since.store(HELD, Relaxed);
    }
    let begins = match waited {
        Some(wait) => {
            tally.sample_at.store(sample_at.wrapping_add(1), Relaxed);
            let (weight, taken_by) = (wait.weight as u16, after_wait(table, owner, tally, wait));
            (weight != 0).then_some((weight, taken_by))
        }
        None if sample_at != locked as u32 => None,
        None if is_again => {
            tally.sample_at.store(sample_at.wrapping_add(1), Relaxed);
            None
        }
        None => sampled(table, tally),
    };
    if let (Some((weight, taken_by)), false) = (begins, is_again) {
        measure(table, tally, weight, taken_by);
        // The clock is read last, so that the time of measuring is no part of the hold.
        tally.since.store(Native::now(), Relaxed);
    }
}

/// Counts, by `add`, that the lock has another holder than before (`last`; 0: it had none).
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

/// Counts an acquisition in the entry of the lock, and not in a tally: the thread has none for it,
/// or the lock shares its entry with others. The hold is not measured.
#[cold]
#[inline(never)]
fn without_tally(
    table: &Table,
    lock: &Lock,
    object: Object<'_>,
    marks: Marks<'_>,
    waited: Option<Wait>,
) {
    add(&lock.locked, 1);
    match thread(table) {
        Some(thread) => bump(&thread.locked, 1),
        None => add(&table.header.dropped_threads, 1),
    }
    let token = token();
    note_thread(lock, token);
    let last = marks.last.load(Relaxed);
    if last != token && !object.is_reading() {
        marks.last.store(token, Relaxed);
        hand_off(last, marks, &lock.changed, &lock.remote, add);
    }
    if let Some(wait) = waited {
        note_wait(table, lock, wait);
    }
}

/// The entry of the lock to which a tally belongs, in the tally's table.
#[inline]
pub(super) fn entry_of(tally: &'static Tally) -> Option<&'static Lock> {
    entry(memory::table_with(tally)?, tally)
}

/// The entry of the lock to which a tally of this table belongs.
#[inline]
fn entry<'a>(table: &'a Table, tally: &Tally) -> Option<&'a Lock> {
    let at = (tally.lock.load(Relaxed) as usize).checked_sub(1)?;
    table.locks.get(at)
}

/// Counts a wait for a lock for which the calling thread has a tally. Returns the use of the lock
/// by these callers if the wait is measured, or 0.
#[cold]
#[inline(never)]
fn after_wait(table: &Table, owner: &Owner, tally: &Tally, wait: Wait) -> u32 {
    if let Some(waits) = tally::waits_of(owner, tally) {
        bump(&waits.count, 1);
        bump(&waits.nanos, wait.nanos());
    }
    match entry(table, tally) {
        Some(lock) => measured_wait(table, lock, wait),
        None => 0,
    }
}

/// Counts a wait by a thread that has no tally for the lock.
pub(super) fn note_wait(table: &Table, lock: &Lock, wait: Wait) {
    add(&lock.contended, 1);
    add(&lock.wait_ns, wait.nanos());
    measured_wait(table, lock, wait);
}

/// Adds a wait to the longest one and, if it is measured, to the histogram and to the use of the
/// lock by these callers. Returns that use, or 0.
fn measured_wait(table: &Table, lock: &Lock, wait: Wait) -> u32 {
    let nanos = wait.nanos();
    if nanos > lock.wait_max.load(Relaxed) {
        lock.wait_max.fetch_max(nanos, Relaxed);
    }
    if lock.kind.load(Relaxed) & RWLOCK != 0 {
        let behind = &lock.behind[wait.behind as usize];
        add(&behind.count, 1);
        add(&behind.nanos, nanos);
    }
    if wait.weight == 0 {
        return 0;
    }
    add(&lock.waits[bucket(nanos)], wait.weight.into());
    let Some(entry) = used(table, lock, wait.stack) else {
        return 0;
    };
    let weight = u64::from(wait.weight);
    add(&entry.contended, weight);
    add(&entry.wait_ns, weight * nanos);
    entry.wait_max.fetch_max(nanos, Relaxed);
    number_in(&table.uses, entry)
}

/// Counts an acquisition that has failed.
#[cold]
fn not_taken(table: &Table, object: Object<'_>, outcome: Outcome) {
    let known = lock_at(table, object.address).or_else(|| match object.marks {
        Some(_) => locks::noted_entry(table, object),
        // For example the side of a reader-writer lock that nobody has taken yet.
        None => lock_of_holder(table, object),
    });
    let Some(lock) = known else {
        return;
    };
    if outcome.is_try {
        add(&lock.tries, 1);
        failed_try(table, lock);
    }
    if let Some(wait) = outcome.waited {
        add(&lock.timeouts, 1);
        note_wait(table, lock, wait);
    }
}

/// Counts a try that found the lock taken. Like waits, all tries are measured at first, then fewer.
fn failed_try(table: &Table, lock: &Lock) {
    let before = lock.failed.fetch_add(1, Relaxed);
    let one_in = waits_per_sample(before);
    if one_in != 1 && Native::random() % one_in != 0 {
        return;
    }
    let stack = stack_of(table, &unwind::capture());
    if stack == 0 {
        return;
    }
    // Not the stack by which the lock was first taken: this thread does not have it.
    if let Some(entry) = use_of(table, lock, stack) {
        add(&entry.failed, one_in.into());
    }
}

/// How many acquisitions of a lock are measured one after the other at first. Then the gaps between
/// measured ones double, up to [`RANDOM_FROM`].
const ALL_MEASURED: u64 = 8;
/// From this gap on, gaps are random.
const RANDOM_FROM: u32 = 128;

/// Chooses the next acquisition without a wait to be measured, after the one that is measured now.
/// Returns the weight of this one, and the use of the lock by its callers, or 0.
#[cold]
#[inline(never)]
fn sampled(table: &Table, tally: &Tally) -> Option<(u16, u32)> {
    let lock = entry(table, tally)?;
    let next = match lock.gap.load(Relaxed).max(1) {
        _ if lock.samples.load(Relaxed) < ALL_MEASURED => 1,
        gap if gap < RANDOM_FROM => 2 * gap,
        // 256 on average. Random, since the program may have a period.
        _ => RANDOM_FROM + Native::random() % (256 + 1),
    };
    lock.gap.store(next, Relaxed);
    let weight = tally.gap.load(Relaxed);
    tally.gap.store(next as u16, Relaxed);
    let locked = tally.locked.load(Relaxed) as u32;
    tally.sample_at.store(locked.wrapping_add(next), Relaxed);
    let stack = stack_of(table, &unwind::capture());
    let taken_by = used(table, lock, stack);
    Some((
        weight,
        taken_by.map_or(0, |taken_by| number_in(&table.uses, taken_by)),
    ))
}

/// Notes in the tally that the hold which begins now is measured.
fn measure(table: &Table, tally: &Tally, weight: u16, taken_by: u32) {
    if let Some(lock) = entry(table, tally) {
        tally.first.store(lock.first.load(Relaxed), Relaxed);
    }
    tally.weight.store(weight, Relaxed);
    tally.taken_by.store(taken_by, Relaxed);
}

/// Notes that the calling thread is about to release a lock with marks of its own. Returns whether
/// that was possible; if not, the caller has to call [`release`].
#[inline]
pub fn count_release(address: u64, marks: Marks<'_>) -> bool {
    let found = tally::found_of_holder(address, marks.serial);
    let is_counted = |tally: &Tally| tally.since.load(Relaxed) == HELD;
    match found {
        Some((_, tally)) if is_counted(tally) => tally.since.store(0, Relaxed),
        _ => return false,
    }
    true
}

/// Notes that the calling thread is about to release a lock. `now`: the time, if the caller knows
/// it; `is_held`: whether the lock's own word says that a thread holds it.
#[cold]
#[inline(never)]
pub fn release(object: Object<'_>, now: Option<u64>, is_held: bool) {
    let Some(table) = memory::table() else { return };
    let Object { address, kind, .. } = object;
    if order::is_on() {
        held::remove(address);
    }
    if !is_held {
        misuses::note(table, NOT_HELD, (address, kind), [0, 0]);
    }
    let Some((owner, tally)) = tally::of_holder(table, object) else {
        return;
    };
    let since = tally.since.load(Relaxed);
    let is_foreign = is_held && since != 0 && owner.token.load(Relaxed) != token();
    if is_foreign && object.travels {
        held::note_handed_over(Handed::Mutex);
    } else if is_foreign {
        let holder = misuses::holder_by(table, owner, tally);
        misuses::note(table, FOREIGN, (address, kind), holder);
    }
    tally.since.store(0, Relaxed);
    if since > HELD {
        let nanos = now.unwrap_or_else(Native::now).saturating_sub(since);
        end_of_hold(table, owner, tally, nanos);
    }
}

/// Adds a measured hold to the numbers of its lock and its use.
pub(super) fn end_of_hold(table: &Table, owner: &Owner, tally: &Tally, nanos: u64) {
    let Some(lock) = entry(table, tally) else {
        return;
    };
    let weight = u64::from(tally.weight.load(Relaxed));
    // A sample stands for hundreds of acquisitions. If it is the longest so far, the others are
    // assumed to be as long as the longest before: a thread may have lost its CPU once.
    let usual = nanos.min(lock.hold_max.load(Relaxed));
    let total = usual
        .saturating_mul(weight.saturating_sub(1))
        .saturating_add(nanos);
    let has_many_holders = lock.address.load(Relaxed) & READING != 0;
    // The holds of readers may end at the same time.
    let count = match has_many_holders {
        true => add,
        false => bump,
    };
    count(&lock.samples, 1);
    count(&lock.held, weight);
    count(&lock.hold_ns, total);
    match has_many_holders {
        true => drop(lock.hold_max.fetch_max(nanos, Relaxed)),
        false => raise(&lock.hold_max, nanos),
    }
    count(&lock.holds[bucket(usual)], weight.saturating_sub(1));
    count(&lock.holds[bucket(nanos)], 1);
    let taken_by = tally.taken_by.load(Relaxed) as usize;
    if let Some(entry) = taken_by.checked_sub(1).and_then(|at| table.uses.get(at)) {
        add(&entry.held, weight);
        add(&entry.hold_ns, total);
    }
    if record::is_on() && !has_many_holders && owner.token.load(Relaxed) == token() {
        record::held(table, lock, owner, tally, nanos);
    }
}

/// Notes that the lock at this address was destroyed, or its memory is initialised as another lock.
pub fn lock_ended(address: u64) {
    if let Some(table) = memory::table() {
        if let Some(lock) = lock_at(table, address) {
            locks::end(table, lock);
        }
    }
}

#[cfg(test)]
mod tests;
