//! A domain, its statistics, and what is open in it.

use super::error::{BeginError, Unsupported, WaitError};
use super::places::Places;
use super::{Backend, Section, Tag, registry, thread};
use crate::raw::{self as raw, Config, Locked, NearWrap, Packed, PackedPair, Slots};
use core::fmt;
use kinlock_core::Native;
use kinlock_core::configured::AsConfigured as ConfiguredMutex;
use kinlock_core::native::deadline;
use kinlock_core::platform::{Atomics, NEVER};
use std::sync::Arc;
use std::time::Duration;

#[derive(Clone, Copy, Debug)]
pub(super) struct Configured;

impl Config for Configured {
    type Mutex = ConfiguredMutex;
}

type Of<B, L> = raw::Domain<Native, Configured, B, Places<L>>;

/// A domain with the backend that was chosen.
// One of each exists at most by the name of its variant: no need to box the larger ones.
#[derive(Debug)]
pub(super) enum Inner {
    Packed(Of<Packed<Native, Configured>, PackedPair<Native>>),
    #[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)))]
    Wide(Of<raw::Wide<Configured>, raw::WidePair>),
    Locked(Of<Locked<Native, Configured>, raw::Member<Native>>),
    Slots(Of<Slots<Native, Configured>, <Native as Atomics>::AtomicU64>),
}

/// The same for every backend.
macro_rules! each {
    ($inner:expr, $domain:ident => $what:expr) => {
        match $inner {
            Inner::Packed($domain) => $what,
            #[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)))]
            Inner::Wide($domain) => $what,
            Inner::Locked($domain) => $what,
            Inner::Slots($domain) => $what,
        }
    };
}

impl Inner {
    fn new(backend: Backend, generation: u64) -> Result<Self, Unsupported> {
        if !backend.is_supported() {
            return Err(Unsupported(backend));
        }
        Ok(match backend {
            Backend::Packed => {
                Inner::Packed(raw::Domain::new(Packed::new(generation), Places::new()))
            }
            #[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)))]
            Backend::Wide => {
                Inner::Wide(raw::Domain::new(raw::Wide::new(generation), Places::new()))
            }
            #[cfg(not(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri))))]
            Backend::Wide => return Err(Unsupported(backend)),
            Backend::Locked => {
                Inner::Locked(raw::Domain::new(Locked::new(generation), Places::new()))
            }
            Backend::Slots => Inner::Slots(raw::Domain::new(Slots::new(generation), Places::new())),
        })
    }

    pub(super) fn backend(&self) -> Backend {
        match self {
            Inner::Packed(_) => Backend::Packed,
            #[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)))]
            Inner::Wide(_) => Backend::Wide,
            Inner::Locked(_) => Backend::Locked,
            Inner::Slots(_) => Backend::Slots,
        }
    }

    // The default backend is inlined where it is used; the others cost a call.

    #[inline]
    fn begin(&self, place: u16) -> Result<u64, NearWrap> {
        match self {
            Inner::Packed(domain) => domain.begin(place, coarse_now),
            other => other.begin_in_any(place),
        }
    }

    #[inline(never)]
    fn begin_in_any(&self, place: u16) -> Result<u64, NearWrap> {
        each!(self, domain => domain.begin(place, coarse_now))
    }

    #[inline]
    pub(super) fn end(&self, place: u16) {
        match self {
            Inner::Packed(domain) => domain.end(place),
            other => other.end_in_any(place),
        }
    }

    #[inline(never)]
    fn end_in_any(&self, place: u16) {
        each!(self, domain => domain.end(place));
    }

    #[inline]
    pub(super) fn depth(&self, place: u16) -> u32 {
        each!(self, domain => domain.depth(place))
    }

    pub(super) fn begun_in(&self, place: u16) -> u64 {
        let open = self.sections().into_iter().find(|open| open.place == place);
        open.map_or(0, |open| open.generation)
    }

    fn sections(&self) -> Vec<raw::Open> {
        each!(self, domain => domain.sections().collect())
    }

    pub(super) fn reset_in_child(&self, survivor: Option<u16>) {
        each!(self, domain => domain.reset_in_child(survivor));
    }
}

/// Sections that have to do with each other: those that invalidate the same kind of thing.
///
/// See the [module](super) for what it is for, and for what it promises.
///
/// In a `static` it takes a [`LazyLock`](std::sync::LazyLock):
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
}

impl Default for Domain {
    fn default() -> Self {
        Self::new()
    }
}

impl Domain {
    /// A domain without open sections, with the default [`Backend`].
    pub fn new() -> Self {
        let supported = "the default backend needs nothing special";
        Builder::default().build().expect(supported)
    }

    /// A domain that is not made as usual.
    ///
    /// ```
    /// use kinlock_invalidation::{Backend, Domain};
    ///
    /// let domain = Domain::builder().backend(Backend::Slots).build()?;
    /// assert_eq!(domain.backend(), Backend::Slots);
    /// # Ok::<(), kinlock_invalidation::Unsupported>(())
    /// ```
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// The backend that was chosen.
    pub fn backend(&self) -> Backend {
        self.inner.backend()
    }

    /// Opens a section; if the thread has one open here, opens that once more.
    ///
    /// # Panics
    /// If [`try_begin`](Self::try_begin) returns an error: none of them happens to a program with a few thousand threads in its first years.
    #[inline]
    pub fn begin(&self) -> Section<'_> {
        match self.try_begin() {
            Ok(section) => section,
            Err(error) => refuse(error),
        }
    }

    /// As [`begin`](Self::begin).
    ///
    /// # Errors
    /// If the section cannot begin; then nothing has changed.
    #[inline]
    pub fn try_begin(&self) -> Result<Section<'_>, BeginError> {
        let place = thread::place()?;
        let generation = self.inner.begin(place)?;
        Ok(Section::new(&self.inner, place, generation))
    }

    /// Whether all sections have ended that `tag` speaks of: then it stays so. One load besides the tag's; with the backend `slots`, all slots if that is not known yet.
    #[inline]
    pub fn passed(&self, tag: &Tag) -> bool {
        let generation = tag.generation();
        each!(&*self.inner, domain => domain.passed(generation))
    }

    /// Waits until `tag` has [passed](Self::passed). Sections that begin meanwhile do not prolong the wait.
    ///
    /// # Errors
    /// [`WaitError::InsideSection`] within one's own section, whether the tag has passed or not; [`WaitError::ForeignTag`] if no section of this domain can have stamped the tag.
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

    /// As [`wait`](Self::wait), for so long at most. A zero timeout looks once.
    ///
    /// # Errors
    /// [`WaitError::TimedOut`], and those of [`wait`](Self::wait).
    pub fn wait_timeout(&self, tag: &Tag, timeout: Duration) -> Result<(), WaitError> {
        self.wait_until(tag, deadline(timeout))
    }

    #[inline]
    fn wait_until(&self, tag: &Tag, until: u64) -> Result<(), WaitError> {
        if thread::kept().is_some_and(|place| self.inner.depth(place) != 0) {
            return Err(WaitError::InsideSection);
        }
        let generation = tag.generation();
        if each!(&*self.inner, domain => domain.passed(generation)) {
            Ok(())
        } else {
            self.wait_slow(generation, until)
        }
    }

    #[cold]
    #[inline(never)]
    fn wait_slow(&self, generation: u64, until: u64) -> Result<(), WaitError> {
        if each!(&*self.inner, domain => domain.is_foreign(generation)) {
            return Err(WaitError::ForeignTag);
        }
        if each!(&*self.inner, domain => domain.wait(generation, until)) {
            Ok(())
        } else {
            Err(WaitError::TimedOut)
        }
    }

    /// A tag that passes when all sections have ended that are open now.
    ///
    /// "Now": every section whose beginning happens before this call. To be used after things were removed without a section, or to be kept and looked at later.
    pub fn snapshot(&self) -> Tag {
        Tag::from(each!(&*self.inner, domain => domain.newest()))
    }

    /// Waits until all sections have ended that are open now: [`wait`](Self::wait) for a [`snapshot`](Self::snapshot).
    ///
    /// # Errors
    /// Those of [`wait`](Self::wait).
    pub fn wait_all(&self) -> Result<(), WaitError> {
        self.wait(&self.snapshot())
    }

    /// What has happened so far.
    pub fn stats(&self) -> Stats {
        let tally = each!(&*self.inner, domain => domain.tally());
        Stats {
            backend: self.backend(),
            begin_restarts: tally.begin_restarts,
            end_restarts: tally.end_restarts,
            waits: tally.waits,
            slow_waits: tally.slow_waits,
            longest_queue: tally.longest_queue,
        }
    }

    /// The sections that are open now, the oldest first. Not one instant: sections may begin and end meanwhile.
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
        let mut open: Vec<_> = self
            .inner
            .sections()
            .into_iter()
            .map(|open| OpenSection {
                generation: open.generation,
                age: Duration::from_nanos(now.saturating_sub(open.since)),
                thread: thread::id_of(open.place),
            })
            .collect();
        open.sort_by_key(|open| open.generation);
        open
    }
}

#[cold]
#[inline(never)]
fn refuse(error: BeginError) -> ! {
    panic!("a section cannot begin: {error}")
}

/// Makes a [`Domain`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Builder {
    backend: Backend,
    generation: u64,
}

impl Builder {
    /// The backend.
    #[must_use]
    pub fn backend(mut self, backend: Backend) -> Self {
        self.backend = backend;
        self
    }

    /// The newest generation that has passed; 0 unless set. For tests: it brings the end of generations near.
    #[doc(hidden)]
    #[must_use]
    pub fn generation(mut self, generation: u64) -> Self {
        self.generation = generation;
        self
    }

    /// Makes it. Takes address space for all places, about a megabyte, and memory for those in use.
    ///
    /// # Errors
    /// If the CPU cannot do what the backend needs. No other one is taken instead.
    pub fn build(self) -> Result<Domain, Unsupported> {
        let inner = Arc::new(Inner::new(self.backend, self.generation)?);
        registry::add(Arc::downgrade(&inner));
        Ok(Domain { inner })
    }
}

/// What has happened in a domain so far. Not one instant: threads may count meanwhile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Stats {
    /// The backend that was chosen.
    pub backend: Backend,
    /// Times that beginning a section started over (lists without a lock only).
    pub begin_restarts: u64,
    /// Times that ending one did.
    pub end_restarts: u64,
    /// Waits for a tag that had not passed.
    pub waits: u64,
    /// Those that slept.
    pub slow_waits: u64,
    /// The most sections that were found open at a time; with the backend `slots`, only those who are about to sleep look.
    pub longest_queue: u64,
}

/// A section that is open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct OpenSection {
    /// The generation with which it began.
    pub generation: u64,
    /// For how long it has been open, to some milliseconds.
    pub age: Duration,
    /// The kernel's number of its thread.
    pub thread: u32,
}

impl fmt::Display for OpenSection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "generation {}, open for {:?}, thread {}",
            self.generation, self.age, self.thread
        )
    }
}

/// Monotonic time in nanoseconds, to some milliseconds: a few loads, where the exact time takes as long as a whole section.
#[inline]
fn coarse_now() -> u64 {
    #[cfg(not(miri))]
    {
        let mut t = core::mem::MaybeUninit::<libc::timespec>::uninit();
        // SAFETY: the clock always exists, so that `t` is written.
        let t = unsafe {
            libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, t.as_mut_ptr());
            t.assume_init()
        };
        t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
    }
    #[cfg(miri)]
    Native::now()
}
