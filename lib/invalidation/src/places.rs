//! The memory of a domain's places: address space for all, memory for those in use.
//!
//! # Invariants cited by `SAFETY` comments
//!
//! 1. A place of all zeros is valid, and was never used: it consists of atomics.
//! 2. The mapping is private, zeroed, aligned to a page, as long as `PLACES` places, and unmapped
//!    once, when its owner is dropped.

use crate::raw::{MAX_PLACES, Place};
use core::ops::Deref;
use core::ptr::NonNull;
use kinlock_linux::Native;

/// How many places a domain has. Fewer under Miri, which would take long to make them all.
pub(super) const PLACES: usize = if cfg!(miri) { 31 } else { MAX_PLACES };

/// The places of one domain; `L` is an atomic, or a structure of them.
#[derive(Debug)]
pub(super) struct Places<L>(NonNull<Place<Native, L>>);

// SAFETY: it owns its places, as a `Box` would.
unsafe impl<L: Send> Send for Places<L> {}
// SAFETY: as above.
unsafe impl<L: Sync> Sync for Places<L> {}

impl<L> Places<L> {
    const BYTES: usize = PLACES * size_of::<Place<Native, L>>();

    pub(super) fn new() -> Self {
        // SAFETY: a new mapping touches no existing memory.
        let at = unsafe {
            libc::mmap(
                core::ptr::null_mut(),
                Self::BYTES,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        let at = (at != libc::MAP_FAILED).then_some(at);
        match at.and_then(|at| NonNull::new(at.cast())) {
            Some(at) => Places(at),
            None => std::alloc::handle_alloc_error(std::alloc::Layout::new::<
                [Place<Native, L>; PLACES],
            >()),
        }
    }
}

impl<L> Deref for Places<L> {
    type Target = [Place<Native, L>];

    #[inline]
    fn deref(&self) -> &Self::Target {
        // SAFETY: invariants 1 and 2.
        unsafe { core::slice::from_raw_parts(self.0.as_ptr(), PLACES) }
    }
}

impl<L> Drop for Places<L> {
    fn drop(&mut self) {
        // SAFETY: invariant 2.
        unsafe { libc::munmap(self.0.as_ptr().cast(), Self::BYTES) };
    }
}
