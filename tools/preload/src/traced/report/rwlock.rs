//! What happens to a reader-writer lock.

use super::entries::add;
use super::misuses::{self, Known};
use super::threads::thread;
use super::{held, make, memory, order};
use crate::thread::{thread_id, token};
use core::sync::atomic::Ordering::*;
use kinlock_core::platform::Platform;
use kinlock_linux::Native;
use kinlock_report::{FOREIGN, NOT_HELD, READ_AGAIN, READS, RELOCKED, RWLOCK};

/// What an acquisition or release of a reader-writer lock is like.
#[derive(Clone, Copy)]
pub(crate) struct RwAccess {
    pub(crate) address: u64,
    /// [`READS`], or 0.
    pub(crate) mode: u32,
}

/// The calling thread is going to take such a lock, and waits if it has to. `is_endless`: without a
/// limit; `waits_behind`: a reader that holds it already may wait behind a writer.
pub(crate) fn rwlock_asked(access: RwAccess, is_endless: bool, waits_behind: bool) {
    let Some(table) = make::own_table() else {
        return;
    };
    let RwAccess { address, mode } = access;
    if let Some(held) = held::known_before_wait(table, address) {
        let is_read = held.mode.load(Relaxed) & mode & READS != 0;
        let misuse = match (is_read, waits_behind) {
            (false, _) => Some(RELOCKED),
            (true, true) => Some(READ_AGAIN),
            (true, false) => None,
        };
        if let Some(misuse) = misuse {
            let (kind, taken) = (RWLOCK, held.stack.load(Relaxed));
            let holder = thread(table).map_or(0, |thread| thread.id.load(Relaxed));
            misuses::note(
                table,
                misuse,
                Known {
                    address,
                    kind,
                    holder,
                    taken,
                },
            );
        }
    }
    if is_endless && order::is_on() {
        order::asks_rwlock(table, address, mode);
    }
}

/// The calling thread has taken a reader-writer lock, which is only counted.
pub(crate) fn rwlock_taken(access: RwAccess) {
    if let Some(table) = make::own_table() {
        let shards = &table.header.rwlocked;
        add(&shards[token() as usize % shards.len()].0, 1);
        let RwAccess { address, mode } = access;
        let [serial, stack] = match order::is_on() {
            true => order::taken_rwlock(table, address),
            false => [0, 0],
        };
        held::push(table, address, serial, stack, mode);
    }
}

/// The calling thread is about to release a reader-writer lock. `is_held`: whether the lock's word
/// says that it is held; `writer`: the kernel's number of the thread that holds it for writing, or
/// 0.
pub(crate) fn rwlock_release(address: u64, is_held: bool, writer: u32) {
    let Some(table) = memory::table() else { return };
    if held::remove(address) != Some(false) {
        return;
    }
    // In the child of a fork it may have been taken in the parent.
    let misuse = match (is_held, writer) {
        _ if Native::forked() => None,
        (false, _) => Some(NOT_HELD),
        (true, 1..) if writer != thread_id() => Some(FOREIGN),
        _ => None,
    };
    match misuse {
        Some(misuse) => {
            let (kind, taken) = (RWLOCK, 0);
            let holder = if is_held { writer } else { 0 };
            misuses::note(
                table,
                misuse,
                Known {
                    address,
                    kind,
                    holder,
                    taken,
                },
            );
        }
        None => return held::note_handed_over(READS),
    }
    if misuse == Some(FOREIGN) {
        held::note_handed_over(0);
    }
}
