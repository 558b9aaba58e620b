//! The bitmap of IDs in use, and the record that last kept each ID.

use super::{IdAllocator, Storage};
use kinlock_core::platform::{Atomic, Ordering::*, Platform};

/// The number of IDs in a [`Block`].
pub const BLOCK: u32 = 32;

/// The state of [`BLOCK`] IDs. All zeros: free.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Block<P: Platform> {
    /// A bit for each ID: held or kept.
    pub(super) used: Used<P>,
    /// The index of the record that keeps the ID, if any. Written by the ID's holder only.
    pub(super) keepers: [P::AtomicU32; BLOCK as usize],
}

/// In a cache line of its own: a thread that frees an ID should not disturb one that looks up a
/// keeper.
#[repr(C, align(64))]
#[derive(Debug)]
pub(super) struct Used<P: Platform>(pub(super) P::AtomicU32);

impl<P: Platform> Default for Block<P> {
    fn default() -> Self {
        Self::new()
    }
}

impl<P: Platform> Block<P> {
    /// A block whose IDs are all free.
    pub fn new() -> Self {
        Block {
            used: Used(Atomic::new(0)),
            keepers: core::array::from_fn(|_| Atomic::new(0)),
        }
    }
}

impl<P: Platform, S: Storage<P>> IdAllocator<P, S> {
    /// The number of IDs that are held or kept. O(capacity / 32); not a consistent snapshot.
    pub fn in_use(&self) -> u32 {
        self.ids_in_use().count() as u32
    }

    /// The IDs that are held or kept. O(capacity / 32). Not a consistent snapshot, but it contains
    /// the IDs that the calling thread holds.
    pub fn ids_in_use(&self) -> impl Iterator<Item = u32> {
        let blocks = self
            .storage
            .blocks()
            .iter()
            .zip((0..).step_by(BLOCK as usize));
        blocks.flat_map(|(block, first)| {
            let used = block.used.0.load(Relaxed);
            (0..BLOCK)
                .filter(move |bit| used >> bit & 1 != 0)
                .map(move |bit| first + bit)
        })
    }

    pub(super) fn used(&self, id: u32) -> &P::AtomicU32 {
        &self.storage.blocks()[(id / BLOCK) as usize].used.0
    }

    pub(super) fn keeper(&self, id: u32) -> &P::AtomicU32 {
        &self.storage.blocks()[(id / BLOCK) as usize].keepers[(id % BLOCK) as usize]
    }

    /// Takes `id`, if it is free.
    pub(super) fn claim(&self, id: u32) -> bool {
        let bit = 1 << (id % BLOCK);
        let used = self.used(id);
        // A load first, since the ID is usually in use. Acquire pairs with the Release in `free`.
        used.load(Relaxed) & bit == 0 && used.fetch_or(bit, Acquire) & bit == 0
    }

    /// Takes the lowest free ID in the range.
    pub(super) fn claim_lowest(&self, from: u32, to: u32) -> Option<u32> {
        let mut id = from;
        while id < to {
            let taken = self.used(id).load(Relaxed);
            let free = !taken & (u32::MAX << (id % BLOCK));
            let lowest = id / BLOCK * BLOCK + free.trailing_zeros();
            if free == 0 {
                id = (id / BLOCK + 1) * BLOCK;
            } else if lowest >= to {
                return None;
            } else if self.claim(lowest) {
                return Some(lowest);
            }
            // If another thread was faster, look at the same bits again.
        }
        None
    }

    /// Frees `id`, which the caller holds.
    pub(super) fn free(&self, id: u32) {
        let bit: u32 = 1 << (id % BLOCK);
        // Release pairs with the Acquire in `claim`.
        self.used(id).fetch_and(!bit, Release);
    }
}
