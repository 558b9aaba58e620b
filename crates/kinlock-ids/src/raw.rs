//! Allocation of concurrency IDs: small integers, one holder each at a time, dense, and close to the caches that know their data.
//!
//! Source: the per-memory-map concurrency IDs of the Linux kernel's restartable sequences (Desnoyers, 2022: lowest free first; 2024: kept by CPUs, recent IDs, spreading;
//! Gleixner, 2025: owned by tasks). Here an ID is *leased*: user space cannot give it up when it is preempted.
//!
//! # Who has an ID
//!
//! An ID is in exactly one of these places, and whoever moves it there gives it up:
//!
//! | place | how it shows |
//! | --- | --- |
//! | free | its bit is clear |
//! | held by a lease | its bit is set, no record keeps it; a [`Held`] names it, and mostly the record that lent it |
//! | kept by a record | its bit is set, and the record's word says [kept or marked](record) |
//!
//! There is a record for each CPU (and for each member, under [`Policy::TaskOwned`]). Leaving is lazy: the record keeps the ID for whoever comes next on that CPU. See [`record`] for its states.
//!
//! # Bounds
//!
//! * *limit* = min(allowed CPUs, members, capacity): how far IDs spread for locality's sake. Fresh IDs are handed out up to there although older ones may lie idle elsewhere.
//! * An ID at or above the limit is handed out for the first time only if at one instant every lower one was held (not just kept). So `id < max(limit, h)`, where `h` is the largest number of
//!   concurrent holders so far (those on their way in or out included, and those who reclaim or change the limit). Afterwards it is free again, and goes to whoever finds all below the limit held; so does one that was
//!   lent by a record while the limit was higher, which the record may keep.
//! * If the limit changes meanwhile, any that there was during the acquisition may count, as if that had happened a moment earlier; also one that the counts gave while another call that changes them was under way, if that
//!   still is. So when the limit has come down and all calls that change it have returned, it binds all acquisitions that begin afterwards. What was acquired before stays held.
//! * [`IdError::Exhausted`] means that at one instant all IDs of the storage were held.
//!
//! # Progress
//!
//! Lock-free: wherever all other threads have stopped, an acquisition comes to an end. Whatever is free or kept below `grown` it takes; if there is nothing of the kind, the proof that all are held succeeds. So a round is in vain only if
//! another operation has gone on meanwhile, or if a fresh ID has turned out to be held since before the limit came down, and of those there are no more than IDs.
//! After [`PATIENCE`](IdConfig::PATIENCE) vain rounds a thread closes the fast path for all and others let it go first. They wait for a limited time only, because
//! who waits may be a signal handler that has interrupted exactly that thread.
//!
//! # Example
//!
//! ```
//! use kinlock_core::Native;
//! use kinlock_ids::raw::{Block, IdAllocator, Policy, Record};
//!
//! // Two CPUs, at most 32 IDs, two threads.
//! let records: Vec<Record<Native>> = (0..2).map(|_| Record::new()).collect();
//! let blocks = vec![Block::<Native>::new()];
//! let ids: IdAllocator<Native, _> = IdAllocator::new((&records[..], &blocks[..]), 2, Policy::RecentFirst).unwrap();
//! ids.join();
//! ids.join();
//!
//! let a = ids.acquire(0).unwrap();
//! let b = ids.acquire(1).unwrap();
//! assert_eq!((a.id(), b.id()), (0, 1));
//! ids.release(0, a);
//! ids.release(1, b);
//! // Each CPU has kept its ID.
//! let b = ids.acquire(1).unwrap();
//! assert_eq!(b.id(), 1);
//! ids.release(1, b);
//! ```

mod blocks;
mod give;
mod proof;
pub mod record;
mod shape;
mod take;
#[cfg(all(test, not(loom)))]
mod tests;

pub use blocks::{BLOCK, Block};
pub use record::Record;

use core::marker::PhantomData;
use kinlock_core::platform::{Atomic, Ordering, Ordering::*, Platform};
use record::Word;
use shape::Shape;

/// After so many nanoseconds unused an ID that a record keeps counts as old: it goes to whoever needs one first, and [`reclaim`](IdAllocator::reclaim) frees it.
pub const AGE: u64 = 100_000_000;

/// No member: what [`acquire`](IdAllocator::acquire) says.
pub const NO_MEMBER: u32 = u32::MAX;

/// The most IDs an allocator can hand out.
pub const MAX_IDS: u32 = 1 << 24;

/// Which ID a thread gets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Policy {
    /// The one that the CPU has kept; else its recent one; else a fresh one below the limit; else the lowest free one; else one that another CPU keeps, old ones first.
    #[default]
    RecentFirst,
    /// The CPU's index. A second holder on that CPU gets an ID that is no CPU's.
    PerCpu,
    /// The one that the CPU has kept; else the lowest free one. What Linux did from 6.3 to 6.12: once an idle ID is [reclaimed](IdAllocator::reclaim) its data are for whoever comes next.
    LowestFree,
    /// While there are at most as many members as allowed CPUs each member has its own, whichever CPU it runs on; else CPUs keep them.
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

    /// Its name in tables and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Policy::RecentFirst => "recent-first",
            Policy::PerCpu => "per-cpu",
            Policy::LowestFree => "lowest-free",
            Policy::TaskOwned => "task-owned",
        }
    }
}

/// Why there is no ID, or no allocator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IdError {
    /// At one instant all IDs were held; under [`Policy::PerCpu`], all that are no CPU's, and the CPU's own.
    Exhausted,
    /// The storage has no blocks, more than [`MAX_IDS`] IDs, fewer records than CPUs, or (for [`Policy::PerCpu`]) fewer IDs than CPUs.
    Storage,
}

impl core::fmt::Display for IdError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            IdError::Exhausted => "all concurrency IDs are held",
            IdError::Storage => "the storage does not fit the CPUs and IDs asked for",
        })
    }
}

impl core::error::Error for IdError {}

/// Where an allocator keeps its state. The allocator allocates no memory itself.
///
/// Both slices must be the same at each call, all new or zeroed at first, and used by one allocator only: others see IDs twice.
pub trait Storage<P: Platform> {
    /// A record for each CPU, by index; then one for each member, by index, if there are to be any (see [`Policy::TaskOwned`]).
    fn records(&self) -> &[Record<P>];
    /// [`BLOCK`] IDs each.
    fn blocks(&self) -> &[Block<P>];
}

impl<P: Platform> Storage<P> for (&[Record<P>], &[Block<P>]) {
    fn records(&self) -> &[Record<P>] {
        self.0
    }
    fn blocks(&self) -> &[Block<P>] {
        self.1
    }
}

/// What is fixed about an allocator at compile time.
pub trait IdConfig: Copy + core::fmt::Debug + Send + Sync + 'static {
    /// After so many vain rounds an acquisition closes the fast path for the others.
    const PATIENCE: u32 = 16;
    /// A deliberate defect, for showing that a check can fail.
    #[doc(hidden)]
    const FAULT: IdFault = IdFault::None;
}

/// The usual allocator.
#[derive(Clone, Copy, Debug)]
pub struct Usual;

impl IdConfig for Usual {}

/// Deliberate defects, each to be caught by the check meant for it.
#[doc(hidden)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IdFault {
    /// A correct allocator.
    None,
    /// Who takes a kept ID away does not look whether its owner has just taken it back: the ID is shared.
    Shared,
    /// A release that finds its record occupied forgets the ID: it is leaked.
    Leaked,
    /// A fresh ID is handed out although lower ones are kept, not held: it is above the bound.
    AboveBound,
    /// A recent ID is taken again although the limit has shrunk below it: it is above the bound.
    StaleRecent,
    /// Fresh IDs are handed out by the limit that the acquisition has seen, which may have come down since.
    LateGrowth,
    /// What a record keeps above the limit is nobody's business: who needs it looks for ever.
    Stranded,
    /// A release does not publish what the holder did to the ID's data.
    RelaxedRelease,
}

/// An ID that is held. [Give it back](IdAllocator::release): if it is dropped, the ID is lost.
#[must_use = "an ID that is not released is lost"]
#[derive(PartialEq, Eq, Debug)]
pub struct Held {
    /// The record that lent the ID, and gets it back; [`NOWHERE`] if none.
    at: u32,
    /// What that record says meanwhile; at least the ID.
    word: u64,
}

impl Held {
    /// The ID.
    #[inline]
    pub fn id(&self) -> u32 {
        Word(self.word).id()
    }
}

/// The index of no record.
const NOWHERE: u32 = u32::MAX;

/// Hands out the IDs of one domain.
///
/// CPUs are named by index: the caller maps CPU numbers, however large and sparse, to `0..cpus`. An index out of range is allowed (a CPU that came later): then nothing is kept.
/// All operations may be called from any thread at any time, signal handlers included.
#[derive(Debug)]
pub struct IdAllocator<P: Platform, S: Storage<P>, C: IdConfig = Usual> {
    shape: Shape<P>,
    storage: S,
    cpus: u32,
    policy: Policy,
    config: PhantomData<C>,
}

impl<P: Platform, S: Storage<P>, C: IdConfig> IdAllocator<P, S, C> {
    /// An allocator for `cpus` CPUs, all allowed, without members: it has no limit to spread to until threads [`join`](Self::join).
    ///
    /// # Errors
    ///
    /// [`IdError::Storage`].
    pub fn new(storage: S, cpus: u32, policy: Policy) -> Result<Self, IdError> {
        let capacity = storage.blocks().len() * BLOCK as usize;
        let fits = (1..=MAX_IDS as usize).contains(&capacity)
            && storage.records().len() >= cpus as usize
            && storage.records().len() < NOWHERE as usize
            && (policy != Policy::PerCpu || capacity >= cpus as usize);
        if !fits {
            return Err(IdError::Storage);
        }
        let first = if policy == Policy::PerCpu { cpus } else { 0 };
        Ok(IdAllocator {
            shape: Shape::new(cpus, first),
            storage,
            cpus,
            policy,
            config: PhantomData,
        })
    }

    /// Acquires an ID for a thread that runs on the CPU with index `cpu`. The holder sees what the ID's last holder did before it released it.
    ///
    /// One read-modify-write of the CPU's own record if that keeps an ID; no clock is read. Else a few on shared lines. The thread may be anywhere by the time it returns: the ID is
    /// exclusive all the same.
    ///
    /// # Errors
    ///
    /// [`IdError::Exhausted`].
    ///
    /// # Panics
    ///
    /// Never.
    #[inline]
    pub fn acquire(&self, cpu: u32) -> Result<Held, IdError> {
        self.acquire_as(cpu, NO_MEMBER)
    }

    /// As [`acquire`](Self::acquire), for the member with index `member`: which matters under [`Policy::TaskOwned`] only. Indices are given by the caller, and are free again after
    /// [`leave_as`](Self::leave_as). Without a record for it (or [`NO_MEMBER`]) the CPU's is used.
    ///
    /// # Errors
    ///
    /// [`IdError::Exhausted`].
    #[inline]
    pub fn acquire_as(&self, cpu: u32, member: u32) -> Result<Held, IdError> {
        let control = self.shape.control();
        let at = self.place(control.by_member(), cpu, member);
        if let Some(record) = self.storage.records().get(at as usize) {
            let word = Word(record.word.load(Relaxed));
            if word.keeps() && control.allows(word.id()) {
                let lent = word.lent();
                // Acquire pairs with the Release of whoever made the record keep it.
                if record
                    .word
                    .compare_exchange(word.0, lent.0, Acquire, Relaxed)
                    .is_ok()
                {
                    return Ok(Held { at, word: lent.0 });
                }
            }
        }
        self.acquire_slow(cpu, member)
    }

    /// Gives an ID back, on the CPU with index `cpu`: where the thread runs now, or where it ran when it acquired the ID if that is not known. The CPU keeps the ID, if it has none; else the CPU where it was acquired
    /// does, or it is free.
    ///
    /// A plain store to the CPU's own record, if that lent the ID. Else a few read-modify-writes.
    #[inline]
    pub fn release(&self, cpu: u32, held: Held) {
        let stays = held.at == cpu || held.at >= self.cpus;
        match self.storage.records().get(held.at as usize) {
            // Also if the limit has shrunk below the ID: whoever looks next finds it.
            Some(record) if stays => record
                .word
                .overwrite(Word(held.word).kept().0, Self::RELEASE),
            _ => self.release_slow(cpu, held),
        }
    }

    /// Pairs with the Acquire of whoever takes the ID.
    const RELEASE: Ordering = match C::FAULT {
        IdFault::RelaxedRelease => Relaxed,
        _ => Release,
    };

    /// Which record is asked first.
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
