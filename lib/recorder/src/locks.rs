//! Entries of locks: sharing entries when they become scarce, and merging entries of locks that
//! end.

use super::entries::{Array, add, merge, number_at, number_in, places, scattered};
use super::memory::{self, TAGS};
use super::object::{Marks, Object, marks_in};
use super::places::place_of;
use super::threads::name_program;
use super::uses::{stack_of, use_of};
use super::{modules, unwind};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use kinlock_core::platform::Platform;
use kinlock_linux::Native;
use kinlock_report::{
    BARRIER, CONDVAR, ENDED, FREED, JOIN, LOCKS, Lock, OTHERS, READING, RWLOCK, SEMAPHORE, SPIN,
    STACKS, Table, Use,
};

/// The entry of a lock.
#[inline]
pub(super) fn lock_at(table: &Table, address: u64) -> Option<&Lock> {
    for place in places(&table.lock_index, scattered(address)) {
        let at = number_at(table, place, LOCKS)?;
        let lock = &table.locks[at];
        if lock.address.load(Relaxed) == address {
            return Some(lock);
        }
    }
    None
}

/// The marks of a lock: its own, or those in its entry. `None`: it has neither yet.
pub(super) fn marks_of<'a>(table: &'a Table, object: Object<'a>) -> Option<Marks<'a>> {
    let entry = || lock_at(table, object.address).map(marks_in);
    object.marks.or_else(entry)
}

/// The entry of a lock, called by its holder: an entry is added if there is none, and its number
/// noted in the marks. `None`: there is no room.
///
/// A lock that has an entry has noted that. So if a lock that has noted nothing finds an entry at
/// its address, the entry belongs to a lock that was there before and that ended without a call, as
/// a `std::mutex` of C++ does. A lock without marks cannot be told from the one before it.
#[inline]
pub(super) fn lock_of_holder<'a>(table: &'a Table, object: Object<'_>) -> Option<&'a Lock> {
    let mut known = lock_at(table, object.address);
    let Some(marks) = object.marks else {
        return known.or_else(|| new_lock(table, object));
    };
    if marks.serial.load(Relaxed) == 0 {
        if let Some(former) = known.take() {
            end(table, former);
        }
    }
    let lock = known.or_else(|| new_lock(table, object))?;
    marks.serial.store(lock.serial.load(Relaxed), Relaxed);
    Some(lock)
}

/// The next serial number: 1, 2, ... A few locks that are used together are likely to have numbers
/// close to each other, and so different places among a thread's tallies.
fn new_serial() -> u32 {
    static SERIALS: AtomicU32 = AtomicU32::new(0);
    loop {
        let serial = SERIALS.fetch_add(1, Relaxed).wrapping_add(1) & !OTHER;
        if serial != 0 {
            return serial;
        }
    }
}

/// The hash of an entry's key. Nobody searches for a lock that has ended. So its hash is another
/// one, as if its place in the index were not its own, and the place can be taken: otherwise 64
/// ended locks of one address would leave no place for the next lock there.
fn hash_of_lock(key: u64) -> u64 {
    match key & OTHERS {
        ENDED => scattered(key & !ENDED) + LOCKS as u64,
        _ => scattered(key),
    }
}

/// All entries.
fn entries(table: &Table) -> Array<'_, Lock> {
    Array {
        entries: &table.locks,
        index: &table.lock_index,
        used: &table.header.locks_used,
        freed: &table.header.locks_freed,
        key_of: |lock: &Lock| &lock.address,
        hash_of: hash_of_lock,
    }
}

#[cold]
#[inline(never)]
fn new_lock<'a>(table: &'a Table, object: Object<'_>) -> Option<&'a Lock> {
    let fill = |new: &Lock| {
        new.kind.store(object.kind, Relaxed);
        let place = object.place.map_or(0, |place| place_of(table, place));
        new.place.store(place, Relaxed);
        new.serial.store(new_serial(), Relaxed);
    };
    let (lock, _) = entries(table).place(table, object.address, fill)?;
    // Needed to name a lock that is a static variable of a shared object.
    modules::note(table, object.address & !READING);
    name_program(&table.header);
    Some(lock)
}

// ---- locks without an entry -----------------------------

/// From this number of used entries on, a lock gets an entry only if it seems to matter.
const CROWDED: u32 = LOCKS as u32 / 4 * 3;
/// Then a lock for which nobody waits gets an entry by chance: at one acquisition in this number.
const ADMITTED: u32 = 64;

/// Set in the serial number that a lock without an entry notes: the rest of the number is the
/// table's tag and the stack by which locks share an entry.
const OTHER: u32 = 1 << 31;
const STACK_BITS: u32 = 16;

const _: () = assert!(STACKS < 1 << STACK_BITS && TAGS <= 1 << (31 - STACK_BITS));

/// What a lock without an entry notes in the place of a serial number.
fn note_of(stack: u32) -> u32 {
    OTHER | (memory::tag() as u32) << STACK_BITS | stack
}

/// The stack by which a lock shares an entry of this table, if the lock has noted one.
fn noted_stack(serial: u32) -> Option<u32> {
    let stack = serial & ((1 << STACK_BITS) - 1);
    (serial & OTHER != 0 && serial == note_of(stack)).then_some(stack)
}

/// The entry that a lock shares with others, if it does: the table is nearly
/// full, and the lock has not been seen to matter. `waits`: a thread has waited for it.
///
/// A program may take many thousands of locks when it starts, and never again. Locks that it takes
/// later must find a place, too. So the last quarter of the entries is for locks that are waited
/// for, and for those that are taken often; the others share one entry per stack by which they were
/// first taken, and nothing that they do is lost. Called by the lock's holder.
pub(super) fn shared_entry<'a>(
    table: &'a Table,
    object: Object<'_>,
    marks: Marks<'_>,
    waits: bool,
) -> Option<&'a Lock> {
    let noted = noted_stack(marks.serial.load(Relaxed));
    if noted.is_none() && !is_crowded(table) || lock_at(table, object.address).is_some() {
        return None;
    }
    if matters(waits) {
        if let Some(own) = new_lock(table, object) {
            marks.serial.store(own.serial.load(Relaxed), Relaxed);
            if let Some(stack) = noted {
                own.first.store(stack, Relaxed);
                if let Some(shared) = entry_of_others(table, stack, object.kind) {
                    let less = |others: u64| Some(others.saturating_sub(1));
                    // It cannot fail.
                    let _ = shared.ended.fetch_update(Relaxed, Relaxed, less);
                }
            }
            return None;
        }
    }
    let stack = noted.unwrap_or_else(|| stack_of(table, &unwind::capture()));
    let shared = entry_of_others(table, stack, object.kind)?;
    if noted.is_none() {
        add(&shared.ended, 1);
        marks.serial.store(note_of(stack), Relaxed);
    }
    Some(shared)
}

fn is_crowded(table: &Table) -> bool {
    let header = &table.header;
    let used = header.locks_used.load(Relaxed);
    used.saturating_sub(header.locks_freed.load(Relaxed)) >= CROWDED
}

/// Whether a lock that has no entry is to get one.
fn matters(waits: bool) -> bool {
    waits || Native::random() % ADMITTED == 0
}

/// Whether a lock that can note nothing stays without an entry, so that what it does is lost.
pub(super) fn is_left_out(table: &Table, object: Object<'_>, waits: bool) -> bool {
    is_crowded(table) && lock_at(table, object.address).is_none() && !matters(waits)
}

/// The entry that a lock shares with others, if it has noted that. Called by any thread.
pub(super) fn noted_entry<'a>(table: &'a Table, object: Object<'_>) -> Option<&'a Lock> {
    let stack = noted_stack(object.marks?.serial.load(Relaxed))?;
    entry_of_others(table, stack, object.kind)
}

/// The entry for locks without one that were first taken by a stack.
fn entry_of_others(table: &Table, stack: u32, kind: u32) -> Option<&Lock> {
    let fill = |new: &Lock| {
        new.kind.store(kind, Relaxed);
        new.first.store(stack, Relaxed);
    };
    let key = u64::from(stack) << 2 | OTHERS;
    Some(entries(table).place(table, key, fill)?.0)
}

/// Notes that the thread has taken the lock.
pub(super) fn note_thread(lock: &Lock, token: u32) {
    let number = token as usize % kinlock_report::THREAD_BITS;
    let word = &lock.threads[number / 64];
    let bit = 1 << (number % 64);
    if word.load(Relaxed) & bit == 0 {
        word.fetch_or(bit, Relaxed);
    }
}

// ---- locks that end -------------------------------------

/// How many ended locks that were first taken by the same callers keep entries of their own.
const KEPT_PER_STACK: u32 = 64;
/// How many ended locks keep entries of their own in all.
const KEPT_IN_ALL: u32 = LOCKS as u32 / 4;

/// Ends a lock. Either its entry stays, marked as ended, or its numbers are added to an ended lock
/// that was first taken by the same callers, and its entry becomes free. So a program may use any
/// number of locks one after the other.
#[cold]
pub(super) fn end(table: &Table, lock: &Lock) {
    let first = lock.first.load(Relaxed) as usize;
    let stack = first.checked_sub(1).and_then(|at| table.stacks.get(at));
    let in_all = table.header.ended.fetch_add(1, Relaxed);
    let others = stack.and_then(|stack| {
        let count = stack.ended_count.fetch_add(1, Relaxed);
        if count < KEPT_PER_STACK && in_all < KEPT_IN_ALL {
            return None;
        }
        let number = number_in(&table.locks, lock);
        let joined = stack.ended.compare_exchange(0, number, AcqRel, Acquire);
        let others = table.locks.get(joined.err()? as usize - 1)?;
        // A wait for a condition variable has the same callers as the acquisition of the mutex that
        // follows it.
        is_same_sort(lock, others).then_some(others)
    });
    match others {
        Some(others) => {
            add(&others.ended, 1);
            join(table, lock, others);
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

/// Whether two entries are of objects of the same sort, and of the same side of them. All mutexes
/// are of one sort.
fn is_same_sort(one: &Lock, other: &Lock) -> bool {
    const SORTS: u32 = SPIN | RWLOCK | CONDVAR | BARRIER | SEMAPHORE | JOIN;
    let sort = |lock: &Lock| {
        let side = lock.address.load(Relaxed) & READING;
        (side, lock.kind.load(Relaxed) & SORTS)
    };
    sort(one) == sort(other)
}

/// The numbers that are added when the entries of two locks are joined.
fn sums(lock: &Lock) -> impl Iterator<Item = &AtomicU64> {
    let single = [
        &lock.locked,
        &lock.changed,
        &lock.remote,
        &lock.held,
        &lock.hold_ns,
        &lock.samples,
        &lock.nested,
        &lock.contended,
        &lock.wait_ns,
        &lock.timeouts,
        &lock.tries,
        &lock.failed,
    ];
    let behind = lock.behind.iter().flat_map(|by| [&by.count, &by.nanos]);
    let classes = lock.waits.iter().chain(&lock.holds);
    single.into_iter().chain(behind).chain(classes)
}

/// The numbers of a use that are added then.
fn sums_of_use(of: &Use) -> [&AtomicU64; 5] {
    [
        &of.contended,
        &of.wait_ns,
        &of.held,
        &of.hold_ns,
        &of.failed,
    ]
}

/// Moves all numbers of an ended lock to another ended lock, `others`, and clears its entry.
fn join(table: &Table, lock: &Lock, others: &Lock) {
    let mut at = lock.uses.swap(0, Acquire);
    while let Some(from) = at.checked_sub(1).and_then(|at| table.uses.get(at as usize)) {
        let stack = from.key.load(Relaxed) as u32;
        if let Some(to) = use_of(table, others, stack) {
            to.wait_max.fetch_max(from.wait_max.load(Relaxed), Relaxed);
            merge(sums_of_use(from), sums_of_use(to));
        }
        at = from.before.swap(0, Relaxed);
        for number in sums_of_use(from).into_iter().chain([&from.wait_max]) {
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
    merge(sums(lock), sums(others));
    for (from, to) in lock.threads.iter().zip(&others.threads) {
        to.fetch_or(from.swap(0, Relaxed), Relaxed);
    }
    for number in [
        &lock.record,
        &lock.serial,
        &lock.last,
        &lock.domain,
        &lock.gap,
        &lock.place,
        &lock.first,
    ] {
        number.store(0, Relaxed);
    }
}
