//! What the calling thread holds: its reader-writer locks, and with lock order all of its locks.
//!
//! The list is part of the thread's [`Owner`], and only that thread changes it. It has room for a
//! few locks. If the thread has held more locks at a time, it is not known which of them were
//! released, and nothing is claimed any more.

use super::entries::add;
use super::tally;
use core::sync::atomic::{AtomicBool, Ordering::*, compiler_fence};
use kinlock_report::{HELDS, Held, Owner, READS, Table};

/// How a lock was held that one thread has taken and another one has released: the first thread's
/// list still has it.
#[derive(Clone, Copy)]
pub(super) enum Handed {
    /// A reader-writer lock, held for writing.
    Written,
    /// A reader-writer lock, held for reading.
    Read,
    /// A mutex.
    Mutex,
}

/// Whether a lock held in that way has been handed over. From then on nothing is claimed about what
/// threads hold in that way.
static ARE_HANDED_OVER: [AtomicBool; 3] = [const { AtomicBool::new(false) }; 3];

/// Whether any lock held in that way may be in the list of a thread that does not hold it any more.
pub(super) fn are_handed_over(how: Handed) -> bool {
    ARE_HANDED_OVER[how as usize].load(Relaxed)
}

/// How a reader-writer lock with this mode in the list is held.
fn handed(mode: u32) -> Handed {
    match mode & READS {
        0 => Handed::Written,
        _ => Handed::Read,
    }
}

/// The locks of an owner, from the one that was taken first on.
#[inline]
pub(super) fn list(owner: &Owner) -> &[Held] {
    let count = owner.held_count.load(Relaxed) as usize;
    &owner.held[..count.min(HELDS)]
}

/// Notes that the calling thread has taken a lock.
pub(super) fn push(table: &Table, address: u64, serial: u32, stack: u32, mode: u32) {
    let Some(owner) = tally::owner(table) else {
        return;
    };
    if !push_to(owner, address, serial, stack, mode) {
        owner.held_lost.store(1, Relaxed);
        add(&table.header.dropped_held, 1);
    }
}

/// Like [`push`], for the calling thread's owner. Returns whether there was room.
#[inline]
pub(super) fn push_to(owner: &Owner, address: u64, serial: u32, stack: u32, mode: u32) -> bool {
    let count = owner.held_count.load(Relaxed);
    let Some(new) = owner.held.get(count as usize) else {
        return false;
    };
    // The handler of a signal may take locks, too, between any two of these stores. It must not get
    // the same place, and must not see here what was there before.
    new.address.store(0, Relaxed);
    new.serial.store(0, Relaxed);
    compiler_fence(SeqCst);
    owner.held_count.store(count + 1, Relaxed);
    compiler_fence(SeqCst);
    new.stack.store(stack, Relaxed);
    new.mode.store(mode, Relaxed);
    compiler_fence(SeqCst);
    new.serial.store(serial, Relaxed);
    new.address.store(address, Relaxed);
    true
}

/// Removes a lock that the calling thread releases, if it has taken this lock last and the list has
/// it once. Returns whether that is so; if not, nothing is changed.
#[inline]
pub(super) fn pop_from(owner: &Owner, address: u64) -> bool {
    let Some((last, others)) = list(owner).split_last() else {
        return false;
    };
    let is_it = |held: &Held| held.address.load(Relaxed) == address;
    let is_once = is_it(last) && !others.iter().any(is_it);
    if is_once {
        owner.held_count.store(others.len() as u32, Relaxed);
    }
    is_once
}

/// What the list of the calling thread says of a reader-writer lock for which the thread is going
/// to wait; `None`: nothing, or nothing reliable.
pub(super) fn known_before_wait(table: &Table, address: u64) -> Option<&Held> {
    let owner = tally::owner(table)?;
    if owner.held_lost.load(Relaxed) != 0 {
        return None;
    }
    let mut all = list(owner).iter().rev();
    let held = all.find(|held| held.address.load(Relaxed) == address)?;
    (!are_handed_over(handed(held.mode.load(Relaxed)))).then_some(held)
}

/// What the list of the calling thread says of a lock that it releases.
pub(super) enum Removed {
    /// The thread had taken it in this mode, and has not taken it a second time.
    Last(u32),
    /// The thread had taken it, and still holds it.
    OneOfSeveral,
    /// The thread had not taken it.
    NotThere,
    /// The list is not complete.
    Unknown,
}

/// Removes a lock that the calling thread releases.
pub(super) fn remove(address: u64) -> Removed {
    // A thread that has taken no lock has none in its list, and needs none to release one.
    let owner = match tally::known_owner() {
        None => return Removed::Unknown,
        Some(None) => return Removed::NotThere,
        Some(Some(owner)) => owner,
    };
    let is_it = |held: &Held| held.address.load(Relaxed) == address;
    if let Some(at) = list(owner).iter().rposition(is_it) {
        let mode = owner.held[at].mode.load(Relaxed);
        remove_at(owner, at);
        return match list(owner).iter().any(is_it) {
            true => Removed::OneOfSeveral,
            false => Removed::Last(mode),
        };
    }
    match owner.held_lost.load(Relaxed) {
        0 => Removed::NotThere,
        _ => Removed::Unknown,
    }
}

/// Notes that the calling thread has released a lock that it had not taken.
pub(super) fn note_handed_over(how: Handed) {
    ARE_HANDED_OVER[how as usize].store(true, Relaxed);
}

pub(super) fn remove_at(owner: &Owner, at: usize) {
    let count = list(owner).len();
    for at in at..count.saturating_sub(1) {
        let [to, from] = [&owner.held[at], &owner.held[at + 1]];
        to.address.store(from.address.load(Relaxed), Relaxed);
        to.serial.store(from.serial.load(Relaxed), Relaxed);
        to.stack.store(from.stack.load(Relaxed), Relaxed);
        to.mode.store(from.mode.load(Relaxed), Relaxed);
    }
    owner
        .held_count
        .store(count.saturating_sub(1) as u32, Relaxed);
}
