//! An open section.

use super::inner::Inner;
use super::tag::Tag;
use core::marker::PhantomData;

/// An open section. It ends when this is dropped, by the thread that began it.
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

    /// Stamps `tag`. The tag passes when this section and all older ones have ended, and not before
    /// sections that stamped it earlier. One load if it has this stamp or a newer one already, else
    /// a compare-and-swap.
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
        self.domain.end(self.place);
    }
}
