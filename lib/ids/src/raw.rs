//! Allocation of concurrency IDs: small integers with one holder each at a time, dense, and kept by
//! the CPUs whose caches have their data.
//!
//! Source: the per-memory-map concurrency IDs of Linux's restartable sequences (Desnoyers, 2022:
//! lowest free first; 2023: kept by CPUs for 100 ms; 2024: recent IDs, spreading; Gleixner, 2025:
//! owned by tasks). Here an ID is *leased*: a thread in user space cannot give it up when it is
//! preempted.
//!
//! # Where an ID is
//!
//! An ID is in exactly one of these places. The thread that moves it to another place has it in
//! between:
//!
//! | place | how it shows |
//! | --- | --- |
//! | free | its bit is clear |
//! | held by a lease | its bit is set, and no record keeps it; a [`Held`] names it |
//! | kept by a record | its bit is set, and the record's word says [kept or marked](record) |
//!
//! There is a record for each CPU (and for each member, under [`Policy::TaskOwned`]). Releasing is
//! lazy: the record keeps the ID for the next acquisition on that CPU. [`record`] has the table of
//! its states.
//!
//! # Bounds
//!
//! * *limit* = min(allowed CPUs, members, capacity), and at least 1. IDs spread up to the limit for
//!   locality's sake: fresh IDs are handed out up to there although older ones may lie idle on
//!   other CPUs.
//! * An ID at or above the limit is handed out for the first time only if a search has found each
//!   lower one held (not just kept). They were not all held at one instant: some may have changed
//!   hands during the search. So `id < max(limit, h + a)`. Here `h` is the peak number of
//!   concurrent holders, and `a` the largest number of IDs that others took or moved during one
//!   acquisition. A thread that acquires, releases, reclaims or changes the limit counts as a
//!   holder. A released ID above the limit is free again. It goes to an acquisition that finds none
//!   below the limit.
//! * If the limit changes during an acquisition, any value that it had in between may apply. So may
//!   any value that the limit has had since the start of a change that is still under way. Once the
//!   limit has come down and all calls that changed it have returned, it binds all acquisitions
//!   that begin afterwards. IDs acquired before stay held.
//! * [`Exhausted`] means that such a search has found every ID of the storage held.
//!
//! # Progress
//!
//! Lock-free: if all other threads stop, an acquisition ends. It takes any ID that is free or kept;
//! if there is none it takes a fresh one. A round fails only for one of two reasons. Either another
//! operation has made progress, or a fresh ID turns out to have been held since before the limit
//! came down. The latter happens at most once per ID.

mod blocks;
mod give;
pub mod record;
mod shape;
mod take;
#[cfg(all(test, not(loom)))]
mod tests;

pub use blocks::{BLOCK, Block};
pub use record::Record;

use core::ops::Deref;
use kinlock_core::platform::{Atomic, Ordering::*, Platform};
use record::Word;
use shape::Shape;

/// In nanoseconds. A kept ID that was unused for this long counts as old: acquisitions take it
/// first, and [`reclaim`](IdAllocator::reclaim) frees it.
pub const AGE: u64 = 100_000_000;

/// The member index of a thread that is no member; see [`acquire`](IdAllocator::acquire).
pub const NO_MEMBER: u32 = u32::MAX;

/// The largest number of IDs that an allocator can hand out.
pub const MAX_IDS: u32 = 1 << 24;

/// Which ID a thread gets. Domains have the default; the others are for the laboratory, which
/// compares the default with them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Policy {
    /// The ID that the CPU has kept; else its recent one; else a fresh one below the limit; else
    /// the lowest free one; else one that another CPU keeps, old ones first.
    #[default]
    RecentFirst,
    /// The CPU's index. A second holder on that CPU gets an ID at or above the number of CPUs.
    PerCpu,
    /// The ID that the CPU has kept; else the lowest free one. Linux's policy from 6.3 to 6.12:
    /// once an idle ID is [reclaimed](IdAllocator::reclaim), the next thread that needs one gets
    /// its data.
    LowestFree,
    /// While there are at most as many members as allowed CPUs, each member has an ID of its own,
    /// on whichever CPU it runs; else CPUs keep the IDs.
    TaskOwned,
}

impl Policy {
    /// All policies, the default first.
    pub const ALL: [Policy; 4] = [
        Policy::RecentFirst,
        Policy::PerCpu,
        Policy::LowestFree,
        Policy::TaskOwned,
    ];

    /// The name in tables and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Policy::RecentFirst => "recent-first",
            Policy::PerCpu => "per-cpu",
            Policy::LowestFree => "lowest-free",
            Policy::TaskOwned => "task-owned",
        }
    }
}

/// A search found no ID. Under [`Policy::PerCpu`]: neither the CPU's own, nor one at or above the
/// number of CPUs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Exhausted;

/// The memory that an allocator keeps its state in. The allocator allocates no memory itself.
///
/// Both slices must be the same at each call, new or zeroed at first, and used by one allocator
/// only. Otherwise an ID may have two holders.
pub trait Storage<P: Platform> {
    /// A record for each CPU, by index. Then one for each member, by index, if members are to have
    /// records (see [`Policy::TaskOwned`]).
    fn records(&self) -> &[Record<P>];
    /// [`BLOCK`] IDs each.
    fn blocks(&self) -> &[Block<P>];
}

impl<P, R, B> Storage<P> for (R, B)
where
    P: Platform,
    R: Deref<Target = [Record<P>]>,
    B: Deref<Target = [Block<P>]>,
{
    #[inline]
    fn records(&self) -> &[Record<P>] {
        &self.0
    }
    #[inline]
    fn blocks(&self) -> &[Block<P>] {
        &self.1
    }
}

/// A held ID. It must be [released](IdAllocator::release): if this is dropped, the ID is lost.
#[must_use = "an ID that is not released is lost"]
#[derive(PartialEq, Eq, Debug)]
pub struct Held {
    /// The record that lent the ID and gets it back; [`NOWHERE`] if none did.
    at: u32,
    id: u32,
}

impl Held {
    /// The ID.
    #[inline]
    pub fn id(&self) -> u32 {
        self.id
    }
}

/// The index of no record.
const NOWHERE: u32 = u32::MAX;

/// Hands out the IDs of one domain.
///
/// CPUs are named by index. An index out of range is allowed (a CPU that came later); such a CPU
/// keeps no ID. All operations may be called from any thread at any time, signal handlers included.
#[derive(Debug)]
pub struct IdAllocator<P: Platform, S: Storage<P>> {
    shape: Shape<P>,
    storage: S,
    cpus: u32,
    policy: Policy,
    /// See [`aging`](Self::aging).
    ages: bool,
}

impl<P: Platform, S: Storage<P>> IdAllocator<P, S> {
    /// An allocator for `cpus` CPUs, all of them allowed, without members. The limit is 1 until
    /// threads [`join`](Self::join).
    ///
    /// # Panics
    ///
    /// If the storage has no blocks, more than [`MAX_IDS`] IDs, fewer records than CPUs, or (for
    /// [`Policy::PerCpu`]) fewer IDs than CPUs.
    pub fn new(storage: S, cpus: u32, policy: Policy) -> Self {
        let capacity = storage.blocks().len() * BLOCK as usize;
        assert!((1..=MAX_IDS as usize).contains(&capacity));
        assert!(storage.records().len() >= cpus as usize);
        assert!(policy != Policy::PerCpu || capacity >= cpus as usize);
        let first = if policy == Policy::PerCpu { cpus } else { 0 };
        let ids = IdAllocator {
            shape: Shape::new(cpus, first),
            storage,
            cpus,
            policy,
            ages: false,
        };
        ids.limit_changed();
        ids
    }

    /// Makes acquisitions that find no ID on their CPU [reclaim](Self::reclaim) old ones, at most
    /// once per [`AGE`]. Not for callers that reclaim by a clock of their own.
    #[must_use]
    pub fn aging(mut self) -> Self {
        self.ages = true;
        self
    }

    /// Acquires an ID for a thread that runs on the CPU with index `cpu`. The holder sees what the
    /// ID's last holder did before the release.
    ///
    /// If the CPU's record keeps an ID, this takes one read-modify-write of that record, and no
    /// read of the clock; else a few read-modify-writes on shared lines. The thread may have
    /// migrated by the time this returns; the ID is still exclusive.
    ///
    /// # Errors
    ///
    /// [`Exhausted`].
    ///
    /// # Panics
    ///
    /// Never.
    #[inline]
    pub fn acquire(&self, cpu: u32) -> Result<Held, Exhausted> {
        self.acquire_as(cpu, NO_MEMBER)
    }

    /// Like [`acquire`](Self::acquire), for the member with index `member`. The index matters under
    /// [`Policy::TaskOwned`] only, and the caller assigns it. A member without a record, or
    /// [`NO_MEMBER`], uses the CPU's record.
    ///
    /// # Errors
    ///
    /// [`Exhausted`].
    #[inline]
    pub fn acquire_as(&self, cpu: u32, member: u32) -> Result<Held, Exhausted> {
        let control = self.shape.control();
        let at = self.place(control.by_member(), cpu, member);
        if let Some(record) = self.storage.records().get(at as usize) {
            let word = Word(record.word.load(Relaxed));
            if word.keeps() && control.allows(word.id()) {
                let id = word.id();
                // Acquire pairs with the Release of the thread that made the record keep it.
                if record
                    .word
                    .compare_exchange(word.0, Word::lent(id).0, Acquire, Relaxed)
                    .is_ok()
                {
                    return Ok(Held { at, id });
                }
            }
        }
        self.acquire_slow(cpu, member)
    }

    /// Releases an ID. `cpu` is the index of the CPU on which the thread runs now, or ran when it
    /// acquired the ID if the current one is not known. That CPU keeps the ID if it has none; else
    /// the CPU of the acquisition keeps it, or it becomes free.
    ///
    /// This takes a plain store to the CPU's own record, if that lent the ID; else a few
    /// read-modify-writes.
    #[inline]
    pub fn release(&self, cpu: u32, held: Held) {
        let stays = held.at == cpu || held.at >= self.cpus;
        match self.storage.records().get(held.at as usize) {
            // Even if the limit has shrunk below the ID: the next acquisition or reclaim finds it.
            Some(record) if stays => record.word.overwrite(Word::kept(held.id).0, Release),
            _ => self.release_slow(cpu, held),
        }
    }

    /// The record to ask first.
    #[inline]
    fn place(&self, by_member: bool, cpu: u32, member: u32) -> u32 {
        if by_member && member != NO_MEMBER {
            let at = self.cpus.saturating_add(member);
            if (at as usize) < self.storage.records().len() {
                return at;
            }
        }
        if cpu < self.cpus { cpu } else { NOWHERE }
    }
}
