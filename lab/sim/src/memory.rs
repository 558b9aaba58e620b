//! Simulated memory: an arena whose addresses name cache lines directly.
//!
//! The data that a simulation shares lives here: locks, waiter slots, the data of a workload.
//! Addresses outside, such as an atomic on a coroutine's stack, work too, through a map. Dropping
//! the arena drops none of its values, so they must not need to be dropped.
//!
//! # Invariants
//!
//! 1. `Arena::block` has room for `SIZE` bytes, and stays where it is as long as the arena exists.
//! 2. `reserve` hands each byte out at most once, aligned to a pair of lines.

use crate::coherence::{LINE, Line};
use std::cell::Cell;
use std::collections::HashMap;
use std::mem::MaybeUninit;

/// Bytes of an arena. This is address space: only pages that are touched cost memory.
const SIZE: usize = 16 << 20;
/// Placed objects never share a pair of lines, which some CPUs fetch together.
const ALIGN: usize = 2 * LINE;

/// The storage of one simulation.
#[derive(Debug)]
pub(crate) struct Arena {
    /// Has no elements: only its capacity is used.
    block: Vec<Pair>,
    used: usize,
}

/// A pair of lines.
#[derive(Debug)]
#[repr(align(128))]
struct Pair(#[expect(dead_code, reason = "it gives the pair its size")] [MaybeUninit<u8>; ALIGN]);

thread_local! {
    /// The memory of the last arena. Reusing touched pages costs less than getting new ones.
    static SPARE: Cell<Vec<Pair>> = const { Cell::new(Vec::new()) };
}

impl Drop for Arena {
    fn drop(&mut self) {
        // This fails while the host thread ends, and then there is no next arena.
        let _ = SPARE.try_with(|spare| spare.set(std::mem::take(&mut self.block)));
    }
}

impl Arena {
    pub(crate) fn new() -> Self {
        let mut block = SPARE.take();
        block.reserve_exact(SIZE / ALIGN);
        Arena { block, used: 0 }
    }

    /// Moves `value` into the arena, on lines of its own.
    ///
    /// # Panics
    ///
    /// If the arena is full, or `T` needs to be dropped or a larger alignment.
    pub(crate) fn place<T>(&mut self, value: T) -> *const T {
        let at = self.reserve::<T>(1);
        // SAFETY: the bytes at `at` are inside the block, aligned and unused (invariant 2).
        unsafe { at.write(value) };
        at
    }

    /// As [`place`](Self::place), `n` values side by side, the first at the start of a line.
    pub(crate) fn place_slice<T>(
        &mut self,
        n: usize,
        mut value: impl FnMut(usize) -> T,
    ) -> *const [T] {
        let at = self.reserve::<T>(n);
        for i in 0..n {
            // SAFETY: as in `place`; `reserve` made room for `n` values.
            unsafe { at.add(i).write(value(i)) };
        }
        std::ptr::slice_from_raw_parts(at, n)
    }

    /// Room for `n` values.
    fn reserve<T>(&mut self, n: usize) -> *mut T {
        assert!(!std::mem::needs_drop::<T>() && align_of::<T>() <= ALIGN);
        let offset = self.used;
        self.used += (n * size_of::<T>()).next_multiple_of(ALIGN);
        assert!(self.used <= SIZE, "a simulation's memory is full");
        // SAFETY: `offset` is inside the block (invariant 1).
        unsafe { self.block.as_mut_ptr().byte_add(offset).cast::<T>() }
    }
}

/// The lines of a simulation.
#[derive(Debug)]
pub(crate) struct Lines {
    base: usize,
    lines: Vec<Line>,
    /// Lines outside the arena, by line number.
    elsewhere: HashMap<usize, Line>,
}

impl Lines {
    pub(crate) fn new(arena: &Arena) -> Self {
        Lines {
            base: arena.block.as_ptr().addr(),
            lines: Vec::new(),
            elsewhere: HashMap::new(),
        }
    }

    /// The line at `address`.
    #[inline]
    pub(crate) fn at(&mut self, address: usize) -> &mut Line {
        let offset = address.wrapping_sub(self.base);
        let index = offset / LINE;
        if index < self.lines.len() {
            return &mut self.lines[index];
        }
        self.make(address)
    }

    #[cold]
    fn make(&mut self, address: usize) -> &mut Line {
        let index = address.wrapping_sub(self.base) / LINE;
        if index < SIZE / LINE {
            self.lines.resize_with(index + 1, Line::new);
            return &mut self.lines[index];
        }
        let known = self.elsewhere.entry(address / LINE);
        known.or_insert_with(Line::new)
    }
}
