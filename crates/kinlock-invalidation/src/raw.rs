//! Delayed invalidation: work is removed now and invalidated later, and whoever wants to reuse what was removed waits for the batches that may cover it.
//!
//! Source: Konstantin Belousov's delayed-invalidation blocks of FreeBSD's page tables (2018), whose list without a lock goes back to
//! T. L. Harris, "A pragmatic implementation of non-blocking linked lists" (DISC 2001).
//!
//! # What it is
//!
//! A thread opens a **section** before it removes things, and closes it when they are invalidated. Sections get **generations**, each one above the
//! newest open one. A generation has *passed* when all sections with it or an older one have ended. What is removed within a section is tagged with its
//! generation; who reuses it waits until that has passed. Sections that begin later have newer generations and never make the wait longer.
//!
//! # Backends
//!
//! One contract, [`Backend`]; four ways to keep it. [`Domain`] adds what they share: nested sections, waiting, counters.
//!
//! | backend | begin and end | passed | where |
//! | --- | --- | --- | --- |
//! | [`Packed`] | list of open sections, changed by compare-and-swaps of 8 bytes | one load | everywhere; generations up to 2^50 |
//! | [`Wide`] | the same with 16 bytes | one load | x86-64 with `cmpxchg16b`, aarch64 |
//! | [`Locked`] | the same list under a mutex | one load | everywhere; the reference |
//! | [`Slots`] | a store, a ticket, a store; no list | one load for what is known to have passed, else all slots | everywhere |
//!
//! # Places
//!
//! A thread opens its section in a **place**, a number from 1 on that is its own until the section has ended. The memory of places lives as long as the domain and is never used for
//! anything else, so that a thread on its way along the list may look at one that has left it.

mod gate;
mod list;
mod locked;
mod packed;
mod slots;
#[cfg(all(
    any(target_arch = "x86_64", target_arch = "aarch64"),
    not(miri),
    not(loom)
))]
mod wide;

pub use gate::Gate;
pub use list::{List, Pair, Seen};
pub use locked::{Exclusion, Locked, Member};
pub use packed::PackedPair;
pub use slots::Slots;
#[cfg(all(
    any(target_arch = "x86_64", target_arch = "aarch64"),
    not(miri),
    not(loom)
))]
pub use wide::WidePair;

use core::ops::Deref;
use kinlock_core::platform::{Atomic, Ordering::*, Platform};
use kinlock_core::raw::mutex::MutexConfig;

/// The list with pairs of eight bytes.
pub type Packed<P, C> = List<P, PackedPair<P>, C>;
/// The list with pairs of sixteen bytes.
#[cfg(all(
    any(target_arch = "x86_64", target_arch = "aarch64"),
    not(miri),
    not(loom)
))]
pub type Wide<C> = List<kinlock_core::Native, WidePair, C>;

/// The most places a domain can have: what a packed pair can name.
pub const MAX_PLACES: usize = (1 << 13) - 1;

/// What is fixed about a domain at compile time.
pub trait Config: Copy + core::fmt::Debug + Send + Sync + 'static {
    /// The configuration of the mutexes inside: the list's starter lock, and the one of [`Locked`].
    type Mutex: MutexConfig;
    /// How often the beginning of a section starts over before it lines up for the starter lock.
    const PATIENCE: u32 = 64;
    /// How often a waiter looks before it sleeps, with a pause between.
    const LOOKS: u32 = 64;
    /// A deliberate defect, for showing that a check can fail.
    #[doc(hidden)]
    const FAULT: Fault = Fault::None;
}

/// Deliberate defects, each to be caught by the check meant for it.
#[doc(hidden)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// A correct domain.
    None,
    /// Ending marks its own element before it looks for its predecessor: correct, but all who begin meanwhile start over.
    MarkedEarly,
    /// Ending reads its generation before it marks its element: what a successor donates in between is lost.
    GenerationReadBeforeMark,
    /// Ending does not wake.
    WakeLost,
}

/// Why a section cannot begin: generations are about to run out. The domain stays as it is; what was tagged can still be waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NearWrap;

/// A section that has begun.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Begun {
    /// Its generation.
    pub generation: u64,
    /// Whether the generation of somebody else may count as passed now, which did not while this section was about to begin.
    pub lets_pass: bool,
}

/// A way to know which sections are open.
pub trait Backend<P: Platform>: Send + Sync + 'static {
    /// Its name on the command line and in reports.
    const NAME: &'static str;
    /// What it keeps in a place. All zeros is a place that was never used.
    type Link: Send + Sync + 'static;

    /// Opens a section in the place `me`, which has none.
    ///
    /// # Errors
    /// [`NearWrap`], and then no section is open.
    fn begin(
        &self,
        places: &[Place<P, Self::Link>],
        counts: &Counts<P>,
        me: u16,
    ) -> Result<Begun, NearWrap>;

    /// Ends the section in the place `me`. Whether a generation has passed thereby that waiters may wait for. Releases what the thread did before to
    /// those who see the generation passed.
    fn end(&self, places: &[Place<P, Self::Link>], counts: &Counts<P>, me: u16) -> bool;

    /// Whether all sections with this generation or an older one have ended. Once it is so it stays so. Acquires what they released.
    fn passed(&self, places: &[Place<P, Self::Link>], generation: u64) -> bool;

    /// The same, if it can be had at once.
    fn newest_at_once(&self, places: &[Place<P, Self::Link>]) -> Option<u64> {
        Some(self.newest(places))
    }

    /// About how many sections are open, if nobody counts them as they begin; else 0. For the statistic of the longest queue.
    fn count_open(&self, _: &[Place<P, Self::Link>]) -> u64 {
        0
    }

    /// The newest generation that a section has got.
    fn newest(&self, places: &[Place<P, Self::Link>]) -> u64;

    /// Ends all sections but that of `survivor`, whose threads do not exist any more. Nobody else may use the domain meanwhile, and what was under way in those threads does not
    /// matter. `begun` is the generation with which the survivor's section began.
    fn keep_only(&self, places: &[Place<P, Self::Link>], survivor: Option<(u16, u64)>);
}

/// A place: what the backend keeps in it, and what its owner keeps beside. Two places never share a pair of cache lines, which some CPUs fetch together.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct Place<P: Platform, L> {
    pub(super) link: L,
    owner: Owner<P>,
}

/// Written by the owner of the place only.
#[derive(Debug)]
struct Owner<P: Platform> {
    /// The generation with which the open section began.
    begun: P::AtomicU64,
    /// When, as the owner says.
    since: P::AtomicU64,
    /// How many times it was begun and not ended yet.
    depth: P::AtomicU32,
}

impl<P: Platform, L> Place<P, L> {
    /// A place that was never used, where the platform cannot take zeroed memory for one.
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

/// An open section, as [`Domain::sections`] shows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Open {
    /// The place in which it is open.
    pub place: u16,
    /// The generation with which it began.
    pub generation: u64,
    /// When it began, as its owner said.
    pub since: u64,
}

/// What has happened in a domain so far.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Tally {
    /// Times that beginning a section started over.
    pub begin_restarts: u64,
    /// Times that ending one did.
    pub end_restarts: u64,
    /// Waits for a generation that had not passed.
    pub waits: u64,
    /// Those that slept.
    pub slow_waits: u64,
    /// The most sections that were found open at a time: by those who began in the lists, by waiters in the slots.
    pub longest_queue: u64,
}

/// Counts what is rare, on lines of its own.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct Counts<P: Platform> {
    begin_restarts: P::AtomicU64,
    end_restarts: P::AtomicU64,
    waits: P::AtomicU64,
    slow_waits: P::AtomicU64,
    longest_queue: P::AtomicU64,
}

impl<P: Platform> Counts<P> {
    fn new() -> Self {
        Counts {
            begin_restarts: Atomic::new(0),
            end_restarts: Atomic::new(0),
            waits: Atomic::new(0),
            slow_waits: Atomic::new(0),
            longest_queue: Atomic::new(0),
        }
    }

    fn read(&self) -> Tally {
        Tally {
            begin_restarts: self.begin_restarts.load(Relaxed),
            end_restarts: self.end_restarts.load(Relaxed),
            waits: self.waits.load(Relaxed),
            slow_waits: self.slow_waits.load(Relaxed),
            longest_queue: self.longest_queue.load(Relaxed),
        }
    }

    /// A queue of this length was seen. Between the look and the store a longer one may be noted and lost: it is a statistic.
    #[inline]
    fn saw_queue(&self, length: u64) {
        if self.longest_queue.load(Relaxed) < length {
            self.longest_queue.store(length, Relaxed);
        }
    }
}

/// A backend with its places, and what all backends share.
///
/// `S` holds the places: whatever the platform keeps them in.
// The backend's head, its lock and the gate come first, side by side: whoever ends a section has that line anyway when it looks for sleepers.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct Domain<P: Platform, C: Config, B, S> {
    backend: B,
    gate: Gate<P, C>,
    counts: Counts<P>,
    places: S,
}

impl<P, C, B, S> Domain<P, C, B, S>
where
    P: Platform,
    C: Config,
    B: Backend<P>,
    S: Deref<Target = [Place<P, B::Link>]>,
{
    /// A domain without open sections. Place `n` is `places[n - 1]`.
    ///
    /// # Panics
    /// If there are more than [`MAX_PLACES`] places.
    pub fn new(backend: B, places: S) -> Self {
        assert!(places.len() <= MAX_PLACES);
        Domain {
            backend,
            gate: Gate::new(),
            counts: Counts::new(),
            places,
        }
    }

    /// How many places there are.
    pub fn places(&self) -> usize {
        self.places.len()
    }

    /// Opens a section in the place `me`, or opens the one that is open there once more, and returns the generation with which it began. `since` is the time that
    /// [`sections`](Self::sections) shows.
    ///
    /// # Errors
    /// [`NearWrap`], and then nothing has changed.
    ///
    /// # Panics
    /// If there is no such place.
    #[inline]
    pub fn begin(&self, me: u16, since: impl FnOnce() -> u64) -> Result<u64, NearWrap> {
        // Relaxed throughout: the owner's own words, which others only show.
        let owner = &self.places[me as usize - 1].owner;
        let depth = owner.depth.load(Relaxed);
        if depth != 0 {
            let deeper = depth.checked_add(1);
            let deeper =
                deeper.expect("sections are nested in each other, or forgotten, 2^32 times");
            owner.depth.store(deeper, Relaxed);
            return Ok(owner.begun.load(Relaxed));
        }
        let begun = self.backend.begin(&self.places, &self.counts, me)?;
        owner.begun.store(begun.generation, Relaxed);
        owner.since.store(since(), Relaxed);
        owner.depth.store(1, Relaxed);
        if begun.lets_pass {
            self.gate.wake();
        }
        Ok(begun.generation)
    }

    /// Ends what [`begin`](Self::begin) began, unless it was begun more often than ended.
    ///
    /// # Panics
    /// If there is no such place.
    #[inline]
    pub fn end(&self, me: u16) {
        let owner = &self.places[me as usize - 1].owner;
        let depth = owner.depth.load(Relaxed);
        debug_assert!(depth != 0, "no section is open here");
        owner.depth.store(depth - 1, Relaxed);
        if depth == 1 && self.backend.end(&self.places, &self.counts, me) {
            self.gate.wake();
        }
    }

    /// How many times the section in the place `me` was begun and not ended yet; to be asked by its owner.
    #[inline]
    pub fn depth(&self, me: u16) -> u32 {
        self.places[me as usize - 1].owner.depth.load(Relaxed)
    }

    /// See [`Backend::passed`].
    #[inline]
    pub fn passed(&self, generation: u64) -> bool {
        self.backend.passed(&self.places, generation)
    }

    /// See [`Backend::newest`]: with it all sections have passed that are open now.
    pub fn newest(&self) -> u64 {
        self.backend.newest(&self.places)
    }

    /// Whether no section can have had the generation yet; `false` may be wrong while many begin and end.
    #[cold]
    pub fn is_foreign(&self, generation: u64) -> bool {
        // Who has seen the tag of a section sees that the section's generation was given out.
        let newest = self.backend.newest_at_once(&self.places);
        newest.is_some_and(|newest| generation > newest)
    }

    /// Waits until the generation has [passed](Self::passed) (`true`), or until `until` (`false`). Who waits must not have a section open here.
    #[inline]
    pub fn wait(&self, generation: u64, until: u64) -> bool {
        self.passed(generation) || self.wait_slow(generation, until)
    }

    #[cold]
    #[inline(never)]
    fn wait_slow(&self, generation: u64, until: u64) -> bool {
        self.counts.waits.fetch_add(1, Relaxed);
        let slow = || {
            self.counts.slow_waits.fetch_add(1, Relaxed);
            self.counts.saw_queue(self.backend.count_open(&self.places));
        };
        self.gate.wait(until, slow, || self.passed(generation))
    }

    /// What has happened so far. Not one instant: threads may count meanwhile.
    pub fn tally(&self) -> Tally {
        self.counts.read()
    }

    /// The sections that are open. Not one instant: sections may begin and end meanwhile.
    pub fn sections(&self) -> impl Iterator<Item = Open> {
        self.places.iter().enumerate().filter_map(|(i, place)| {
            let owner = &place.owner;
            (owner.depth.load(Relaxed) != 0).then(|| Open {
                place: i as u16 + 1,
                generation: owner.begun.load(Relaxed),
                since: owner.since.load(Relaxed),
            })
        })
    }

    /// In a forked child: ends all sections but that of the place `survivor`, whose threads do not exist here. Nobody else may use the domain meanwhile.
    pub fn reset_in_child(&self, survivor: Option<u16>) {
        let mut kept = None;
        for (i, place) in self.places.iter().enumerate() {
            let number = i as u16 + 1;
            // Without writing where there is nothing to change: places that were never used cost no memory.
            if place.owner.depth.load(Relaxed) != 0 {
                if survivor == Some(number) {
                    kept = Some((number, place.owner.begun.load(Relaxed)));
                } else {
                    place.owner.depth.store(0, Relaxed);
                }
            }
        }
        self.backend.keep_only(&self.places, kept);
        self.gate.reset_in_child();
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
