//! Interprets the entries of a table.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use kinlock_report::{BARRIER, CONDVAR, JOIN, OUTER, RWLOCK, SEMAPHORE, SPIN, Table};

use super::symbols::{Frame, Symbols};

pub fn get(number: &AtomicU64) -> u64 {
    number.load(Relaxed)
}

pub fn get32(number: &AtomicU32) -> u32 {
    number.load(Relaxed)
}

/// The part of an array that is in use.
pub fn used<'a, T>(all: &'a [T], count: &AtomicU32) -> &'a [T] {
    &all[..all.len().min(get32(count) as usize)]
}

/// The name of a kind of object, which is a kind of the C library or one of the report's.
pub fn kind(kind: u32) -> &'static str {
    match kind & !OUTER {
        kind if kind & RWLOCK != 0 => "rwlock",
        kind if kind & CONDVAR != 0 => "condition variable",
        kind if kind & BARRIER != 0 => "barrier",
        kind if kind & SEMAPHORE != 0 => "semaphore",
        kind if kind & JOIN != 0 => "join",
        kind if kind & SPIN != 0 => "spin",
        kind if kind & 0x10 != 0 => "robust",
        kind if kind & 0x20 != 0 => "inheriting",
        kind if kind & 0x40 != 0 => "protected",
        kind if kind & 0x80 != 0 => "shared",
        kind => ["mutex", "recursive", "checking", "adaptive"][kind as usize & 3],
    }
}

/// The calls of a stack, innermost first.
pub fn stack(table: &Table, number: u32, symbols: &mut Symbols) -> Vec<Frame> {
    let stack = (number as usize)
        .checked_sub(1)
        .and_then(|at| table.stacks.get(at));
    let frames = stack.map_or(&[][..], |stack| &stack.frames);
    let frames = frames.iter().map(get).take_while(|&back| back != 0);
    frames
        .flat_map(|back| symbols.calls(back).to_vec())
        .collect()
}

/// The name of a lock: the name of its variable, or the line that first took it, or where it is.
pub fn name(address: u64, place: Option<&str>, symbols: &mut Symbols) -> String {
    let line = || place.map(|place| file_and_line(place).to_owned());
    symbols
        .variable(address)
        .or_else(line)
        .or_else(|| symbols.offset(address))
        .unwrap_or_else(|| format!("{address:#x}"))
}

/// A place in the source, without the folders.
pub fn file_and_line(place: &str) -> &str {
    place.rsplit('/').next().unwrap_or(place)
}
