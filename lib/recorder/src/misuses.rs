//! Entries of misuses: calls that POSIX leaves undefined, or that can only fail.
//!
//! Each is noted where it happens, with the callers. What is claimed is known for certain: by the
//! lock's own word, by the tally of the thread that holds it, or by the list of what the calling
//! thread holds. Where one of these is missing, such as in a thread that had no room for tallies or
//! in the child of a fork for what its parent took, nothing is claimed.

use super::entries::add;
use super::locks::lock_at;
use super::memory::{is_present, provide};
use super::threads::thread_of;
use super::uses::stack_of;
use super::{thread, unwind};
use core::sync::atomic::Ordering::*;
use kinlock_report::{HELD, MISUSES, Misuse, Owner, Table, Tally};

/// Notes a misuse by the calling thread, such as [`NOT_HELD`](kinlock_report::NOT_HELD), of the
/// lock of this address and kind. `holder`: the kernel's number of the thread that holds it, or 0,
/// and the stack by which that thread took it, or 0.
#[cold]
#[inline(never)]
pub(super) fn note(table: &Table, misuse: u32, (address, kind): (u64, u32), holder: [u32; 2]) {
    let stack = stack_of(table, &unwind::capture());
    let header = &table.header;
    let is_same = |known: &Misuse| {
        is_present(table, known)
            && known.kind.load(Acquire) == misuse
            && known.address.load(Relaxed) == address
            && known.stack.load(Relaxed) == stack
    };
    let used = (header.misuses.load(Relaxed) as usize).min(MISUSES);
    if let Some(known) = table.misuses[..used].iter().find(|known| is_same(known)) {
        return add(&known.count, 1);
    }
    if used >= MISUSES {
        return add(&header.dropped_misuses, 1);
    }
    let at = header.misuses.fetch_add(1, Relaxed) as usize;
    let new = table.misuses.get(at).filter(|new| provide(table, *new));
    let Some(new) = new else {
        return add(&header.dropped_misuses, 1);
    };
    let first = lock_at(table, address).map_or(0, |lock| lock.first.load(Relaxed));
    new.address.store(address, Relaxed);
    new.lock_kind.store(kind, Relaxed);
    new.stack.store(stack, Relaxed);
    new.first.store(first, Relaxed);
    new.holder.store(holder[0], Relaxed);
    new.taken.store(holder[1], Relaxed);
    // The thread gets no entry for this: it may never have taken a lock.
    new.thread.store(thread::number(), Relaxed);
    add(&new.count, 1);
    new.kind.store(misuse, Release);
}

/// The thread to which a tally belongs, and the stack by which it took the lock, if that is known:
/// what [`note`] is told of a holder.
pub(super) fn holder_by(table: &Table, owner: &Owner, tally: &Tally) -> [u32; 2] {
    let thread = thread_of(table, owner.token.load(Relaxed));
    let id = thread.map_or(0, |thread| thread.id.load(Relaxed));
    let is_measured = tally.since.load(Relaxed) > HELD;
    match is_measured {
        true => [id, taken_by(table, tally)],
        false => [id, 0],
    }
}

/// The stack of the use by which a measured acquisition took a lock.
pub(super) fn taken_by(table: &Table, tally: &Tally) -> u32 {
    let at = (tally.taken_by.load(Relaxed) as usize).checked_sub(1);
    let taken_by = at.and_then(|at| table.uses.get(at));
    taken_by.map_or(0, |taken_by| taken_by.key.load(Relaxed) as u32)
}
