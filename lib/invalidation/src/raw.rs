//! Delayed invalidation: things are removed now and invalidated later in batches. A thread that
//! wants to reuse a removed thing waits for the batches that may cover it.
//!
//! Source: the idea and the list under a mutex are Konstantin Belousov's, from the
//! delayed-invalidation blocks of FreeBSD's page tables.
//!
//! # Terms
//!
//! A thread opens a **section** before it removes things, and ends it once they are invalidated.
//! Each section gets a **generation**, one above the newest open one. A generation has *passed*
//! when all sections with it or an older one have ended. A removed thing is tagged with the
//! generation of its section; a thread that reuses it waits until that has passed. Sections that
//! begin later have newer generations and never prolong the wait.
//!
//! One contract, [`Backend`], has two implementations: [`Locked`] and [`Slots`]. [`Domain`] adds
//! what they share: nested sections, waiting, counters.
//!
//! # Places
//!
//! A thread opens its section in a **place**: a number from 1 on, which is its own until the
//! section has ended. The memory of places lives as long as the domain.

mod counts;
mod gate;
mod locked;
mod place;
mod slots;

pub use counts::{Counts, Tally};
pub use gate::Gate;
pub use locked::{Locked, Member};
pub use place::{Place, Places};
pub use slots::{BOUND, Slots};

use core::ops::Deref;
use kinlock_core::platform::{Atomic, Ordering::*, Platform};

/// The largest number of places of a domain: a megabyte of address space.
pub const MAX_PLACES: usize = (1 << 13) - 1;

/// The largest generation of any backend. Waiters use the next number for "none".
const NEWEST: u64 = u64::MAX - 1;

/// The compile-time configuration of a domain.
pub trait Config: Copy + core::fmt::Debug + Send + Sync + 'static {
    /// How many times a waiter checks at first, with a pause between.
    const SPINS: u32 = 64;
    /// How many times it then yields its CPU and checks, before it sleeps. A section that is open
    /// for longer than the pauses is often one whose thread has no CPU.
    const YIELDS: u32 = 32;
}

/// The domain's generations are used up, so no section can begin. The domain is unchanged; tags can
/// still be waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NearWrap;

/// A way to keep track of open sections.
pub trait Backend<P: Platform>: Send + Sync + 'static {
    /// Its name on the command line and in reports.
    const NAME: &'static str;
    /// What the backend keeps in a place. All zeros is a place that was never used.
    type Link: Send + Sync + 'static;

    /// Opens a section in the place `me`, where none is open. Returns its generation.
    ///
    /// # Errors
    /// [`NearWrap`]. Then no section is open.
    fn begin(
        &self,
        places: Places<'_, P, Self::Link>,
        counts: &Counts<P>,
        me: u16,
    ) -> Result<u64, NearWrap>;

    /// Ends the section in the place `me`. Releases what the thread did before, to threads that see
    /// the generation passed. Returns what [`lets_pass`](Self::lets_pass) needs to know, or `None`
    /// if this lets no generation pass.
    fn end(&self, places: Places<'_, P, Self::Link>, me: u16) -> Option<u64>;

    /// Whether the generation `awaited` has passed, after an end that returned `ended`. If several
    /// ends let it pass together, at least one of them gets `true`.
    ///
    /// With [`Locked`] `ended` is the newest generation that has passed.
    #[inline]
    fn lets_pass(&self, _: Places<'_, P, Self::Link>, ended: u64, awaited: u64) -> bool {
        awaited <= ended
    }

    /// Whether all sections with this generation or an older one have ended. Once true it stays
    /// true. Acquires what those sections released.
    fn passed(&self, places: Places<'_, P, Self::Link>, generation: u64) -> bool;

    /// About how many sections are open, if begins do not count them; else 0. For the statistic of
    /// the longest queue.
    fn count_open(&self, _: Places<'_, P, Self::Link>) -> u64 {
        0
    }

    /// The newest generation that a section has got. One load.
    fn newest(&self) -> u64;

    /// The generation of an open section now, which donations have raised. For reports; it may be
    /// outdated.
    fn look(&self, link: &Self::Link) -> u64;

    /// In a forked child: ends all sections except that of `survivor`. The threads of the others do
    /// not exist, and may have stopped at any point. No other thread may use the domain during the
    /// call. `survivor` is a place and the generation with which its section began.
    fn keep_only(&self, places: Places<'_, P, Self::Link>, survivor: Option<(u16, u64)>);
}

/// An open section, as reported by [`Domain::sections`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Open {
    /// The place in which it is open.
    pub place: u16,
    /// The generation with which the section began; 0 while it begins.
    pub generation: u64,
    /// The generation that it has now, after donations.
    pub current: u64,
    /// When the section began, as its owner said.
    pub since: u64,
}

/// A backend, its places, and what all backends share.
///
/// `S` is the container of the places.
// The backend's head, its lock and the gate come first, side by side: an end has that line in its
// cache anyway when it checks for sleepers.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct Domain<P: Platform, C: Config, B, S> {
    backend: B,
    gate: Gate<P, C>,
    /// The highest place in which a section was ever open.
    highest: P::AtomicU32,
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
            highest: Atomic::new(0),
            counts: Counts::new(),
            places,
        }
    }

    #[inline]
    fn view(&self) -> Places<'_, P, B::Link> {
        Places {
            all: &self.places,
            highest: &self.highest,
        }
    }

    #[cold]
    fn raise_highest(&self, me: u32) {
        // Relaxed: the begin that follows releases it.
        let raise = |highest| (highest < me).then_some(me);
        let _ = self.highest.fetch_update(Relaxed, raise);
    }

    /// Opens a section in the place `me`, or opens the open one once more. Returns the generation
    /// with which it began. `since` is the time that [`sections`](Self::sections) reports.
    ///
    /// # Errors
    /// [`NearWrap`]. Then nothing has changed.
    ///
    /// # Panics
    /// If there is no such place.
    #[inline]
    pub fn begin(&self, me: u16, since: impl FnOnce() -> u64) -> Result<u64, NearWrap> {
        // Relaxed throughout: these words are the owner's; other threads read them for reports
        // only.
        let owner = &self.places[me as usize - 1].owner;
        let depth = owner.depth.load(Relaxed);
        if depth != 0 {
            let deeper = depth.checked_add(1);
            let deeper =
                deeper.expect("sections are nested in each other, or forgotten, 2^32 times");
            owner.depth.store(deeper, Relaxed);
            return Ok(owner.begun.load(Relaxed));
        }
        if self.highest.load(Relaxed) < me as u32 {
            self.raise_highest(me as u32);
        }
        // Reports show the section from here on: a thread that is preempted while it begins may
        // hold others up.
        owner.since.store(since(), Relaxed);
        owner.begun.store(0, Relaxed);
        owner.depth.store(1, Relaxed);
        let begun = self.backend.begin(self.view(), &self.counts, me);
        match begun {
            Ok(generation) => owner.begun.store(generation, Relaxed),
            Err(NearWrap) => owner.depth.store(0, Relaxed),
        }
        begun
    }

    /// Ends what [`begin`](Self::begin) began, unless it was begun more often than ended.
    ///
    /// # Panics
    /// If there is no such place.
    #[inline]
    pub fn end(&self, me: u16) {
        if self.end_quietly(me) {
            self.gate.rouse(&self.counts);
        }
    }

    /// Like [`end`](Self::end), but leaves waking to the caller. Returns whether a waiter may go.
    #[inline]
    pub fn end_quietly(&self, me: u16) -> bool {
        let owner = &self.places[me as usize - 1].owner;
        let depth = owner.depth.load(Relaxed);
        debug_assert!(depth != 0, "no section is open here");
        if depth > 1 {
            owner.depth.store(depth - 1, Relaxed);
            return false;
        }
        let ended = self.backend.end(self.view(), me);
        owner.depth.store(0, Relaxed);
        ended.is_some_and(|ended| {
            let lets_pass = |awaited| self.backend.lets_pass(self.view(), ended, awaited);
            self.gate.is_awaited(lets_pass)
        })
    }

    /// Where waiters sleep, and the statistics of their wake-ups.
    pub fn gate(&self) -> (&Gate<P, C>, &Counts<P>) {
        (&self.gate, &self.counts)
    }

    /// How many times the section in the place `me` was begun and not ended yet. For the owner of
    /// the place only.
    #[inline]
    pub fn depth(&self, me: u16) -> u32 {
        self.places[me as usize - 1].owner.depth.load(Relaxed)
    }

    /// See [`Backend::passed`].
    #[inline]
    pub fn passed(&self, generation: u64) -> bool {
        self.backend.passed(self.view(), generation)
    }

    /// See [`Backend::newest`]. When this generation has passed, all sections that are open now
    /// have ended.
    pub fn newest(&self) -> u64 {
        self.backend.newest()
    }

    /// Waits until the generation has [passed](Self::passed) (`true`), or until the time `until`
    /// (`false`). The calling thread must not have a section open here.
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
            self.counts.saw_queue(self.backend.count_open(self.view()));
        };
        let counts = &self.counts;
        self.gate
            .wait(counts, generation, until, slow, || self.passed(generation))
    }

    /// The statistics so far. Not a consistent snapshot: threads may count while the numbers are
    /// read.
    pub fn tally(&self) -> Tally {
        self.counts.read()
    }

    /// The open sections. Not a consistent snapshot: sections may begin and end during the call.
    pub fn sections(&self) -> impl Iterator<Item = Open> {
        let used = self.view().used().len() as u16;
        (1..=used).filter_map(|place| self.section(place))
    }

    /// The section that is open in the place, if any.
    pub fn section(&self, place: u16) -> Option<Open> {
        let Place { link, owner } = &self.places[place as usize - 1];
        (owner.depth.load(Relaxed) != 0).then(|| Open {
            place,
            generation: owner.begun.load(Relaxed),
            current: self.backend.look(link),
            since: owner.since.load(Relaxed),
        })
    }

    /// In a forked child: ends all sections except that of the place `survivor`: their threads do
    /// not exist here. No other thread may use the domain during the call.
    pub fn reset_in_child(&self, survivor: Option<u16>) {
        let mut kept = None;
        for (i, place) in self.view().used().iter().enumerate() {
            let number = i as u16 + 1;
            // Written only where needed: a write would copy the page.
            if place.owner.depth.load(Relaxed) != 0 {
                if survivor == Some(number) {
                    kept = Some((number, place.owner.begun.load(Relaxed)));
                } else {
                    place.owner.depth.store(0, Relaxed);
                }
            }
        }
        self.backend.keep_only(self.view(), kept);
        self.gate.reset_in_child();
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
