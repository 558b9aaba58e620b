//! Tallies: what one thread did to one lock. No other thread changes them.
//!
//! A thread has [`TALLIES`] of them. A lock's serial number chooses two places where its tally may
//! be. If both are taken by other locks, one of these tallies makes room: its numbers are added to
//! the entry of its lock. When a thread ends, that happens to all of its tallies.

use super::entries::{add, index_in, number_in};
use super::locks::{lock_of_holder, marks_of, note_thread};
use super::memory::{self, TAGS, is_present, provide};
use super::object::{Marks, Object};
use super::record;
use super::thread::{kept, tallies, token};
use super::threads::{KEY, await_end, thread, thread_of};
use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{AtomicU32, Ordering::*};
use kinlock_core::platform::Platform;
use kinlock_linux::native::Native;
use kinlock_report::{OWNERS, Owner, TALLIES, Table, Tally, Waits};

/// The bit from which on the address of an [`Owner`] has the tag of its table. By the tag, the
/// child of a fork recognises addresses from its parent's table, and a thread those of an earlier
/// window. No address that the kernel gives without being asked for a higher one has these bits.
const TAG_SHIFT: u32 = 48;
const ADDRESS: usize = (1 << TAG_SHIFT) - 1;

const _: () = assert!(TAGS <= 1 << (usize::BITS - TAG_SHIFT));

/// The calling thread's tallies, if it has any in this table, whichever window that is of.
///
/// The thread keeps the address of its tallies together with the tag of the table that they are in;
/// 0: nothing yet; the tag alone: the table has no room for its tallies.
#[inline]
fn in_table() -> Option<&'static Owner> {
    // Each acquisition comes here. The exclusive or clears the tag if it is the table's, and leaves
    // another tag's bits.
    let address = kept() ^ memory::tag_of_table() << TAG_SHIFT;
    // SAFETY: invariant 3: the tag says that it is an address in this table.
    (address >> TAG_SHIFT == 0 && address != 0)
        .then(|| unsafe { &*ptr::with_exposed_provenance(address) })
}

/// The calling thread's tallies, if it has any in this table, and the table is of this window.
#[inline]
fn own() -> Option<&'static Owner> {
    in_table().filter(|_| memory::is_of_window())
}

fn keep(address: usize) {
    // SAFETY: invariant 6.
    unsafe { *tallies() = address };
}

/// The two places where the tally of a lock may be.
#[inline]
fn places(serial: u32) -> [usize; 2] {
    let first = serial as usize % TALLIES;
    [first, first ^ 1]
}

#[inline]
fn is_of(tally: &Tally, serial: u32, address: u64) -> bool {
    // The serial number is not enough: a program may copy a mutex with its marks, and a child
    // inherits the marks of its parent's locks.
    tally.serial.load(Relaxed) == serial && tally.address.load(Relaxed) == address
}

/// The owner's tally of a lock with this serial number, if it is in the first of its two places.
#[inline]
fn in_first_place(owner: &Owner, address: u64, serial: u32) -> Option<&Tally> {
    let tally = &owner.tallies[places(serial)[0]];
    is_of(tally, serial, address).then_some(tally)
}

/// The calling thread's tally of a lock that it holds, if it is in the first of the two places, and
/// the tallies' owner. `serial`: what the lock has noted.
#[inline]
pub(super) fn found(address: u64, serial: &AtomicU32) -> Option<(&'static Owner, &'static Tally)> {
    let owner = own()?;
    Some((owner, in_first_place(owner, address, serial.load(Relaxed))?))
}

/// Like [`found`], for a thread that is about to release the lock. The table may be of an earlier
/// window: then nobody reads what the thread changes there.
#[inline]
pub(super) fn found_of_holder(
    address: u64,
    serial: &AtomicU32,
) -> Option<(&'static Owner, &'static Tally)> {
    let owner = in_table()?;
    Some((owner, in_first_place(owner, address, serial.load(Relaxed))?))
}

/// The calling thread's tallies. They are added if it has none; `None`: there is no room.
pub(super) fn owner(table: &Table) -> Option<&'static Owner> {
    own().or_else(|| new_owner(table))
}

/// The calling thread's tallies; `Some(None)`: it has not needed any yet; `None`: there was no room
/// for them.
pub(super) fn known_owner() -> Option<Option<&'static Owner>> {
    (kept() == 0 || kept() != memory::tag() << TAG_SHIFT).then(own)
}

/// The calling thread's tally of a lock, if it has one.
pub(super) fn own_of(address: u64, serial: u32) -> Option<&'static Tally> {
    in_any_place(own()?, address, serial).filter(|_| serial != 0)
}

/// The calling thread's tally of a lock, if it has one, and the tallies' owner. Another thread may
/// hold the lock: its serial number does not change while it lives.
pub(super) fn of_caller<'a>(
    table: &'a Table,
    object: Object<'_>,
) -> Option<(&'a Owner, &'a Tally)> {
    let serial = marks_of(table, object)?.serial.load(Relaxed);
    let owner = own()?;
    let tally = in_any_place(owner, object.address, serial).filter(|_| serial != 0)?;
    Some((owner, tally))
}

/// Like [`of_caller`], if the thread holds the lock.
pub(super) fn held_by_caller<'a>(
    table: &'a Table,
    object: Object<'_>,
) -> Option<(&'a Owner, &'a Tally)> {
    of_caller(table, object).filter(|(_, tally)| tally.since.load(Relaxed) != 0)
}

/// The tally of some thread that holds a lock which several can hold at a time: the calling thread
/// releases what another one took.
#[cold]
#[inline(never)]
pub(super) fn held_by_any<'a>(
    table: &'a Table,
    object: Object<'_>,
) -> Option<(&'a Owner, &'a Tally)> {
    let serial = marks_of(table, object)?.serial.load(Relaxed);
    let owners = table
        .owners
        .iter()
        .filter(|owner| is_present(table, *owner));
    owners
        .filter(|owner| owner.token.load(Relaxed) != 0)
        .find_map(|owner| {
            let tally = in_any_place(owner, object.address, serial)?;
            (serial != 0 && tally.since.load(Relaxed) != 0).then_some((owner, tally))
        })
}

/// The owner's tally of a lock, in either place.
fn in_any_place(owner: &Owner, address: u64, serial: u32) -> Option<&Tally> {
    let mut all = places(serial).into_iter().map(|at| &owner.tallies[at]);
    all.find(|tally| is_of(tally, serial, address))
}

/// The waits that belong to a tally of the owner.
pub(super) fn waits_of<'a>(owner: &'a Owner, tally: &Tally) -> Option<&'a Waits> {
    owner.waits.get(index_in(&owner.tallies, tally))
}

/// How often the calling thread has waited for a lock since its tally began; 0 without a tally.
pub(super) fn waits_so_far(table: &Table, object: Object<'_>) -> u64 {
    let waits = of_caller(table, object).and_then(|(owner, tally)| waits_of(owner, tally));
    waits.map_or(0, |waits| waits.count.load(Relaxed))
}

/// The calling thread's tally of a lock that it holds, and the tallies' owner. A tally is added if
/// there is none yet; `None`: there is no room.
pub(super) fn new<'a>(
    table: &'a Table,
    object: Object<'_>,
    marks: Marks<'_>,
) -> Option<(&'a Owner, &'a Tally)> {
    let owner = owner(table)?;
    let known = in_any_place(owner, object.address, marks.serial.load(Relaxed));
    if let Some(known) = known {
        return Some((owner, known));
    }
    let lock = lock_of_holder(table, object)?;
    let serial = lock.serial.load(Relaxed);
    let known = in_any_place(owner, object.address, serial);
    if let Some(known) = known {
        return Some((owner, known));
    }
    let free = places(serial).map(|at| &owner.tallies[at]);
    let unheld = free.into_iter().filter(|t| t.since.load(Relaxed) == 0);
    // Of two tallies the less used one makes room. A lock that the thread holds keeps its tally.
    let tally = unheld.min_by_key(|t| t.locked.load(Relaxed))?;
    settle(table, owner, tally);
    note_thread(lock, token());
    // A random beginning, so that each acquisition is measured with the same probability, even if
    // this thread makes only a few.
    let gap = lock.gap.load(Relaxed).max(1);
    tally.gap.store(gap as u16, Relaxed);
    let sample_at = match gap {
        1 => 1,
        _ => 1 + Native::random() % gap,
    };
    tally.sample_at.store(sample_at, Relaxed);
    tally.first.store(lock.first.load(Relaxed), Relaxed);
    tally.lock.store(number_in(&table.locks, lock), Relaxed);
    tally.address.store(object.address, Relaxed);
    tally.serial.store(serial, Relaxed);
    Some((owner, tally))
}

/// Adds a tally to the numbers of its lock and its thread, and frees it.
fn settle(table: &Table, owner: &Owner, tally: &Tally) {
    let lock = table.lock_of(tally).map(|at| &table.locks[at]);
    tally.serial.store(0, Relaxed);
    // A lock of zeros at the same address must not be taken for this tally's.
    tally.address.store(0, Relaxed);
    record::forget(owner, tally);
    let waits = &owner.waits[index_in(&owner.tallies, tally)];
    let [locked, changed, remote, contended, wait_ns] = [
        &tally.locked,
        &tally.changed,
        &tally.remote,
        &waits.count,
        &waits.nanos,
    ]
    .map(|number| number.swap(0, Relaxed));
    if locked == 0 {
        return;
    }
    match lock {
        Some(lock) => {
            add(&lock.locked, locked);
            add(&lock.changed, changed);
            add(&lock.remote, remote);
            add(&lock.contended, contended);
            add(&lock.wait_ns, wait_ns);
        }
        None => add(&table.header.dropped_locks, locked),
    }
    match thread_of(table, owner.token.load(Relaxed)) {
        Some(thread) => add(&thread.locked, locked),
        None => add(&table.header.dropped_threads, locked),
    }
}

/// The tally of the thread that took a lock. The calling thread, which releases it, may be another
/// one.
pub(super) fn of_holder<'a>(
    table: &'a Table,
    object: Object<'_>,
) -> Option<(&'a Owner, &'a Tally)> {
    let marks = marks_of(table, object)?;
    let (serial, last) = (marks.serial.load(Relaxed), marks.last.load(Relaxed));
    // A thread for which there was no room has noted nothing.
    if last == 0 {
        return None;
    }
    let owner = match last == token() {
        true => own()?,
        false => {
            let mut near = (0..REACH).map(|step| &table.owners[place(last, step)]);
            near.find(|owner| is_present(table, *owner) && owner.token.load(Relaxed) == last)?
        }
    };
    Some((owner, in_any_place(owner, object.address, serial)?))
}

// ---- threads --------------------------------------------

/// The number of entries, from its first place on, in which a thread's tallies may be: all.
const REACH: usize = OWNERS;

fn place(token: u32, step: usize) -> usize {
    (token as usize + step) % OWNERS
}

/// Gives the calling thread tallies, unless there was no room for them before.
#[cold]
#[inline(never)]
fn new_owner(table: &Table) -> Option<&'static Owner> {
    let tag = memory::tag() << TAG_SHIFT;
    // A table whose window is over takes no more tallies.
    if kept() == tag || tag == 0 {
        return None;
    }
    let token = token();
    thread(table);
    let mut places = (0..REACH).map(|step| &table.owners[place(token, step)]);
    let taken = places.find(|owner| {
        let is_free = |owner: &Owner| owner.token.load(Relaxed) == 0;
        (!is_present(table, *owner) || is_free(owner))
            && provide(table, *owner)
            && owner
                .token
                .compare_exchange(0, token, Acquire, Relaxed)
                .is_ok()
    });
    if let Some(owner) = taken {
        owner.held_count.store(0, Relaxed);
        owner.held_lost.store(0, Relaxed);
    }
    let address = taken.map_or(0, |owner| ptr::from_ref(owner).expose_provenance());
    let address = if address > ADDRESS { 0 } else { address };
    keep(address | tag);
    await_end();
    own()
}

/// Makes the key, unless the process has inherited it by a fork.
pub(super) fn begin() {
    if !KEY.exists() {
        // This library is never unloaded, so the destructor stays.
        KEY.make(end_of_thread);
    }
}

/// Called when the calling thread ends: frees its tallies. If a later destructor takes a lock, the
/// thread gets tallies again.
unsafe extern "C" fn end_of_thread(_: *mut c_void) {
    let Some(table) = memory::table() else { return };
    if let Some(owner) = own() {
        // A thread that ends while it holds a lock keeps its tallies, so that the report shows it
        // as the holder.
        let holds = |tally: &Tally| tally.since.load(Relaxed) != 0;
        if owner.tallies.iter().any(holds) {
            return;
        }
        keep(0);
        for tally in &owner.tallies {
            settle(table, owner, tally);
        }
        // Release pairs with the acquire in `new_owner` by the next owner.
        owner.token.store(0, Release);
    }
    if let Some(thread) = thread_of(table, token()) {
        // The thread may have left a wait without returning from it.
        thread.waits_for.store(0, Relaxed);
        thread.end.store(Native::now(), Relaxed);
    }
}
