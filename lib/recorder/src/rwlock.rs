//! What happens to a reader-writer lock.
//!
//! Its two sides have an entry each. The writing side is a lock as any other, since one thread at a
//! time holds it. The reading side is held by several: no number of its entry is changed by plain
//! loads and stores, and it has no last holder.

use super::acquisition::{Outcome, acquisition, end_of_hold, entry_of, holds, lock_ended, next};
use super::held::{Handed, Removed};
use super::is_taken;
use super::locks::{lock_at, marks_of};
use super::misuses;
use super::object::{Object, marks_in};
use super::threads::thread;
use super::{held, make, memory, order, tally};
use core::panic::Location;
use core::sync::atomic::{AtomicU32, Ordering::*};
use kinlock_core::platform::Platform;
use kinlock_linux::Native;
use kinlock_report::{
    FOREIGN, HELD, NOT_HELD, Owner, READ_AGAIN, READING, READS, RELOCKED, RWLOCK, Table, Tally,
};

/// What an acquisition or release of a reader-writer lock is like.
#[derive(Clone, Copy)]
pub struct RwAccess {
    /// Where the lock is.
    pub address: u64,
    /// [`READS`], or 0.
    pub mode: u32,
    /// As in [`Object::place`].
    pub place: Option<&'static Location<'static>>,
    /// As in [`Object::travels`].
    pub travels: bool,
}

/// The calling thread is going to take such a lock, and waits if it has to. `is_endless`: without a
/// limit; `waits_behind`: a reader that holds it already may wait behind a writer.
pub fn rwlock_asked(access: RwAccess, is_endless: bool, waits_behind: bool) {
    let Some(table) = make::own_table() else {
        return;
    };
    let RwAccess { address, mode, .. } = access;
    let held = held::known_before_wait(table, address);
    if let Some(held) = held.filter(|_| !access.travels) {
        let is_read = held.mode.load(Relaxed) & mode & READS != 0;
        let misuse = match (is_read, waits_behind) {
            (false, _) => Some(RELOCKED),
            (true, true) => Some(READ_AGAIN),
            (true, false) => None,
        };
        if let Some(misuse) = misuse {
            let holder = thread(table).map_or(0, |thread| thread.id.load(Relaxed));
            let holder = [holder, held.stack.load(Relaxed)];
            misuses::note(table, misuse, (address, RWLOCK), holder);
        }
    }
    if is_endless && order::is_on() {
        order::asks_rwlock(table, address, mode);
    }
}

/// One side of a reader-writer lock. Its mode is [`READS`], or 0.
#[inline]
pub fn side(access: RwAccess) -> Object<'static> {
    let side = match access.mode & READS {
        0 => 0,
        _ => READING,
    };
    Object {
        place: access.place,
        travels: access.travels,
        ..Object::new(access.address | side, RWLOCK)
    }
}

/// What the lock has noted for [`count_rwlock`]: the serial number of one side; 0: it has none yet.
pub fn serial_of_side(access: RwAccess) -> u32 {
    let address = side(access).address;
    let entry = memory::table().and_then(|table| lock_at(table, address));
    entry.map_or(0, |(_, lock)| lock.serial.load(Relaxed))
}

/// A reader-writer lock was taken without a wait, and has noted the serial number of that side.
/// Returns whether that is counted now; if not, more than counting is needed, and the caller has to
/// call [`rwlock_asked`] and [`rwlock_acquisition`].
#[inline(always)]
pub fn count_rwlock(access: RwAccess, serial: &AtomicU32) -> bool {
    count_taken(access, serial).is_some()
}

#[inline(always)]
fn count_taken(access: RwAccess, serial: &AtomicU32) -> Option<()> {
    let object = side(access);
    let (owner, tally) = tally::found(object.address, serial)?;
    let locked = next(tally)?;
    let push = || held::push_to(owner, access.address, 0, 0, access.mode).then_some(());
    if object.has_many_holders() {
        // A thread that reads already has one hold, whatever it adds.
        if tally.since.load(Relaxed) != 0 {
            return None;
        }
        push()?;
        tally.locked.store(locked, Relaxed);
        tally.since.store(HELD, Relaxed);
        return Some(());
    }
    let marks = marks_in(entry_of(tally)?);
    if memory::has_domains() && marks.last.load(Relaxed) != owner.token.load(Relaxed) {
        return None;
    }
    push()?;
    holds(owner, tally, marks, locked);
    Some(())
}

/// The calling thread is about to release such a lock, which it holds in this mode. Returns whether
/// that is noted; if not, the caller has to call [`rwlock_release`].
#[inline]
pub fn count_rwlock_release(access: RwAccess, serial: &AtomicU32) -> bool {
    let found = tally::found_of_holder(side(access).address, serial);
    let Some((owner, tally)) = found.filter(|(_, tally)| tally.since.load(Relaxed) == HELD) else {
        return false;
    };
    let is_noted = held::pop_from(owner, access.address);
    if is_noted {
        tally.since.store(0, Relaxed);
    }
    is_noted
}

/// An acquisition of a reader-writer lock has ended.
pub fn rwlock_acquisition(access: RwAccess, outcome: Outcome) {
    acquisition(side(access), outcome);
    let Some(table) = memory::table().filter(|_| is_taken(outcome.result)) else {
        return;
    };
    let RwAccess { address, mode, .. } = access;
    let [serial, stack] = match order::is_on() {
        true => order::taken_rwlock(table, address, side(access)),
        false => [0, 0],
    };
    held::push(table, address, serial, stack, mode);
}

/// The calling thread is about to release a reader-writer lock. `is_held`: whether the lock's word
/// says that it is held; `writer`: the number of another thread, which holds it for writing, or 0.
pub fn rwlock_release(address: u64, is_held: bool, writer: u32) {
    let Some(table) = memory::table() else { return };
    match held::remove(address) {
        Removed::OneOfSeveral => return,
        Removed::Last(mode) => return end_hold(table, unplaced(address, mode)),
        // With an incomplete list, the hold ends with the first release.
        Removed::Unknown => {
            for mode in [0, READS] {
                end_hold(table, unplaced(address, mode));
            }
            return;
        }
        // What another thread has taken.
        Removed::NotThere => {
            end_hold(table, unplaced(address, 0));
            let object = side(unplaced(address, READS));
            let own = tally::held_by_caller(table, object);
            end(table, own.or_else(|| tally::held_by_any(table, object)));
        }
    }
    // In the child of a fork it may have been taken in the parent.
    match (is_held, writer) {
        _ if Native::forked() => held::note_handed_over(Handed::Read),
        (false, _) => misuses::note(table, NOT_HELD, (address, RWLOCK), [0, 0]),
        (true, 1..) => {
            misuses::note(table, FOREIGN, (address, RWLOCK), [writer, 0]);
            held::note_handed_over(Handed::Written);
        }
        (true, 0) => held::note_handed_over(Handed::Read),
    }
}

fn unplaced(address: u64, mode: u32) -> RwAccess {
    RwAccess {
        address,
        mode,
        place: None,
        travels: false,
    }
}

/// The hold of one side ends, if one was noted: of the writing side whichever thread's, of the
/// reading side the calling thread's.
fn end_hold(table: &Table, access: RwAccess) {
    end(table, holder(table, side(access)));
}

fn end(table: &Table, held: Option<(&Owner, &Tally)>) {
    if let Some((owner, tally)) = held {
        let since = tally.since.swap(0, Relaxed);
        if since > HELD {
            let nanos = Native::now().saturating_sub(since);
            end_of_hold(table, owner, tally, nanos);
        }
    }
}

fn holder<'a>(table: &'a Table, object: Object<'_>) -> Option<(&'a Owner, &'a Tally)> {
    match object.has_many_holders() {
        true => tally::held_by_caller(table, object),
        false => {
            let marks = marks_of(table, object)?;
            tally::of_holder(table, object.address, marks)
        }
    }
}

/// The lock at this address was destroyed, or its memory is initialised as another lock.
pub fn rwlock_ended(address: u64) {
    lock_ended(address);
    lock_ended(address | READING);
}
