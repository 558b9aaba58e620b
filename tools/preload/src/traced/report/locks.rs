//! Entries of locks, and merging those of locks that end.

use super::entries::{Array, add, merge, number_at, places, scattered};
use super::memory::provide;
use super::modules;
use super::object::Object;
use super::uses::use_of;
use core::sync::atomic::{AtomicU32, Ordering::*};
use kinlock_report::{ENDED, FREED, LOCKS, Lock, Table};

/// The entry of a lock, and its index plus 1.
#[inline]
pub(super) fn lock_at(table: &Table, address: u64) -> Option<(u32, &Lock)> {
    for place in places(&table.lock_index, scattered(address)) {
        let at = number_at(table, place)?;
        let lock = &table.locks[at];
        if lock.address.load(Relaxed) == address {
            return Some((at as u32 + 1, lock));
        }
    }
    None
}

/// The same, called by the lock's holder: an entry is added if there is none. `None`: there is no
/// room.
#[inline]
pub(super) fn lock_of_holder<'a>(table: &'a Table, object: Object<'_>) -> Option<(u32, &'a Lock)> {
    lock_at(table, object.address).or_else(|| new_lock(table, object))
}

/// The next serial number: 1, 2, ... A few locks that are used together are likely to have numbers
/// close to each other, and so different places among a thread's tallies.
fn new_serial() -> u32 {
    static SERIALS: AtomicU32 = AtomicU32::new(0);
    loop {
        let serial = SERIALS.fetch_add(1, Relaxed).wrapping_add(1);
        if serial != 0 {
            return serial;
        }
    }
}

#[cold]
#[inline(never)]
fn new_lock<'a>(table: &'a Table, object: Object<'_>) -> Option<(u32, &'a Lock)> {
    let locks = Array {
        index: &table.lock_index,
        used: &table.header.locks_used,
        freed: &table.header.locks_freed,
        size: LOCKS,
        hash_of: |key| scattered(key & !ENDED),
        key_at: |at: usize| &table.locks[at].address,
        provide: |at: usize| provide(table, &table.locks[at]),
    };
    let fill = |at: usize| {
        table.locks[at].kind.store(object.kind, Relaxed);
        table.locks[at].serial.store(new_serial(), Relaxed);
    };
    let (at, _) = locks.place(table, object.address, fill)?;
    // So that a lock that is a static variable of a shared object can be named.
    modules::note(table, object.address);
    Some((at as u32 + 1, &table.locks[at]))
}

/// Notes that the thread has taken the lock. Called by its holder.
pub(super) fn note_thread(lock: &Lock, token: u32) {
    let number = token as usize % kinlock_report::THREAD_BITS;
    let word = &lock.threads[number / 64];
    let bit = 1 << (number % 64);
    if word.load(Relaxed) & bit == 0 {
        word.store(word.load(Relaxed) | bit, Relaxed);
    }
}

// ---- locks that end -------------------------------------

/// How many ended locks that were first taken by the same callers keep entries of their own.
const KEPT_PER_STACK: u32 = 64;
/// How many ended locks keep entries of their own in all.
const KEPT_IN_ALL: u32 = LOCKS as u32 / 4;

/// A lock has ended. Either its entry stays, marked as ended, or its numbers are added to an ended
/// lock that was first taken by the same callers, and its entry becomes free. So a program may use
/// any number of locks one after the other.
#[cold]
pub(super) fn end(table: &Table, index: u32, lock: &Lock) {
    let first = lock.first.load(Relaxed) as usize;
    let stack = first.checked_sub(1).and_then(|at| table.stacks.get(at));
    let in_all = table.header.ended.fetch_add(1, Relaxed);
    let others = stack.and_then(|stack| {
        let count = stack.ended_count.fetch_add(1, Relaxed);
        if count < KEPT_PER_STACK && in_all < KEPT_IN_ALL {
            return None;
        }
        let joined = stack.ended.compare_exchange(0, index, AcqRel, Acquire);
        let index = joined.err()?;
        Some((index, table.locks.get(index as usize - 1)?))
    });
    match others {
        Some((index, others)) => {
            add(&others.ended, 1);
            join(table, lock, others, index);
            lock.address.store(FREED, Release);
            table.header.locks_freed.fetch_add(1, Relaxed);
        }
        None => {
            add(&lock.ended, 1);
            let address = lock.address.load(Relaxed);
            lock.address.store(address | ENDED, Relaxed);
        }
    }
}

/// Moves all numbers of an ended lock to another ended lock, `others`, and clears its entry.
fn join(table: &Table, lock: &Lock, others: &Lock, index: u32) {
    let mut at = lock.uses.swap(0, Acquire);
    while let Some(from) = at.checked_sub(1).and_then(|at| table.uses.get(at as usize)) {
        let stack = from.key.load(Relaxed) as u32;
        if let (_, Some(to)) = use_of(table, index, others, stack) {
            to.wait_max.fetch_max(from.wait_max.load(Relaxed), Relaxed);
            merge(&[
                (&from.contended, &to.contended),
                (&from.wait_ns, &to.wait_ns),
                (&from.held, &to.held),
                (&from.hold_ns, &to.hold_ns),
            ]);
        }
        at = from.before.swap(0, Relaxed);
        for number in [
            &from.contended,
            &from.wait_ns,
            &from.wait_max,
            &from.held,
            &from.hold_ns,
        ] {
            number.store(0, Relaxed);
        }
        from.key.store(FREED, Release);
        table.header.uses_freed.fetch_add(1, Relaxed);
    }
    for (from, to) in [
        (&lock.wait_max, &others.wait_max),
        (&lock.hold_max, &others.hold_max),
    ] {
        to.fetch_max(from.swap(0, Relaxed), Relaxed);
    }
    merge(&[
        (&lock.locked, &others.locked),
        (&lock.changed, &others.changed),
        (&lock.remote, &others.remote),
        (&lock.held, &others.held),
        (&lock.hold_ns, &others.hold_ns),
        (&lock.samples, &others.samples),
        (&lock.nested, &others.nested),
        (&lock.contended, &others.contended),
        (&lock.wait_ns, &others.wait_ns),
        (&lock.timeouts, &others.timeouts),
        (&lock.tries, &others.tries),
        (&lock.failed, &others.failed),
    ]);
    for (from, to) in lock.threads.iter().zip(&others.threads) {
        to.fetch_or(from.swap(0, Relaxed), Relaxed);
    }
    let classes = lock.waits.iter().zip(&others.waits);
    for (from, to) in classes.chain(lock.holds.iter().zip(&others.holds)) {
        let n = from.swap(0, Relaxed);
        if n != 0 {
            to.fetch_add(n, Relaxed);
        }
    }
    for number in [
        &lock.record,
        &lock.serial,
        &lock.last,
        &lock.domain,
        &lock.gap,
        &lock.first,
    ] {
        number.store(0, Relaxed);
    }
}
