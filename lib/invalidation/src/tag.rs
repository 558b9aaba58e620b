//! The tag of a thing that a batch may cover.

use core::sync::atomic::{AtomicU64, Ordering::*};

/// Records which sections must end before a thing may be reused: eight bytes next to the thing.
///
/// Sections stamp it with a generation. Tags of one domain are compared with each other by
/// [`generation`](Self::generation): the lower one passes no later.
///
/// ```
/// use kinlock_invalidation::{Domain, Tag};
///
/// struct Page {
///     tag: Tag,
///     // ...
/// }
///
/// let domain = Domain::new();
/// let page = Page { tag: Tag::new() };
/// assert!(domain.passed(&page.tag), "nobody has removed it yet");
/// domain.begin().tag(&page.tag);
/// assert_eq!(page.tag.generation(), 1);
/// ```
///
/// All-zero memory is a tag that has passed. A tag belongs to the domain whose sections stamp it.
/// Another domain cannot answer for it: there the tag may never pass, and a wait for it either
/// waits for unrelated sections or returns [`WaitError::ForeignTag`](super::WaitError::ForeignTag).
#[repr(transparent)]
#[derive(Debug, Default)]
pub struct Tag(AtomicU64);

const _: () = assert!(size_of::<Tag>() == 8);

impl Tag {
    /// A tag that has passed in every domain.
    pub const fn new() -> Self {
        Tag(AtomicU64::new(0))
    }

    /// A tag of a generation that was given out.
    pub(super) const fn at(generation: u64) -> Self {
        Tag(AtomicU64::new(generation))
    }

    /// The generation that must pass; 0 = none. Acquires. It can be stored elsewhere;
    /// [`Domain::tag_of`](super::Domain::tag_of) makes a tag of it again.
    #[inline]
    pub fn generation(&self) -> u64 {
        // Pairs with the Release in `raise`.
        self.0.load(Acquire)
    }

    /// Raises the tag's generation to `generation`, unless the tag's is newer.
    #[inline]
    pub(super) fn raise(&self, generation: u64) {
        let raise = |seen| (seen < generation).then_some(generation);
        let _ = self.0.fetch_update(Release, Relaxed, raise);
    }
}
