//! What the calling thread keeps in the tables: a waiter slot, until it ends, and a row.
//!
//! A slot is installed by a compare-and-swap, so that a signal handler which installs one at the
//! same moment is noticed.

use super::Native;
use super::key::Key;
use core::cell::Cell;
use core::sync::atomic::{AtomicU16, Ordering::Relaxed};
use kinlock_core::visible_readers::Row;

thread_local! {
    // Without destructors, so that they are accessible for as long as the thread runs.
    static SLOT: AtomicU16 = const { AtomicU16::new(0) };
    static ROW: Cell<Option<&'static Row<Native>>> = const { Cell::new(None) };
}

/// The row that the thread has already.
#[inline]
pub(super) fn row() -> Option<&'static Row<Native>> {
    ROW.get()
}

/// Gives the thread a row.
pub(super) fn set_row(row: &'static Row<Native>) {
    ROW.set(Some(row));
}

/// The slot that the thread keeps; 0: none.
#[inline]
pub(super) fn slot() -> u16 {
    match SLOT.with(|s| s.load(Relaxed)) {
        ENDED => 0,
        slot => slot,
    }
}

/// Installs a slot as the thread's own, unless it has one or may not keep any.
pub(super) fn keep_slot(slot: u16) -> bool {
    let is_first =
        KEY.exists() && SLOT.with(|s| s.compare_exchange(0, slot, Relaxed, Relaxed).is_ok());
    let is_kept = is_first && KEY.set(slot.into());
    if is_first && !is_kept {
        SLOT.with(|s| s.store(0, Relaxed));
    }
    is_kept
}

/// Notes that the calling thread runs its last destructors. A slot that it installed from now on
/// would not be given back; a slot that it already has will be.
#[cold]
pub fn keep_no_slot() {
    SLOT.with(|s| {
        let _ = s.compare_exchange(0, ENDED, Relaxed, Relaxed);
    });
}

/// Whether the calling thread has a slot or may keep one.
pub fn keeps_slots() -> bool {
    SLOT.with(|s| s.load(Relaxed)) != ENDED
}

/// From now on the calling thread keeps no slot.
pub(super) fn end() {
    SLOT.with(|s| s.store(ENDED, Relaxed));
}

/// The value of [`SLOT`] in a thread that can no longer keep a slot.
const ENDED: u16 = u16::MAX;

/// The key by whose destructor a thread gives its slot back.
pub(super) static KEY: Key = Key::NONE;

/// Gives up the [key](Key::give_up) by which slots are given back. From now on each wait claims a
/// slot. A slot that a thread keeps already stays with it, even after the thread has ended.
pub fn give_up_key() -> bool {
    KEY.give_up()
}
