//! What happens to a reader-writer lock.
//!
//! Its two sides have an entry each. The writing side is a lock like any other, since one thread at
//! a time holds it. The reading side is held by several: no number of its entry is changed by plain
//! loads and stores, and it has no last holder.

use super::acquisition::{end_of_hold, entry_of, holds, lock_ended, next};
use super::held::{Handed, Removed};
use super::locks::lock_at;
use super::misuses;
use super::object::{Object, marks_in};
use super::threads::thread;
use super::{held, make, memory, order, tally};
use core::sync::atomic::{AtomicU32, Ordering::*};
use kinlock_core::platform::Platform;
use kinlock_linux::Native;
use kinlock_report::{
    FOREIGN, HELD, NOT_HELD, Owner, READ_AGAIN, READING, READS, RELOCKED, RWLOCK, Table, Tally,
};

/// Notes that the calling thread is going to take this side of a reader-writer lock, and waits if
/// it has to. `is_endless`: without a limit; `waits_behind`: a reader that holds it already may
/// wait behind a writer.
pub fn rwlock_asked(side: Object<'_>, is_endless: bool, waits_behind: bool) {
    let Some(table) = make::own_table() else {
        return;
    };
    let (address, mode) = side.lock_and_mode();
    let held = held::known_before_wait(table, address);
    if let Some(held) = held.filter(|_| !side.travels) {
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

/// What the lock is to note for [`count_rwlock`]: the serial number of one side; 0: the side has
/// none yet.
pub fn serial_of_side(side: Object<'_>) -> u32 {
    let entry = memory::table().and_then(|table| lock_at(table, side.address));
    entry.map_or(0, |lock| lock.serial.load(Relaxed))
}

/// Counts that a reader-writer lock, which has noted the serial number of that side, was taken
/// without a wait. Returns whether that was possible; if not, more than counting is needed, and the
/// caller has to call [`rwlock_asked`] and [`acquisition`](super::acquisition()).
#[inline(always)]
pub fn count_rwlock(side: Object<'_>, serial: &AtomicU32) -> bool {
    count_taken(side, serial).is_some()
}

#[inline(always)]
fn count_taken(side: Object<'_>, serial: &AtomicU32) -> Option<()> {
    let (owner, tally) = tally::found(side.address, serial)?;
    let locked = next(tally)?;
    let (address, mode) = side.lock_and_mode();
    let push = || held::push_to(owner, address, 0, 0, mode).then_some(());
    if side.is_reading() {
        // A thread that reads already keeps its one hold, however often it reads again.
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

/// Notes that the calling thread is about to release this side of a reader-writer lock, which it
/// holds. Returns whether that was possible; if not, the caller has to call [`rwlock_release`].
#[inline]
pub fn count_rwlock_release(side: Object<'_>, serial: &AtomicU32) -> bool {
    let found = tally::found_of_holder(side.address, serial);
    let Some((owner, tally)) = found.filter(|(_, tally)| tally.since.load(Relaxed) == HELD) else {
        return false;
    };
    let is_noted = held::pop_from(owner, side.lock_and_mode().0);
    if is_noted {
        tally.since.store(0, Relaxed);
    }
    is_noted
}

/// Notes that the calling thread is about to release a reader-writer lock. `is_held`: whether the
/// lock's word says that it is held; `writer`: the number of another thread, which holds it for
/// writing, or 0.
pub fn rwlock_release(address: u64, is_held: bool, writer: u32) {
    let Some(table) = memory::table() else { return };
    match held::remove(address) {
        Removed::OneOfSeveral => return,
        Removed::Last(mode) => return end_hold(table, Object::side(address, mode == READS)),
        // With an incomplete list, the hold ends with the first release.
        Removed::Unknown => {
            for is_reading in [false, true] {
                end_hold(table, Object::side(address, is_reading));
            }
            return;
        }
        // Another thread has taken the lock.
        Removed::NotThere => {
            end_hold(table, Object::side(address, false));
            let readers = Object::side(address, true);
            let own = tally::held_by_caller(table, readers);
            end(table, own.or_else(|| tally::held_by_any(table, readers)));
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

/// Ends the hold of one side, if one was noted: of the writing side the hold of any thread, of the
/// reading side the calling thread's.
fn end_hold(table: &Table, side: Object<'_>) {
    let held = match side.is_reading() {
        true => tally::held_by_caller(table, side),
        false => tally::of_holder(table, side),
    };
    end(table, held);
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

/// Notes that the lock at this address was destroyed, or its memory is initialised as another lock.
pub fn rwlock_ended(address: u64) {
    lock_ended(address);
    lock_ended(address | READING);
}
