//! What the calling thread holds: its reader-writer locks, and with lock order all of its locks.
//!
//! The list is part of the thread's [`Owner`], and only that thread changes it. It has room for a
//! few locks. If there were more at a time, it is not known which of them were released, and
//! nothing is claimed any more.

use super::tally;
use core::sync::atomic::{AtomicBool, Ordering::*};
use kinlock_report::{HELDS, Held, Owner, READS, Table};

/// A thread has released a read lock that it had not taken: it was another one's, whose list still
/// has it. From then on nothing is claimed of read locks.
static ARE_HANDED_OVER: AtomicBool = AtomicBool::new(false);

/// The locks of an owner, from the one that was taken first on.
pub(super) fn list(owner: &Owner) -> &[Held] {
    let count = owner.held_count.load(Relaxed) as usize;
    &owner.held[..count.min(HELDS)]
}

/// The calling thread has taken a lock.
pub(super) fn push(table: &Table, address: u64, serial: u32, stack: u32, mode: u32) {
    let Some(owner) = tally::owner(table) else {
        return;
    };
    let count = owner.held_count.load(Relaxed);
    let Some(new) = owner.held.get(count as usize) else {
        return owner.held_lost.store(1, Relaxed);
    };
    new.address.store(address, Relaxed);
    new.serial.store(serial, Relaxed);
    new.stack.store(stack, Relaxed);
    new.mode.store(mode, Relaxed);
    owner.held_count.store(count + 1, Relaxed);
}

/// Whether the list of the calling thread is complete, and what it has of a lock.
pub(super) fn known(table: &Table, address: u64) -> Option<Option<&Held>> {
    let owner = tally::owner(table)?;
    if owner.held_lost.load(Relaxed) != 0 {
        return None;
    }
    let mut held = list(owner).iter().rev();
    Some(held.find(|held| held.address.load(Relaxed) == address))
}

/// The same of a reader-writer lock that the thread is going to wait for.
pub(super) fn known_before_wait(table: &Table, address: u64) -> Option<&Held> {
    let held = known(table, address)??;
    let is_read = held.mode.load(Relaxed) & READS != 0;
    (!is_read || !ARE_HANDED_OVER.load(Relaxed)).then_some(held)
}

/// The calling thread releases a lock. Returns whether it was in the list, if the list is complete.
pub(super) fn remove(address: u64) -> Option<bool> {
    // A thread that has taken no lock has none in its list, and needs none to release one.
    let Some(owner) = tally::known_owner()? else {
        return Some(false);
    };
    let mut held = list(owner).iter();
    let at = held.rposition(|held| held.address.load(Relaxed) == address);
    if let Some(at) = at {
        remove_at(owner, at);
        return Some(true);
    }
    (owner.held_lost.load(Relaxed) == 0).then_some(false)
}

/// A read lock was released that the calling thread had not taken.
pub(super) fn note_handed_over() {
    ARE_HANDED_OVER.store(true, Relaxed);
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
