//! How far IDs may spread: members, allowed CPUs, the limit, and how far they have spread.
//!
//! A thread that changes the counts publishes their consequences in the control word. It exchanges
//! that word even if it stays the same. Each exchange acquires what the previous one has released.
//! If several threads publish at the same time, the last one therefore sees the newest counts when
//! it reads them again.
//!
//! `grown` says how far searches go. It comes down with the limit; a late acquisition may leave it
//! one too high, which makes searches longer, but no ID larger.

use super::{AGE, IdAllocator, Policy, Storage};
use kinlock_core::platform::{Atomic, Ordering::*, Platform};

/// The state that all acquisitions read and few operations write.
#[derive(Debug)]
pub(super) struct Shape<P: Platform> {
    /// See [`Control`].
    control: ReadMostly<P>,
    changing: Changing<P>,
}

#[repr(align(128))]
#[derive(Debug)]
struct ReadMostly<P: Platform>(P::AtomicU32);

#[repr(align(128))]
#[derive(Debug)]
struct Changing<P: Platform> {
    /// Upper half: members. Lower half: allowed CPUs.
    counts: P::AtomicU64,
    /// How far IDs have been handed out. IDs in use at or above it have been in use since before
    /// the limit came down: leases hold them, or records have kept or remembered them.
    grown: P::AtomicU32,
    /// Where the next search for an idle ID starts.
    hand: P::AtomicU32,
    /// When an acquisition last looked for old IDs.
    aged: P::AtomicU64,
}

/// Bit 0: members' records are used, not CPUs'. The other bits: the limit below which records keep
/// IDs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Control(u32);

const BY_MEMBER: u32 = 1;

impl Control {
    #[inline]
    pub(super) fn allows(self, id: u32) -> bool {
        self.limit() > id
    }

    #[inline]
    pub(super) fn by_member(self) -> bool {
        self.0 & BY_MEMBER != 0
    }

    /// Records keep IDs below this limit only.
    #[inline]
    pub(super) fn limit(self) -> u32 {
        self.0 >> 1
    }
}

/// The numbers of members and of allowed CPUs.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Counts(u64);

impl Counts {
    fn members(self) -> u32 {
        (self.0 >> 32) as u32
    }

    fn allowed(self) -> u32 {
        self.0 as u32
    }

    fn bound(self) -> u32 {
        self.members().min(self.allowed())
    }
}

impl<P: Platform> Shape<P> {
    pub(super) fn new(cpus: u32, grown: u32) -> Self {
        Shape {
            control: ReadMostly(Atomic::new(0)),
            changing: Changing {
                counts: Atomic::new(cpus as u64),
                grown: Atomic::new(grown),
                hand: Atomic::new(0),
                aged: Atomic::new(0),
            },
        }
    }

    /// Relaxed: a concurrent change of limit or mode may be seen late.
    #[inline]
    pub(super) fn control(&self) -> Control {
        Control(self.control.0.load(Relaxed))
    }

    pub(super) fn grown(&self) -> u32 {
        self.changing.grown.load(Relaxed)
    }

    /// Makes `grown` larger by one, as long as `may` agrees to the current value. Returns the old
    /// `grown`.
    pub(super) fn grow(&self, may: impl Fn(u32) -> bool) -> Option<u32> {
        // Relaxed, here and below: it publishes nothing but itself.
        let new = |grown| may(grown).then_some(grown + 1);
        self.changing.grown.fetch_update(Relaxed, new).ok()
    }

    /// Cuts `grown` down to the limit. Returns the old `grown`.
    fn cut(&self, limit: u32) -> u32 {
        let new = |grown| (grown > limit).then_some(limit);
        self.changing
            .grown
            .fetch_update(Relaxed, new)
            .unwrap_or(limit)
    }

    pub(super) fn next_victim(&self) -> u32 {
        self.changing.hand.fetch_add(1, Relaxed)
    }

    /// Whether the last look for old IDs is [`AGE`] ago. Only one caller gets `true`.
    pub(super) fn is_time_to_age(&self, now: u64) -> bool {
        let aged = &self.changing.aged;
        let last = aged.load(Relaxed);
        now.saturating_sub(last) >= AGE
            && aged.compare_exchange(last, now, Relaxed, Relaxed).is_ok()
    }

    /// Whether there are at least as many members as allowed CPUs.
    pub(super) fn is_full(&self) -> bool {
        let counts = self.counts();
        counts.members() >= counts.allowed()
    }

    fn counts(&self) -> Counts {
        Counts(self.changing.counts.load(Relaxed))
    }

    /// Changes the counts. Returns the old ones.
    fn change(&self, change: impl Fn(Counts) -> u64) -> Counts {
        let new = |counts| Some(change(Counts(counts)));
        match self.changing.counts.fetch_update(AcqRel, new) {
            Ok(old) | Err(old) => Counts(old),
        }
    }
}

impl<P: Platform, S: Storage<P>> IdAllocator<P, S> {
    /// The policy.
    pub fn policy(&self) -> Policy {
        self.policy
    }

    /// How many IDs the storage has.
    pub fn capacity(&self) -> u32 {
        self.storage.blocks().len() as u32 * super::BLOCK
    }

    /// The number of threads that have [joined](Self::join) and not left.
    pub fn members(&self) -> u32 {
        self.shape.counts().members()
    }

    /// The number of CPUs that members may run on, as [set](Self::set_cpus_allowed).
    pub fn cpus_allowed(&self) -> u32 {
        self.shape.counts().allowed()
    }

    /// min(allowed CPUs, members, capacity), and at least 1: see the [bounds](super). Under
    /// [`Policy::PerCpu`]: the number of CPUs.
    pub fn limit(&self) -> u32 {
        match self.policy {
            Policy::PerCpu => self.cpus,
            _ => self.limit_of(self.shape.counts()),
        }
    }

    /// Notes that a thread has joined: IDs may spread by one more. O(1).
    pub fn join(&self) {
        self.shape.change(|c| c.0.saturating_add(1 << 32));
        self.limit_changed();
    }

    /// Notes that a thread has left, having released its IDs. O(IDs given up), usually 1.
    ///
    /// # Panics
    ///
    /// In debug builds, if no thread had joined.
    pub fn leave(&self) {
        let old = self
            .shape
            .change(|c| c.0.saturating_sub((c.members() > 0) as u64 * (1 << 32)));
        debug_assert!(old.members() > 0, "a thread left that had not joined");
        self.limit_changed();
    }

    /// Sets the number of CPUs on which at least one member may run. O(IDs given up).
    pub fn set_cpus_allowed(&self, cpus: u32) {
        self.shape.change(|c| c.0 >> 32 << 32 | cpus as u64);
        self.limit_changed();
    }

    /// Sets the number of members, for callers that count for themselves. O(IDs given up).
    pub fn set_members(&self, members: u32) {
        self.shape
            .change(|c| (members as u64) << 32 | c.allowed() as u64);
        self.limit_changed();
    }

    /// Publishes the consequences of the counts, and frees what idle records keep above the limit.
    pub(super) fn limit_changed(&self) {
        let mut top = 0;
        let limit = loop {
            let counts = self.shape.counts();
            let old = self.shape.control();
            let new = self.control_for(counts, old);
            let word = &self.shape.control.0;
            // Acquire and release: see the top of the file. An ID that is kept above a limit not
            // seen yet is found by the next acquisition or reclaim.
            if word
                .compare_exchange(old.0, new.0, AcqRel, Relaxed)
                .is_err()
            {
                continue;
            }
            if self.policy == Policy::PerCpu {
                // The limit never changes.
                return;
            }
            let limit = self.limit_of(counts);
            top = top.max(self.shape.cut(limit));
            // Our counts may be outdated: a newer change may have been published first.
            if self.shape.counts() == counts {
                break limit;
            }
        };
        for id in limit..top {
            if let Some(id) = self.take_from_keeper(id) {
                self.free(id);
            }
        }
    }

    fn control_for(&self, counts: Counts, old: Control) -> Control {
        let (kept, by_member) = match self.policy {
            Policy::TaskOwned => (self.limit_of(counts), members_own(counts, old)),
            Policy::RecentFirst | Policy::LowestFree => (self.limit_of(counts), false),
            Policy::PerCpu => (self.cpus, false),
        };
        Control(kept << 1 | by_member as u32)
    }

    /// At least 1: a thread that does not count as a member can acquire an ID, too, and the fast
    /// path is to serve it.
    fn limit_of(&self, counts: Counts) -> u32 {
        counts.bound().clamp(1, self.capacity())
    }
}

/// Whether members own the IDs: they do while there are enough CPUs. Once CPUs own them, members
/// get them back only when a quarter of the CPUs have no member. Without this gap each thread that
/// comes or goes would move all IDs.
fn members_own(counts: Counts, old: Control) -> bool {
    let (members, allowed) = (counts.members(), counts.allowed());
    let first = old.limit() == 0;
    if old.by_member() || first {
        members <= allowed
    } else {
        members <= allowed - allowed / 4
    }
}
