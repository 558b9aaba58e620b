//! Entries of call stacks, and of uses: one lock with one call stack.

use super::entries::{Array, add, number_in, scattered};
use super::modules;
use super::unwind::Frames;
use core::sync::atomic::Ordering::*;
use kinlock_report::{Lock, Stack, Table, Use};

/// The entry for the use of a lock by a call stack. `None`: there is no stack, or no room. The
/// first stack is noted in the lock.
pub(super) fn used<'a>(table: &'a Table, lock: &Lock, stack: u32) -> Option<&'a Use> {
    if lock.first.load(Relaxed) == 0 {
        lock.first.store(stack, Relaxed);
    }
    match stack {
        0 => None,
        _ => use_of(table, lock, stack),
    }
}

/// Like [`used`], without noting the stack in the lock. If several threads add the same use at the
/// same time, it may get two entries.
pub(super) fn use_of<'a>(table: &'a Table, lock: &Lock, stack: u32) -> Option<&'a Use> {
    let key = Use::key_of(number_in(&table.locks, lock), stack);
    let uses = Array {
        entries: &table.uses,
        index: &table.use_index,
        used: &table.header.uses_used,
        freed: &table.header.uses_freed,
        key_of: |of: &Use| &of.key,
        hash_of: scattered,
    };
    let found = uses.place(table, key, |_| {});
    let Some((found, is_new)) = found else {
        add(&table.header.dropped_uses, 1);
        return None;
    };
    if is_new {
        let number = number_in(&table.uses, found);
        let mut before = lock.uses.load(Relaxed);
        loop {
            found.before.store(before, Relaxed);
            match lock.uses.compare_exchange(before, number, Release, Relaxed) {
                Ok(_) => break,
                Err(now) => before = now,
            }
        }
    }
    Some(found)
}

/// The index of the entry of a call stack, plus 1; 0: there is no room.
pub(super) fn stack_of(table: &Table, frames: &Frames) -> u32 {
    let hash = frames.hash();
    let fill = |stack: &Stack| {
        for (to, from) in stack.frames.iter().zip(frames.list()) {
            to.store(*from, Relaxed);
            // Needed to name the address. It is the address of the call itself, since a call may be
            // the last instruction of a function, and then returns to the next one.
            modules::note(table, from - 1);
        }
    };
    let stacks = Array {
        entries: &table.stacks,
        index: &table.stack_index,
        used: &table.header.stacks_used,
        freed: &table.header.stacks_freed,
        key_of: |stack: &Stack| &stack.hash,
        hash_of: |hash| hash,
    };
    match stacks.place(table, hash, fill) {
        Some((stack, _)) => number_in(&table.stacks, stack),
        None => {
            add(&table.header.dropped_stacks, 1);
            0
        }
    }
}
