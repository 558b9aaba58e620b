//! An open section.

use super::Tag;
use super::domain::Inner;
use core::marker::PhantomData;

/// A section that is open until this is dropped, by the thread that began it.
///
/// ```compile_fail
/// let domain = kinlock_invalidation::Domain::new();
/// let section = domain.begin();
/// // It belongs to its thread.
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

    /// Stamps `tag`: it passes when this section has ended, and all that are older; not before those that had stamped it already. One load if it is stamped so
    /// already, else a compare-and-swap.
    ///
    /// To be called under whatever lock makes the thing look free, so that whoever sees it free sees the tag.
    #[inline]
    pub fn tag(&self, tag: &Tag) {
        tag.raise(self.generation);
    }

    /// The generation with which the section began; that of the outermost one if it is nested.
    #[inline]
    pub fn generation(&self) -> u64 {
        self.generation
    }
}

impl Drop for Section<'_> {
    #[inline]
    fn drop(&mut self) {
        self.domain.end(self.place);
    }
}
