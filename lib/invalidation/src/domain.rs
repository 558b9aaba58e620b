//! A domain, its statistics, and its open sections.
//!
//! # Invariant
//!
//! 1. `fork` of kinlock-linux calls the function of a part in the child, on its only thread. No
//!    signal handler that has interrupted this library forks.

use super::backend::Backend;
use super::error::{BeginError, NeverIssued, WaitError};
use super::inner::{self, Inner, coarse_now, each};
use super::section::Section;
use super::tag::Tag;
use super::thread;
use crate::raw::Open;
use core::fmt;
use kinlock_core::platform::NEVER;
use kinlock_linux::fork::Part;
use kinlock_linux::native::{deadline, register_for_fork};
use std::sync::Arc;
use std::time::Duration;

/// A group of related sections: those that invalidate the same kind of thing.
///
/// The [module](super) describes its purpose and its guarantees, with an example.
///
/// A domain can be shared by threads. A `static` one needs a [`LazyLock`](std::sync::LazyLock):
///
/// ```
/// use kinlock_invalidation::Domain;
/// use std::sync::LazyLock;
///
/// static PAGES: LazyLock<Domain> = LazyLock::new(Domain::new);
///
/// drop(PAGES.begin());
/// ```
#[derive(Debug)]
pub struct Domain {
    inner: Arc<Inner>,
    /// The copy of this library that has made it: threads have places in one copy only.
    copy: usize,
}

impl Drop for Domain {
    fn drop(&mut self) {
        self.inner.forget();
    }
}

impl Default for Domain {
    fn default() -> Self {
        Self::new()
    }
}

impl Domain {
    /// A domain without open sections, with the default [`Backend`].
    pub fn new() -> Self {
        Self::with_backend(Backend::default())
    }

    /// A domain without open sections. Reserves about a megabyte of address space for all places;
    /// only used places get memory.
    ///
    /// ```
    /// use kinlock_invalidation::{Backend, Domain};
    ///
    /// let domain = Domain::with_backend(Backend::Slots);
    /// assert_eq!(domain.backend(), Backend::Slots);
    /// ```
    pub fn with_backend(backend: Backend) -> Self {
        register_for_fork(2, &PART);
        Domain {
            inner: Inner::new(backend),
            copy: thread::copy(),
        }
    }

    /// The chosen backend.
    pub fn backend(&self) -> Backend {
        self.inner.backend()
    }

    /// Opens a section. If the calling thread has one open here, opens that once more.
    ///
    /// O(1). See [costs](super#semantics).
    ///
    /// # Panics
    /// If [`try_begin`](Self::try_begin) returns an error. A program with a few thousand threads
    /// never sees one in its first years.
    #[inline]
    pub fn begin(&self) -> Section<'_> {
        match self.try_begin() {
            Ok(section) => section,
            Err(error) => refuse(error),
        }
    }

    /// Like [`begin`](Self::begin), without panics.
    ///
    /// # Errors
    /// [`BeginError`] if the section cannot begin. Then nothing has changed.
    #[inline]
    pub fn try_begin(&self) -> Result<Section<'_>, BeginError> {
        if !self.is_of_this_copy() {
            return Err(BeginError::OtherCopy);
        }
        let place = thread::place()?;
        let generation = each!(self.inner, domain => domain.begin(place, coarse_now))?;
        Ok(Section::new(&self.inner, place, generation))
    }

    /// Whether all sections that `tag` refers to have ended. Once true it stays true until the tag
    /// is stamped again.
    ///
    /// O(1): one load besides the tag's. With the backend `slots`, if the answer is not known yet:
    /// O(threads that have begun sections here). If it returns true, the calling thread sees what
    /// those sections did. Never waits.
    #[inline]
    pub fn passed(&self, tag: &Tag) -> bool {
        let generation = tag.generation();
        each!(self.inner, domain => domain.passed(generation))
    }

    /// Waits until `tag` has [passed](Self::passed). Sections that begin during the wait do not
    /// prolong it. Afterwards the calling thread sees what the sections that it waited for did.
    ///
    /// Spins, then yields, then sleeps. A tag that has passed costs no more than `passed`.
    ///
    /// # Errors
    /// * [`WaitError::InsideSection`] if the calling thread has a section of this domain open,
    ///   whether the tag has passed or not.
    /// * [`WaitError::ForeignTag`] if no section of this domain can have stamped the tag.
    ///
    /// ```
    /// use kinlock_invalidation::{Domain, Tag, WaitError};
    ///
    /// let (domain, tag) = (Domain::new(), Tag::new());
    /// let section = domain.begin();
    /// section.tag(&tag);
    /// assert_eq!(domain.wait(&tag), Err(WaitError::InsideSection));
    /// drop(section);
    /// assert_eq!(domain.wait(&tag), Ok(()));
    /// ```
    #[inline]
    pub fn wait(&self, tag: &Tag) -> Result<(), WaitError> {
        self.wait_until(tag, NEVER)
    }

    /// Like [`wait`](Self::wait), for at most `timeout`. A zero timeout checks once.
    ///
    /// # Errors
    /// [`WaitError::TimedOut`], and those of [`wait`](Self::wait).
    ///
    /// ```
    /// use kinlock_invalidation::{Domain, Tag, WaitError};
    /// use std::time::Duration;
    ///
    /// let (domain, tag) = (Domain::new(), Tag::new());
    /// let section = domain.begin();
    /// section.tag(&tag);
    /// std::thread::scope(|s| {
    ///     let waiter = s.spawn(|| domain.wait_timeout(&tag, Duration::from_millis(1)));
    ///     assert_eq!(waiter.join().unwrap(), Err(WaitError::TimedOut));
    /// });
    /// ```
    pub fn wait_timeout(&self, tag: &Tag, timeout: Duration) -> Result<(), WaitError> {
        self.wait_until(tag, deadline(timeout))
    }

    #[inline]
    fn is_of_this_copy(&self) -> bool {
        self.copy == thread::copy()
    }

    /// Whether the calling thread has a section open here.
    #[inline]
    fn is_inside(&self) -> bool {
        thread::kept().is_some_and(|place| each!(self.inner, domain => domain.depth(place)) != 0)
    }

    #[inline]
    fn wait_until(&self, tag: &Tag, until: u64) -> Result<(), WaitError> {
        if !self.is_of_this_copy() {
            return Err(WaitError::OtherCopy);
        }
        if self.is_inside() {
            return Err(WaitError::InsideSection);
        }
        let generation = tag.generation();
        if each!(self.inner, domain => domain.passed(generation)) {
            Ok(())
        } else {
            self.wait_slow(generation, until)
        }
    }

    #[cold]
    #[inline(never)]
    fn wait_slow(&self, generation: u64, until: u64) -> Result<(), WaitError> {
        // A thread that has seen the tag of a section also sees that its generation was given out.
        if generation > self.newest() {
            return Err(WaitError::ForeignTag);
        }
        if each!(self.inner, domain => domain.wait(generation, until)) {
            Ok(())
        } else {
            Err(WaitError::TimedOut)
        }
    }

    /// A tag of this generation, which was read from a [`Tag`] or a [`Section`] and stored
    /// elsewhere. 0 is a [new](Tag::new) tag.
    ///
    /// The load of the stored generation must acquire what its store released, as with any data
    /// about a removed thing. O(1).
    ///
    /// # Errors
    /// [`NeverIssued`] if no section of this domain has had the generation: such a tag might never
    /// pass, or pass with sections that it does not stand for.
    ///
    /// ```
    /// use kinlock_invalidation::{Domain, NeverIssued};
    ///
    /// let domain = Domain::new();
    /// let stored: u64 = domain.begin().generation();
    /// assert!(domain.passed(&domain.tag_of(stored)?));
    /// assert_eq!(domain.tag_of(stored + 1).unwrap_err(), NeverIssued(stored + 1));
    /// # Ok::<(), NeverIssued>(())
    /// ```
    pub fn tag_of(&self, generation: u64) -> Result<Tag, NeverIssued> {
        if generation <= self.newest() {
            Ok(Tag::at(generation))
        } else {
            Err(NeverIssued(generation))
        }
    }

    /// A tag that passes when all sections that are open now have ended.
    ///
    /// "Now" covers every section whose begin happens before this call. Useful after things were
    /// removed without a section, or to be kept and checked later. O(1).
    pub fn snapshot(&self) -> Tag {
        Tag::at(self.newest())
    }

    fn newest(&self) -> u64 {
        each!(self.inner, domain => domain.newest())
    }

    /// Waits until all sections that are open now have ended: [`wait`](Self::wait) for a
    /// [`snapshot`](Self::snapshot).
    ///
    /// # Errors
    /// Those of [`wait`](Self::wait).
    ///
    /// ```
    /// # let domain = kinlock_invalidation::Domain::new();
    /// drop(domain.begin());
    /// assert_eq!(domain.wait_all(), Ok(()));
    /// ```
    pub fn wait_all(&self) -> Result<(), WaitError> {
        self.wait(&self.snapshot())
    }

    /// The statistics so far. A few loads.
    ///
    /// ```
    /// # let domain = kinlock_invalidation::Domain::new();
    /// drop(domain.begin());
    /// assert_eq!(domain.stats().longest_queue, 1);
    /// ```
    pub fn stats(&self) -> Stats {
        let tally = each!(self.inner, domain => domain.tally());
        Stats {
            backend: self.backend(),
            waits: tally.waits,
            slow_waits: tally.slow_waits,
            wakes: tally.wakes,
            longest_queue: tally.longest_queue,
        }
    }

    /// The sections that are open now, the oldest first. Not a consistent snapshot: sections may
    /// begin and end during the call. O(threads that have begun sections here); allocates.
    ///
    /// ```
    /// let domain = kinlock_invalidation::Domain::new();
    /// let section = domain.begin();
    /// for open in domain.dump() {
    ///     println!("{open}"); // generation 1, open for 0ns, thread 4711
    /// }
    /// # assert_eq!(domain.dump().len(), 1);
    /// ```
    pub fn dump(&self) -> Vec<OpenSection> {
        let now = coarse_now();
        let shown = |open: Open| OpenSection {
            generation: open.generation,
            current: open.current,
            age: Duration::from_nanos(now.saturating_sub(open.since)),
            thread: thread::id_of(open.place),
        };
        let mut open: Vec<_> = each!(self.inner, domain => domain.sections().map(shown).collect());
        open.sort_by_key(|open| open.current);
        open
    }
}

/// The domains, as a part of the fork protocol. Rank 2: it uses parts of lower ranks.
static PART: Part = Part { reset_in_child };

/// Ends the sections of threads that do not exist in the child of a fork.
fn reset_in_child() {
    // SAFETY: invariant 1.
    unsafe { inner::reset_in_child(thread::kept()) };
    thread::reset_in_child();
}

#[cold]
#[inline(never)]
fn refuse(error: BeginError) -> ! {
    panic!("a section cannot begin: {error}")
}

/// The statistics of a domain. Not a consistent snapshot: threads may count while the numbers are
/// read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Stats {
    /// The chosen backend.
    pub backend: Backend,
    /// How many waits were for a tag that had not passed.
    pub waits: u64,
    /// How many of these waits slept.
    pub slow_waits: u64,
    /// How many times sleeping waiters were woken, all at once. Only the end of a section for which
    /// a sleeper waits does that.
    pub wakes: u64,
    /// The peak number of open sections that was observed. With the backend `slots`, only waiters
    /// about to sleep observe.
    pub longest_queue: u64,
}

/// An open section.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct OpenSection {
    /// The generation with which the section began; 0 while it begins.
    pub generation: u64,
    /// The generation that passes with the section: sections that began later and have ended have
    /// donated theirs.
    pub current: u64,
    /// For how long the section has been open; accurate to some milliseconds.
    pub age: Duration,
    /// The kernel's ID of the section's thread.
    pub thread: u32,
}

impl fmt::Display for OpenSection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "generation {}", self.generation)?;
        if self.current != self.generation {
            write!(f, " (now {})", self.current)?;
        }
        write!(f, ", open for {:?}, thread {}", self.age, self.thread)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_domain_of_another_copy_is_refused() {
        let (mut domain, tag) = (Domain::new(), Tag::new());
        domain.begin().tag(&tag);
        domain.copy += 1;
        assert_eq!(domain.try_begin().err(), Some(BeginError::OtherCopy));
        assert_eq!(domain.wait(&tag), Err(WaitError::OtherCopy));
        assert!(domain.passed(&tag), "that needs no place");
    }
}
