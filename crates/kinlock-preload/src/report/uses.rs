//! By which callers a lock is used: the entries of call stacks, and of a lock with a stack.

use super::frames::Frames;
use super::table::{self, add};
use core::sync::atomic::Ordering::*;
use kinlock_report::{Lock, STACKS, Stack, Table, USES, Use};

/// The use of a lock by some callers: its index plus 1, or 0, and itself.
pub(super) fn used<'a>(
    table: &'a Table,
    index: u32,
    lock: &Lock,
    stack: u32,
) -> (u32, Option<&'a Use>) {
    if lock.first.load(Relaxed) == 0 {
        lock.first.store(stack, Relaxed);
    }
    if stack == 0 {
        return (0, None);
    }
    use_of(table, index, lock, stack)
}

/// The use of a lock by a stack. Several threads may add the same one, so that there are two.
pub(super) fn use_of<'a>(
    table: &'a Table,
    index: u32,
    lock: &Lock,
    stack: u32,
) -> (u32, Option<&'a Use>) {
    let key = Use::key_of(index, stack);
    let found = table::place(
        |at| &table.uses[at].key,
        key,
        table::scattered(key) as usize % USES,
        USES,
        |_| {},
    );
    let Some((at, is_new)) = found else {
        add(&table.header.dropped_uses, 1);
        return (0, None);
    };
    let number = at as u32 + 1;
    if is_new {
        let mut before = lock.uses.load(Relaxed);
        loop {
            table.uses[at].before.store(before, Relaxed);
            match lock.uses.compare_exchange(before, number, Release, Relaxed) {
                Ok(_) => break,
                Err(now) => before = now,
            }
        }
    }
    (number, Some(&table.uses[at]))
}

/// The entry of a call stack: its index plus 1, or 0.
pub(super) fn stack_of(table: &Table, frames: &Frames) -> u32 {
    let hash = frames.hash();
    let fill = |at: usize| {
        let stack: &Stack = &table.stacks[at];
        for (to, from) in stack.frames.iter().zip(frames.list()) {
            to.store(*from, Relaxed);
        }
    };
    let found = table::place(
        |at| &table.stacks[at].hash,
        hash,
        hash as usize % STACKS,
        STACKS,
        fill,
    );
    match found {
        Some((at, _)) => at as u32 + 1,
        None => {
            add(&table.header.dropped_stacks, 1);
            0
        }
    }
}
