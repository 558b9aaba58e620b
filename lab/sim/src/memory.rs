//! Simulated memory: an arena whose addresses name cache lines directly.
//!
//! The data that a simulation shares lives here: locks, waiter slots, the data of a workload.
//! Addresses outside, such as an atomic on a coroutine's stack, work too, through a map. Dropping
//! the arena drops none of its values, so they must not need it.
//!
//! # Invariants
//!
//! 1. A `Block` is allocated once with `LAYOUT`, zeroed, and freed by its `Drop` with the same
//!    layout. An arena owns one; after its end the next arena of the host thread gets it.
//! 2. `reserve` hands each byte out at most once, aligned to a pair of lines.

use crate::coherence::{LINE, Line};
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::cell::Cell;
use std::collections::HashMap;
use std::ptr::NonNull;

/// Bytes of an arena: address space, of which only what is touched costs memory.
const SIZE: usize = 16 << 20;
/// Placed objects never share a pair of lines, which some CPUs fetch together.
const ALIGN: usize = 2 * LINE;

const LAYOUT: Layout = match Layout::from_size_align(SIZE, 4096) {
    Ok(layout) => layout,
    Err(_) => panic!("the layout is valid"),
};

/// The storage of one simulation.
#[derive(Debug)]
pub(crate) struct Arena {
    /// `None` only after the end.
    block: Option<Block>,
    used: Cell<usize>,
}

/// Memory of `LAYOUT`.
#[derive(Debug)]
struct Block(NonNull<u8>);

thread_local! {
    /// The memory of the last arena. To reuse touched pages costs less than to get new ones.
    static SPARE: Cell<Option<Block>> = const { Cell::new(None) };
}

impl Block {
    fn new() -> Self {
        // SAFETY: the layout has a size (invariant 1).
        let block = unsafe { alloc_zeroed(LAYOUT) };
        Block(NonNull::new(block).unwrap_or_else(|| handle_alloc_error(LAYOUT)))
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: invariant 1.
        unsafe { dealloc(self.0.as_ptr(), LAYOUT) }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // While the host thread ends there is no next arena.
        let _ = SPARE.try_with(|spare| spare.set(self.block.take()));
    }
}

impl Arena {
    pub(crate) fn new() -> Self {
        Arena {
            block: Some(SPARE.take().unwrap_or_else(Block::new)),
            used: Cell::new(0),
        }
    }

    fn start(&self) -> NonNull<u8> {
        self.block.as_ref().expect("the arena is in use").0
    }

    pub(crate) fn base(&self) -> usize {
        self.start().as_ptr().addr()
    }

    /// Moves `value` into the arena, on lines of its own.
    ///
    /// # Panics
    ///
    /// If the arena is full, or `T` needs to be dropped or a larger alignment.
    pub(crate) fn place<T>(&self, value: T) -> NonNull<T> {
        let at = self.reserve::<T>(1);
        // SAFETY: the bytes at `at` are inside the block, aligned and unused (invariant 2).
        unsafe { at.write(value) };
        at
    }

    /// Places `n` values side by side, the first at the start of a line.
    ///
    /// # Panics
    ///
    /// As [`place`](Self::place).
    pub(crate) fn place_slice<T>(
        &self,
        n: usize,
        mut value: impl FnMut(usize) -> T,
    ) -> NonNull<[T]> {
        let at = self.reserve::<T>(n);
        for i in 0..n {
            // SAFETY: as in `place`; `reserve` made room for `n` values.
            unsafe { at.add(i).write(value(i)) };
        }
        NonNull::slice_from_raw_parts(at, n)
    }

    /// Room for `n` values.
    fn reserve<T>(&self, n: usize) -> NonNull<T> {
        assert!(!std::mem::needs_drop::<T>() && align_of::<T>() <= ALIGN);
        let offset = self.used.get();
        let end = offset + (n * size_of::<T>()).next_multiple_of(ALIGN);
        assert!(end <= SIZE, "a simulation's memory is full");
        self.used.set(end);
        // SAFETY: `offset` is inside the block, as `end` is (invariant 1).
        unsafe { self.start().add(offset).cast::<T>() }
    }
}

/// The lines of a simulation.
#[derive(Debug)]
pub(crate) struct Lines {
    base: usize,
    lines: Vec<Line>,
    /// Lines outside the arena, by line number.
    elsewhere: HashMap<usize, usize>,
    others: Vec<Line>,
}

impl Lines {
    pub(crate) fn new(arena: &Arena) -> Self {
        Lines {
            base: arena.base(),
            lines: Vec::new(),
            elsewhere: HashMap::new(),
            others: Vec::new(),
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
        let next = self.others.len();
        let i = *self.elsewhere.entry(address / LINE).or_insert(next);
        if i == next {
            self.others.push(Line::new());
        }
        &mut self.others[i]
    }
}
