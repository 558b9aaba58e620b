//! Where sections are open.

use kinlock_core::platform::{Atomic, Ordering::*, Platform};

/// A place: the backend's part and the owner's part. Two places never share a pair of cache lines,
/// which some CPUs fetch together.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct Place<P: Platform, L> {
    /// The backend's part.
    pub link: L,
    pub(super) owner: Owner<P>,
}

/// Written by the owner of the place only.
#[derive(Debug)]
pub(super) struct Owner<P: Platform> {
    /// The generation with which the open section began; 0 while it begins.
    pub(super) begun: P::AtomicU64,
    /// When the section began, as its owner said.
    pub(super) since: P::AtomicU64,
    /// How many times the section was begun and not ended yet.
    pub(super) depth: P::AtomicU32,
}

impl<P: Platform, L> Place<P, L> {
    /// A place that was never used, for platforms that cannot use zeroed memory instead.
    pub fn new(link: L) -> Self {
        Place {
            link,
            owner: Owner {
                begun: Atomic::new(0),
                since: Atomic::new(0),
                depth: Atomic::new(0),
            },
        }
    }
}

/// The places of a domain, as its backend sees them.
#[derive(Debug)]
pub struct Places<'a, P: Platform, L> {
    pub(super) all: &'a [Place<P, L>],
    pub(super) highest: &'a P::AtomicU32,
}

impl<P: Platform, L> Clone for Places<'_, P, L> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: Platform, L> Copy for Places<'_, P, L> {}

impl<'a, P: Platform, L> Places<'a, P, L> {
    /// The backend's part of a place.
    #[inline]
    pub fn link(self, place: u16) -> &'a L {
        &self.all[place as usize - 1].link
    }

    /// The places up to the highest in which a section was ever open. The places of all sections
    /// that the caller may know of are among them: a place counts before its section begins.
    pub fn used(self) -> &'a [Place<P, L>] {
        &self.all[..self.highest.load(Relaxed) as usize]
    }
}
