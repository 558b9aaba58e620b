//! Delayed invalidation at work: slots of a page each in a big mapping, returned to the system in
//! batches and reused.
//!
//! Invalidators clear table entries under a shard's lock, tag the slots, unlock, and return the
//! pages by one `madvise(MADV_DONTNEED)` for each run of neighbours. Reusers find a free slot, wait
//! on its tag, write a stamp, and verify it later.
//!
//! `cargo run --release -p kinlock --example page_slots -- --without-waiting` leaves the wait out:
//! late batches then zero stamps.

use kinlock::Mutex;
use kinlock_invalidation::{Domain, Tag};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

const PAGE: usize = 4096;
const SHARDS: usize = 4;
const SLOTS: usize = 64;
/// The number of slots that an invalidator checks.
const BATCH: usize = 16;
const THREADS: u64 = 8;

/// The table's entry for a slot.
#[derive(Clone, Copy, PartialEq)]
enum Entry {
    Free,
    /// A thread is about to use it, and waits without holding the lock, since sections take it.
    Reserved,
    Used(u64),
}

struct Shard {
    table: Mutex<[Entry; SLOTS]>,
    tags: [Tag; SLOTS],
}

struct Pool {
    domain: Domain,
    shards: Vec<Shard>,
    base: usize,
    lost: AtomicU64,
}

impl Pool {
    fn new() -> Self {
        // SAFETY: a new private mapping; it stays until the process ends.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                SHARDS * SLOTS * PAGE,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert_ne!(base, libc::MAP_FAILED, "no address space left");
        Pool {
            domain: Domain::new(),
            shards: (0..SHARDS)
                .map(|_| Shard {
                    table: Mutex::new([Entry::Free; SLOTS]),
                    tags: [const { Tag::new() }; SLOTS],
                })
                .collect(),
            base: base as usize,
            lost: AtomicU64::new(0),
        }
    }

    fn page(&self, shard: usize, slot: usize) -> *mut u64 {
        (self.base + (shard * SLOTS + slot) * PAGE) as *mut u64
    }

    fn verify(&self, shard: usize, slot: usize, stamp: u64) {
        // SAFETY: within the mapping; the slot is ours, since we have seen or changed its entry
        // under the lock.
        let found = unsafe { self.page(shard, slot).read_volatile() };
        self.lost.fetch_add((found != stamp) as u64, Relaxed);
    }

    fn invalidate(&self, shard: usize, first: usize) {
        let section = self.domain.begin();
        let mut batch = Vec::with_capacity(BATCH);
        let mut table = self.shards[shard].table.lock();
        for slot in first..first + BATCH {
            if let Entry::Used(stamp) = table[slot] {
                self.verify(shard, slot, stamp);
                table[slot] = Entry::Free;
                section.tag(&self.shards[shard].tags[slot]);
                batch.push(slot);
            }
        }
        drop(table);
        for run in batch.chunk_by(|a, b| a + 1 == *b) {
            let at = self.page(shard, run[0]).cast();
            // SAFETY: within the mapping; no thread reuses the pages before our section has ended.
            let result = unsafe { libc::madvise(at, run.len() * PAGE, libc::MADV_DONTNEED) };
            assert_eq!(result, 0);
        }
        drop(section);
    }

    fn reuse(&self, shard: usize, slot: usize, stamp: u64, waits: bool) {
        let entry = |from: Entry, to: Entry| {
            let mut table = self.shards[shard].table.lock();
            let is = table[slot] == from;
            if is {
                table[slot] = to;
            }
            is
        };
        if !entry(Entry::Free, Entry::Reserved) {
            return;
        }
        if waits {
            let tag = &self.shards[shard].tags[slot];
            self.domain.wait(tag).expect("no section is open here");
        }
        // SAFETY: within the mapping; the slot is reserved for us.
        unsafe { self.page(shard, slot).write_volatile(stamp) };
        entry(Entry::Reserved, Entry::Used(stamp));
    }
}

fn main() {
    let waits = std::env::args().all(|argument| argument != "--without-waiting");
    let pool = Pool::new();
    let end = Instant::now() + Duration::from_secs(1);
    let batches: u64 = thread::scope(|s| {
        let threads: Vec<_> = (1..=THREADS)
            .map(|me| {
                let pool = &pool;
                s.spawn(move || {
                    let mut x = me;
                    let mut random = |n: usize| {
                        x = x.wrapping_mul(6364136223846793005).wrapping_add(1);
                        (x >> 33) as usize % n
                    };
                    let mut batches = 0;
                    while Instant::now() < end {
                        pool.invalidate(random(SHARDS), random(SLOTS / BATCH) * BATCH);
                        batches += 1;
                        for i in 0..BATCH as u64 {
                            let stamp = me << 48 | batches << 8 | i;
                            pool.reuse(random(SHARDS), random(SLOTS), stamp, waits);
                        }
                    }
                    batches
                })
            })
            .collect();
        threads.into_iter().map(|t| t.join().unwrap()).sum()
    });
    let lost = pool.lost.load(Relaxed);
    println!(
        "{batches} batches, {lost} stamps lost; {:?}",
        pool.domain.stats()
    );
    assert!(pool.domain.dump().is_empty());
    // With the wait no stamp is ever lost.
    std::process::exit((waits && lost > 0) as i32);
}
