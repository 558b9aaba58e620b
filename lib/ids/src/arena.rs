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
//! # Invariants
//!
//! 1. A region is mapped, zeroed when fresh, readable and writable, until the arena is dropped;
//!    that of one large structure until that is freed.
//! 2. Allocated ranges do not overlap, and lie within every stretch. The owner of a range returns
//!    it zeroed, when nothing uses it any more.
//! 3. Free ranges are zero in every stretch.

use core::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::sequence::{STRETCH, Slots};
use kinlock::{SpinLock, SpinLockGuard};

/// The alignment and granularity of allocations: two cache lines, since processors fetch them in
/// pairs. No two structures and no two IDs share such a pair.
pub(super) const LINE: usize = 128;

/// Memory for a number of IDs.
#[derive(Debug)]
pub(super) struct Arena {
    ids: u32,
    /// Locked only by the holder of [`TABLES`].
    regions: Mutex<Vec<Region>>,
}

/// Guards the tables of regions of all arenas. One lock for all of them can be held across a fork,
/// so that in the child no table is locked or half changed.
pub(super) static TABLES: SpinLock<()> = SpinLock::new(());

struct Table<'a> {
    // The fields are dropped in this order.
    regions: MutexGuard<'a, Vec<Region>>,
    _tables: SpinLockGuard<'static, ()>,
}

#[derive(Debug)]
struct Region {
    slots: Slots,
    /// Free ranges of offsets, in ascending order; no two touch.
    free: Vec<(usize, usize)>,
}

// SAFETY: a region is memory like any other; the owners of its slots decide who accesses them.
unsafe impl Send for Region {}

/// The address space is not available.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct NoMemory;

impl Arena {
    pub(super) fn new(ids: u32) -> Self {
        Arena {
            ids,
            regions: Mutex::new(Vec::new()),
        }
    }

    pub(super) fn ids(&self) -> u32 {
        self.ids
    }

    fn table(&self) -> Table<'_> {
        let _tables = TABLES.lock();
        Table {
            regions: self.regions.lock().unwrap_or_else(PoisonError::into_inner),
            _tables,
        }
    }

    /// Allocates `size` zeroed bytes for every ID, aligned to [`LINE`] and alone in their lines. If
    /// `size` is at most a [`STRETCH`], the slots are [near](Slots::are_near).
    pub(super) fn allocate(&self, size: usize) -> Result<Slots, NoMemory> {
        let size = size.max(1).checked_next_multiple_of(LINE).ok_or(NoMemory)?;
        let stride = size.max(STRETCH).checked_next_power_of_two();
        let stride = stride.ok_or(NoMemory)?;
        let regions = &mut self.table().regions;
        let mut fitting = regions
            .iter_mut()
            .filter(|region| region.slots.stride() == stride);
        if let Some(slots) = fitting.find_map(|region| region.take(size)) {
            return Ok(slots);
        }
        let mut region = Region::map(self.ids, stride)?;
        let slots = region.take(size).ok_or(NoMemory)?;
        regions.push(region);
        Ok(slots)
    }

    /// Takes back what `allocate(size)` has returned. The caller has zeroed it, and nothing uses it
    /// any more. Only the caller knows which slots were written; zeroing the others would give them
    /// memory.
    pub(super) fn free(&self, slots: Slots, size: usize) {
        let size = size.max(1).next_multiple_of(LINE);
        let regions = &mut self.table().regions;
        for index in 0..regions.len() {
            let region = &mut regions[index];
            let offset = slots
                .base
                .addr()
                .get()
                .wrapping_sub(region.slots.base.addr().get());
            if offset >= region.slots.stride() {
                continue;
            }
            if region.slots.are_near() {
                region.put(offset, size);
            } else {
                // It had the region for itself.
                let region = regions.remove(index);
                memory::unmap(region.slots.base, region.bytes(self.ids));
            }
            return;
        }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        let regions = self
            .regions
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        for region in regions.drain(..) {
            memory::unmap(region.slots.base, region.bytes(self.ids));
        }
    }
}

impl Region {
    fn map(ids: u32, stride: usize) -> Result<Self, NoMemory> {
        let bytes = stride.checked_mul(ids as usize).ok_or(NoMemory)?;
        let base = memory::map(bytes).ok_or(NoMemory)?;
        Ok(Region {
            slots: Slots {
                base,
                shift: stride.ilog2(),
                limit: ids,
            },
            free: vec![(0, stride)],
        })
    }

    fn bytes(&self, ids: u32) -> usize {
        self.slots.stride() * ids as usize
    }

    fn take(&mut self, size: usize) -> Option<Slots> {
        let at = self.free.iter().position(|&(_, len)| len >= size)?;
        let (offset, len) = self.free[at];
        if len == size {
            self.free.remove(at);
        } else {
            self.free[at] = (offset + size, len - size);
        }
        // SAFETY: by invariant 2 the offset lies within the stretch.
        let base = unsafe { self.slots.base.add(offset) };
        Some(Slots { base, ..self.slots })
    }

    fn put(&mut self, offset: usize, size: usize) {
        let at = self.free.partition_point(|&(other, _)| other < offset);
        self.free.insert(at, (offset, size));
        self.free.dedup_by(|next, before| {
            let touches = before.0 + before.1 == next.0;
            if touches {
                before.1 += next.1;
            }
            touches
        });
    }
}

impl Slots {
    /// Whether invariant 5 of `sequence` holds.
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
        let regions = &arena.table().regions;
        assert_eq!(regions.len(), 1);
        assert_eq!(regions[0].free, [(0, STRETCH)]);
    }

    #[test]
    fn what_is_larger_than_a_stretch_gets_its_own_region() {
        let arena = Arena::new(2);
        let large = arena.allocate(STRETCH + 1).unwrap();
        assert_eq!(large.stride(), 2 * STRETCH);
        // SAFETY: invariant 2: the last byte of the last slot.
        unsafe { large.of(1).add(STRETCH).write(1) };
        // There would be room for it in the large one's stretch.
        let small = arena.allocate(8).unwrap();
        assert!(small.are_near() && !large.are_near());
        arena.free(large, STRETCH + 1);
        assert_eq!(arena.table().regions.len(), 1);
        assert!(arena.allocate(usize::MAX).is_err());
    }
}
