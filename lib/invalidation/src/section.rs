//! An open section.

use super::inner::{Inner, each};
use super::tag::Tag;
use core::marker::PhantomData;

/// An open section: the time in which a thread removes things and then invalidates them. It ends
/// when this is dropped, by the thread that began it.
///
/// The end releases what the thread did before: a thread that sees a tag of this section
/// [passed](super::Domain::passed) sees that, too. Ending takes as long as
/// [beginning](super::Domain::begin). It wakes sleeping waiters if one of them may go.
///
/// ```
/// use kinlock_invalidation::{Domain, Tag};
///
/// let (domain, tag) = (Domain::new(), Tag::new());
/// let section = domain.begin();
/// section.tag(&tag);
/// assert!(!domain.passed(&tag));
/// drop(section);
/// assert!(domain.passed(&tag));
/// ```
///
/// It belongs to its thread:
///
/// ```compile_fail,E0277
/// let domain = kinlock_invalidation::Domain::new();
/// let section = domain.begin();
/// std::thread::scope(|s| {
///     s.spawn(|| drop(section));
/// });
/// ```
#[must_use = "a section that is dropped at once covers nothing"]
#[derive(Debug)]
pub struct Section<'a> {
    domain: &'a Inner,
    place: u16,
    generation: u64,
    /// Not `Send`: the place is the thread's.
    thread: PhantomData<*const ()>,
}

impl<'a> Section<'a> {
    #[inline]
    pub(super) fn new(domain: &'a Inner, place: u16, generation: u64) -> Self {
        Section {
            domain,
            place,
            generation,
            thread: PhantomData,
        }
    }

    /// Stamps `tag`: it passes when this section and all older ones have ended. A newer stamp
    /// stays. O(1): one load if the tag has this stamp or a newer one, else a compare-and-swap,
    /// which releases.
    ///
    /// Must be called under the lock that makes the thing look free, so that a thread that sees it
    /// free sees the tag.
    #[inline]
    pub fn tag(&self, tag: &Tag) {
        tag.raise(self.generation);
    }

    /// The generation with which the section began. A nested section has that of the outermost one.
    #[inline]
    pub fn generation(&self) -> u64 {
        self.generation
    }
}

impl Drop for Section<'_> {
    #[inline]
    fn drop(&mut self) {
        each!(self.domain, domain => domain.end(self.place));
    }
}
