//! Slots of a page each in a big mapping: the demonstration of delayed invalidation, with an exact
//! oracle.
//!
//! A worker clears the entries of some used slots under the lock of their shard, unlocks, and gives
//! the pages back: `madvise(MADV_DONTNEED)`. Another worker finds the slots free, reserves them
//! under the lock, unlocks, *waits* until the pages are given back, and writes a stamp into each.
//! The worker that clears a slot verifies its stamp. A batch that comes too late removes the page
//! with the stamp, which then reads as zero.
//!
//! A [`Protection`] protects the pages; the rest is the same for all protections.
//!
//! # Invariants
//!
//! 1. The mapping is private, as long as its slots, and unmapped once, when the pool is dropped.
//!    Slots are accessed through it by volatile accesses of aligned words, and by the kernel.
//! 2. A word of a slot is accessed by the worker that has taken the slot only: its state has
//!    changed under the shard's lock.

use crate::random::Random;
use kinlock::{Mutex, MutexGuard};
use kinlock_invalidation::{self as invalidation, Backend, Section, Tag};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Bytes of a slot.
pub const PAGE: usize = 4096;
/// Slots behind a lock.
pub const SLOTS_PER_SHARD: usize = 64;
/// The most slots in a batch.
pub const BATCH: usize = 16;

/// Keeps a page from being reused before it has been given back.
pub trait Protection: Send + Sync + 'static {
    /// The data that is kept for each slot.
    type Mark: Default + Send + Sync;
    /// A batch under way.
    type Section<'a>;
    /// Whether the shard's lock is held until the pages have been given back.
    const HOLDS_LOCK: bool = false;

    /// Called before a worker clears entries.
    fn begin(&self) -> Self::Section<'_>;
    /// Called when the worker has cleared an entry, and still holds the lock.
    fn mark(&self, section: &Self::Section<'_>, mark: &Self::Mark);
    /// Called when the worker has given the pages back.
    fn end<'a>(&self, section: Self::Section<'_>, marks: impl Iterator<Item = &'a Self::Mark>);
    /// Waits until a slot's page has been given back. The lock is not held.
    fn wait(&self, mark: &Self::Mark);
    /// The number of the batch, if batches have numbers: higher than the number of any batch that
    /// began earlier.
    fn generation(&self, _: &Self::Section<'_>) -> Option<u64> {
        None
    }
}

/// The library's domain as a protection.
pub struct Ours(pub invalidation::Domain);

impl Ours {
    pub fn new(backend: Backend) -> Self {
        Ours(invalidation::Domain::with_backend(backend))
    }
}

impl Protection for Ours {
    type Mark = Tag;
    type Section<'a> = Section<'a>;

    fn begin(&self) -> Section<'_> {
        self.0.begin()
    }

    fn mark(&self, section: &Section<'_>, tag: &Tag) {
        section.tag(tag);
    }

    fn end<'a>(&self, section: Section<'_>, _: impl Iterator<Item = &'a Tag>) {
        drop(section);
    }

    fn wait(&self, tag: &Tag) {
        self.0.wait(tag).expect("no section is open here");
    }

    fn generation(&self, section: &Section<'_>) -> Option<u64> {
        Some(section.generation())
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// The page has been given back, or is about to be.
    Free,
    /// Taken by a worker that does not hold the lock.
    Reserved,
    /// The page holds this stamp.
    Used(u64),
}

pub struct Pool<P: Protection> {
    pub protection: P,
    base: *mut u8,
    shards: Vec<Shard<P::Mark>>,
    lost: AtomicU64,
}

// SAFETY: invariants 1 and 2.
unsafe impl<P: Protection> Send for Pool<P> {}
// SAFETY: as above.
unsafe impl<P: Protection> Sync for Pool<P> {}

#[repr(align(128))]
struct Shard<M> {
    table: Mutex<[State; SLOTS_PER_SHARD]>,
    marks: [M; SLOTS_PER_SHARD],
}

/// What interrupts a worker between giving up a slot and giving back its page.
pub type BadMoment = Box<dyn FnMut()>;

/// The state of one worker between its operations.
pub struct Worker {
    random: Random,
    name: u64,
    stamps: u64,
    bad_moment: Option<BadMoment>,
    pub verified: u64,
    pub given_back: u64,
}

impl Worker {
    /// The worker number `name`. It calls `bad_moment` where an interruption does the most harm.
    pub fn new(seed: u64, name: usize, bad_moment: Option<BadMoment>) -> Self {
        Worker {
            random: Random::stream(seed, name as u64),
            name: name as u64 + 1,
            stamps: 0,
            bad_moment,
            verified: 0,
            given_back: 0,
        }
    }

    fn bad_moment(&mut self) {
        if let Some(interrupt) = &mut self.bad_moment {
            interrupt();
        }
    }

    fn stamp(&mut self) -> u64 {
        self.stamps += 1;
        self.name << 40 | self.stamps
    }
}

impl<P: Protection> Pool<P> {
    /// A pool of `shards` shards, all slots free and given back.
    pub fn new(protection: P, shards: usize) -> std::io::Result<Self> {
        let bytes = shards * SLOTS_PER_SHARD * PAGE;
        // SAFETY: a new mapping, to which there is no other pointer.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error());
        }
        // No huge pages: they would be split again and again.
        // SAFETY: invariant 1.
        unsafe { libc::madvise(base, bytes, libc::MADV_NOHUGEPAGE) };
        let shard = |_| Shard {
            table: Mutex::new([State::Free; SLOTS_PER_SHARD]),
            marks: std::array::from_fn(|_| P::Mark::default()),
        };
        Ok(Pool {
            protection,
            base: base.cast(),
            shards: (0..shards).map(shard).collect(),
            lost: AtomicU64::new(0),
        })
    }

    /// Stamps that were lost: their pages were given back after they had been reused.
    pub fn lost(&self) -> u64 {
        self.lost.load(Relaxed)
    }

    /// One operation: some slots are cleared and given back, and some reused.
    pub fn turn(&self, worker: &mut Worker) {
        self.invalidate(worker);
        self.reuse(worker);
    }

    fn place(&self, worker: &mut Worker) -> (usize, usize) {
        let shard = worker.random.below(self.shards.len() as u64) as usize;
        let first = worker.random.below((SLOTS_PER_SHARD / BATCH) as u64) as usize * BATCH;
        (shard, first)
    }

    fn invalidate(&self, worker: &mut Worker) {
        let (shard, first) = self.place(worker);
        let section = self.protection.begin();
        let mut taken = [false; BATCH];
        let shard_of = &self.shards[shard];
        let mut table = shard_of.table.lock();
        for (i, taken) in taken.iter_mut().enumerate() {
            if let State::Used(stamp) = table[first + i] {
                self.verify(worker, shard, first + i, stamp);
                table[first + i] = State::Free;
                self.protection.mark(&section, &shard_of.marks[first + i]);
                *taken = true;
            }
        }
        let held = P::HOLDS_LOCK.then_some(table);
        worker.bad_moment();
        let mut at = 0;
        while at < BATCH {
            let length = taken[at..].iter().take_while(|&&taken| taken).count();
            if length > 0 {
                self.give_back(shard, first + at, length);
                worker.given_back += length as u64;
            }
            at += length + 1;
        }
        drop::<Option<MutexGuard<'_, _>>>(held);
        let marks = shard_of.marks[first..first + BATCH].iter().zip(taken);
        self.protection.end(
            section,
            marks.filter_map(|(mark, taken)| taken.then_some(mark)),
        );
    }

    fn reuse(&self, worker: &mut Worker) {
        let (shard, first) = self.place(worker);
        let shard_of = &self.shards[shard];
        let mut reserved = [None; BATCH];
        let mut table = shard_of.table.lock();
        for (i, reserved) in reserved.iter_mut().enumerate() {
            if table[first + i] == State::Free {
                table[first + i] = State::Reserved;
                *reserved = Some(worker.stamp());
            }
        }
        drop(table);
        let reserved = |i: usize| reserved[i].map(|stamp| (first + i, stamp));
        for (slot, stamp) in (0..BATCH).filter_map(reserved) {
            self.protection.wait(&shard_of.marks[slot]);
            self.write(shard, slot, stamp);
        }
        worker.bad_moment();
        let mut table = shard_of.table.lock();
        for (slot, stamp) in (0..BATCH).filter_map(reserved) {
            self.verify(worker, shard, slot, stamp);
            table[slot] = State::Used(stamp);
        }
    }

    fn address(&self, shard: usize, slot: usize) -> *mut u8 {
        // SAFETY: invariant 1: the slot is within the mapping.
        unsafe { self.base.add((shard * SLOTS_PER_SHARD + slot) * PAGE) }
    }

    fn write(&self, shard: usize, slot: usize, stamp: u64) {
        // SAFETY: invariant 2.
        unsafe {
            self.address(shard, slot)
                .cast::<u64>()
                .write_volatile(stamp)
        };
    }

    fn verify(&self, worker: &mut Worker, shard: usize, slot: usize, stamp: u64) {
        // SAFETY: invariant 2.
        let found = unsafe { self.address(shard, slot).cast::<u64>().read_volatile() };
        worker.verified += 1;
        if found != stamp {
            self.lost.fetch_add(1, Relaxed);
        }
    }

    fn give_back(&self, shard: usize, slot: usize, length: usize) {
        let at = self.address(shard, slot);
        // SAFETY: invariant 1; a stamp that is lost here is what the oracle looks for.
        let result = unsafe { libc::madvise(at.cast(), length * PAGE, libc::MADV_DONTNEED) };
        assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
    }
}

impl<P: Protection> Drop for Pool<P> {
    fn drop(&mut self) {
        let bytes = self.shards.len() * SLOTS_PER_SHARD * PAGE;
        // SAFETY: invariant 1.
        unsafe { libc::munmap(self.base.cast(), bytes) };
    }
}
