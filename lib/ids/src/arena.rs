//! Memory by ID. Each ID has a stretch of address space of its own; the data of one structure lie
//! at the same offset in every stretch.
//!
//! ```text
//!   region:   | stretch of ID 0            | stretch of ID 1            | ...
//!             | a | b |  c  |   free       | a | b |  c  |   free       |
//! ```
//!
//! Address space costs no memory, but limits on it count it. A page gets memory when it is first
//! written, from the NUMA node of the writing CPU. Only threads that run with the ID write there.
//! Nothing moves, IDs share no pages, and structures that an ID uses together share pages and TLB
//! entries. Huge pages are declined: one would span many IDs.
//!
//! There is no lock: no thread waits for another one that maps memory, or that does not exist in
//! the child of a fork. Lines that another thread was taking or returning at the fork stay taken in
//! the child.
//!
//! # Invariants
//!
//! 1. A region is mapped, zeroed when fresh, readable and writable, until the arena is dropped; the
//!    region of one large structure until the structure is freed.
//! 2. Allocated ranges do not overlap, and lie within every stretch. The owner of a range returns
//!    it zeroed, when nothing uses it any more.
//! 3. Free ranges are zero in every stretch. A bit of `taken` belongs to the thread that has set
//!    it, until that thread clears it.
//! 4. A region comes from a box, is in the list of its arena from when it is complete, and is freed
//!    with the arena.

use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering::*};

use super::sequence::{STRETCH, Slots};

/// The alignment and granularity of allocations: two cache lines, since processors fetch them in
/// pairs. No two structures and no two IDs share such a pair.
pub(super) const LINE: usize = 128;

/// Memory for a number of IDs.
#[derive(Debug)]
pub(super) struct Arena {
    ids: u32,
    /// The region that was made last.
    regions: AtomicPtr<Region>,
}

/// The number of lines in a stretch, and of words that have a bit for each line.
const LINES: usize = STRETCH / LINE;
const WORDS: usize = LINES / 64;

/// Stretches, for structures that are no larger than one.
#[derive(Debug)]
struct Region {
    slots: Slots,
    /// A bit for each line of the stretch, set if it is allocated.
    taken: [AtomicU64; WORDS],
    /// The region that was made before.
    next: *mut Region,
}

// SAFETY: a region is memory like any other; the owners of its slots decide who accesses them. The
// list only grows.
unsafe impl Send for Arena {}
// SAFETY: as above.
unsafe impl Sync for Arena {}

impl Arena {
    pub(super) fn new(ids: u32) -> Self {
        Arena {
            ids,
            regions: AtomicPtr::new(ptr::null_mut()),
        }
    }

    pub(super) fn ids(&self) -> u32 {
        self.ids
    }

    fn regions(&self) -> impl Iterator<Item = &Region> {
        // SAFETY: invariant 4. Acquire pairs with the release in `allocate`.
        let first = unsafe { self.regions.load(Acquire).as_ref() };
        // SAFETY: invariant 4.
        core::iter::successors(first, |region| unsafe { region.next.as_ref() })
    }

    /// Allocates `size` zeroed bytes for every ID, aligned to [`LINE`] and alone in their lines. If
    /// `size` is at most a [`STRETCH`], the slots are [near](Slots::are_near). `None`: the address
    /// space is not available.
    pub(super) fn allocate(&self, size: usize) -> Option<Slots> {
        let stride = stride_for(size)?;
        if stride > STRETCH {
            // The structure gets a mapping of its own.
            return self.map(stride);
        }
        let lines = lines_for(size);
        if let Some(slots) = self.regions().find_map(|region| region.take(lines)) {
            return Some(slots);
        }
        let mut region = Box::new(Region {
            slots: self.map(stride)?,
            taken: [const { AtomicU64::new(0) }; WORDS],
            next: ptr::null_mut(),
        });
        let slots = region.take(lines)?;
        region.next = self.regions.load(Relaxed);
        let region = Box::into_raw(region);
        // Release: publishes the region.
        while let Err(first) = self.regions.compare_exchange(
            // SAFETY: invariant 4: until this succeeds only this thread knows the region.
            unsafe { (*region).next },
            region,
            Release,
            Relaxed,
        ) {
            // SAFETY: as above.
            unsafe { (*region).next = first };
        }
        Some(slots)
    }

    fn map(&self, stride: usize) -> Option<Slots> {
        Some(Slots {
            base: memory::map(stride.checked_mul(self.ids as usize)?)?,
            shift: stride.ilog2(),
            limit: self.ids,
        })
    }

    fn unmap(&self, slots: Slots) {
        memory::unmap(slots.base, slots.stride() * self.ids as usize);
    }

    /// Takes back what `allocate(size)` has returned. The caller has zeroed it, and nothing uses it
    /// any more. Only the caller knows which slots were written; zeroing the other slots would give
    /// them memory.
    pub(super) fn free(&self, slots: Slots, size: usize) {
        if !slots.are_near() {
            return self.unmap(slots);
        }
        for region in self.regions() {
            let base = region.slots.base.addr().get();
            let offset = slots.base.addr().get().wrapping_sub(base);
            if offset < STRETCH {
                return region.put(offset / LINE, lines_for(size));
            }
        }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        let mut next = *self.regions.get_mut();
        while !next.is_null() {
            // SAFETY: invariant 4.
            let region = unsafe { Box::from_raw(next) };
            self.unmap(region.slots);
            next = region.next;
        }
    }
}

/// The distance between the slots of two IDs for a structure of this size.
fn stride_for(size: usize) -> Option<usize> {
    let size = size.max(1).checked_next_multiple_of(LINE)?;
    size.max(STRETCH).checked_next_power_of_two()
}

/// The number of lines for `size` bytes, which are at most a stretch.
fn lines_for(size: usize) -> usize {
    size.max(1).div_ceil(LINE)
}

impl Region {
    /// Allocates the first `lines` neighbouring lines that are free.
    fn take(&self, lines: usize) -> Option<Slots> {
        let mut from = 0;
        // `from` is behind the last taken line of those looked at. If a claim fails, another thread
        // has taken a line since, and the search goes on behind that line.
        while from + lines <= LINES {
            match (from..from + lines).rev().find(|&line| self.is_taken(line)) {
                Some(taken) => from = taken + 1,
                None => match self.claim(from, lines) {
                    Ok(()) => {
                        // SAFETY: by invariant 2 the offset lies within the stretch.
                        let base = unsafe { self.slots.base.add(from * LINE) };
                        return Some(Slots { base, ..self.slots });
                    }
                    Err(taken) => from = taken + 1,
                },
            }
        }
        None
    }

    fn is_taken(&self, line: usize) -> bool {
        self.taken[line / 64].load(Relaxed) >> (line % 64) & 1 != 0
    }

    /// Sets the bits of these lines.
    ///
    /// # Errors
    ///
    /// A line that is taken. Then no line is claimed.
    fn claim(&self, from: usize, lines: usize) -> Result<(), usize> {
        for line in from..from + lines {
            let bit = 1 << (line % 64);
            // Acquire pairs with the release in `put`: the last owner has zeroed it.
            if self.taken[line / 64].fetch_or(bit, Acquire) & bit != 0 {
                self.put(from, line - from);
                return Err(line);
            }
        }
        Ok(())
    }

    fn put(&self, from: usize, lines: usize) {
        for line in from..from + lines {
            self.taken[line / 64].fetch_and(!(1 << (line % 64)), Release);
        }
    }
}

impl Slots {
    /// Whether invariant 4 of `sequence` holds.
    pub(super) fn are_near(&self) -> bool {
        self.stride() == STRETCH
    }

    /// The distance between the slots of two neighbouring IDs.
    fn stride(&self) -> usize {
        1 << self.shift
    }

    /// The slot of an ID, which must be below the limit.
    #[inline]
    pub(super) fn of(&self, id: u32) -> NonNull<u8> {
        debug_assert!(id < self.limit);
        // SAFETY: by invariants 1 and 2 of this file the slots of all IDs below the limit are one
        // mapping.
        unsafe { self.base.add((id as usize) << self.shift) }
    }
}

/// The kernel's mappings.
#[cfg(not(miri))]
mod memory {
    use core::ptr::{self, NonNull};

    pub(super) fn map(bytes: usize) -> Option<NonNull<u8>> {
        // SAFETY: a fresh private mapping touches no existing memory; the advice is for that
        // mapping only, and may fail.
        unsafe {
            let base = libc::mmap(
                ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            );
            if base == libc::MAP_FAILED {
                return None;
            }
            libc::madvise(base, bytes, libc::MADV_NOHUGEPAGE);
            NonNull::new(base.cast())
        }
    }

    pub(super) fn unmap(base: NonNull<u8>, bytes: usize) {
        // SAFETY: invariant 1: this is the mapping made above, and nothing uses it any more.
        unsafe { libc::munmap(base.as_ptr().cast(), bytes) };
    }
}

/// Miri has no mappings that cost nothing.
#[cfg(miri)]
mod memory {
    use super::LINE;
    use core::ptr::NonNull;
    use std::alloc::{Layout, alloc_zeroed, dealloc};

    fn layout(bytes: usize) -> Option<Layout> {
        Layout::from_size_align(bytes.max(LINE), LINE).ok()
    }

    pub(super) fn map(bytes: usize) -> Option<NonNull<u8>> {
        // SAFETY: the size is not 0.
        NonNull::new(unsafe { alloc_zeroed(layout(bytes)?) })
    }

    pub(super) fn unmap(base: NonNull<u8>, bytes: usize) {
        if let Some(layout) = layout(bytes) {
            // SAFETY: invariant 1: allocated above with this layout.
            unsafe { dealloc(base.as_ptr(), layout) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_zeroed_apart_and_used_again() {
        let arena = Arena::new(3);
        let a = arena.allocate(8).unwrap();
        let b = arena.allocate(200).unwrap();
        assert_eq!(b.base.addr().get() - a.base.addr().get(), LINE);
        assert_eq!(a.base.addr().get() % LINE, 0);
        for id in 0..3 {
            // SAFETY: invariant 2.
            unsafe { a.of(id).cast::<u64>().write(7) };
            // SAFETY: invariant 2.
            assert_eq!(unsafe { b.of(id).cast::<u64>().read() }, 0);
        }
        for id in 0..3 {
            // SAFETY: invariant 2.
            unsafe { a.of(id).cast::<u64>().write(0) };
        }
        arena.free(a, 8);
        let again = arena.allocate(100).unwrap();
        assert_eq!(again.base, a.base);
        for id in 0..3 {
            // SAFETY: invariant 2.
            assert_eq!(unsafe { again.of(id).cast::<u64>().read() }, 0);
        }
        arena.free(b, 200);
        arena.free(again, 100);
        let regions: Vec<_> = arena.regions().collect();
        assert_eq!(regions.len(), 1);
        assert!((0..LINES).all(|line| !regions[0].is_taken(line)));
    }

    #[test]
    fn what_does_not_fit_gets_another_region() {
        let arena = Arena::new(2);
        let most: Vec<_> = (0..3).map(|_| arena.allocate(STRETCH / 2)).collect();
        let most: Vec<_> = most.into_iter().map(Option::unwrap).collect();
        assert_eq!(arena.regions().count(), 2);
        let last = arena.allocate(STRETCH / 2 + 1);
        assert_eq!(arena.regions().count(), 3);
        arena.free(last.unwrap(), STRETCH / 2 + 1);
        arena.free(most[0], STRETCH / 2);
        // There is a hole, and it is large enough.
        let small = [1, 1, STRETCH / 2 - 2 * LINE].map(|size| arena.allocate(size).unwrap());
        assert!(small[2].base.addr() > small[0].base.addr());
        assert_eq!(arena.regions().count(), 3);
    }

    /// Threads that allocate at the same time get different lines, and each line comes back.
    #[test]
    fn threads_share_a_region() {
        let arena = Arena::new(1);
        let rounds = if cfg!(miri) { 3 } else { 300 };
        std::thread::scope(|scope| {
            for thread in 1..=3_usize {
                let arena = &arena;
                scope.spawn(move || {
                    for round in 0..rounds {
                        let size = (1 + (round * thread) % 70) * LINE;
                        let slots = arena.allocate(size).unwrap();
                        let words = (0..size / 8).map(|at| {
                            // SAFETY: invariant 2.
                            unsafe { slots.of(0).cast::<usize>().add(at) }
                        });
                        for word in words {
                            // SAFETY: invariant 2: nobody else writes there.
                            unsafe {
                                assert_eq!(word.read(), 0);
                                word.write(thread);
                                assert_eq!(word.read(), thread);
                                word.write(0);
                            }
                        }
                        arena.free(slots, size);
                    }
                });
            }
        });
        let mut regions = arena.regions();
        assert!(regions.all(|region| (0..LINES).all(|line| !region.is_taken(line))));
    }

    #[test]
    fn what_is_larger_than_a_stretch_gets_its_own_region() {
        let arena = Arena::new(2);
        let large = arena.allocate(STRETCH + 1).unwrap();
        assert_eq!(large.stride(), 2 * STRETCH);
        // SAFETY: invariant 2: the last byte of the last slot.
        unsafe { large.of(1).add(STRETCH).write(1) };
        // The stretch of the large structure would have room for the small one.
        let small = arena.allocate(8).unwrap();
        assert!(small.are_near() && !large.are_near());
        assert_eq!(arena.regions().count(), 1);
        arena.free(large, STRETCH + 1);
        assert!(arena.allocate(usize::MAX).is_none());
    }
}
