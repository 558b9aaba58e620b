//! The tag of a thing that may be covered by a batch.

use core::sync::atomic::{AtomicU64, Ordering::*};

/// Says which sections have to end before a thing may be reused: eight bytes beside it.
///
/// All-zero memory is a tag whose sections have passed. A tag belongs to the domain whose sections stamp it; to ask another domain about it is meaningless. There it may never pass; who waits for it waits for that domain's sections, or is told.
#[repr(transparent)]
#[derive(Debug, Default)]
pub struct Tag(AtomicU64);

const _: () = assert!(size_of::<Tag>() == 8);

impl Tag {
    /// A tag that has passed in every domain.
    pub const fn new() -> Self {
        Tag(AtomicU64::new(0))
    }

    /// The generation that has to pass; 0: none. Acquires.
    #[inline]
    pub fn generation(&self) -> u64 {
        // Pairs with the Release in `raise`.
        self.0.load(Acquire)
    }

    /// Makes it `generation`, unless it is newer.
    #[inline]
    pub(super) fn raise(&self, generation: u64) {
        let mut seen = self.0.load(Relaxed);
        while seen < generation {
            match self
                .0
                .compare_exchange_weak(seen, generation, Release, Relaxed)
            {
                Ok(_) => return,
                Err(now) => seen = now,
            }
        }
    }
}

impl From<u64> for Tag {
    fn from(generation: u64) -> Self {
        Tag(AtomicU64::new(generation))
    }
}
