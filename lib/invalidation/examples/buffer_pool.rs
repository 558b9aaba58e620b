//! A small buffer pool over a file that is larger than the pool's memory.
//!
//! Each page of the file has its place in one big mapping (as in vmcache: Leis and others, SIGMOD
//! 2023). A reader that finds its page absent reads it from the file into that place. A thread that
//! finds too many pages resident evicts a batch: it clears table entries under a shard's lock, and
//! returns the memory by one `madvise(MADV_DONTNEED)` for each run of neighbours.
//!
//! From there to the end of `madvise` the lock is free: a reader of such a page waits on its tag.
//! For comparison the lock is held, or such a reader waits for a grace period of crossbeam-epoch.
//!
//! Each read verifies the page's checksum: a batch that comes too late zeroes a page that was read
//! again. The argument `--without-waiting` shows that; a number at the end is seconds a run.
//!
//! Invariants cited by `SAFETY` comments:
//! 1. The mapping is as long as the file, and unmapped once, when its pool is dropped.
//! 2. A page is written only by the thread that has changed its entry from `Absent` to `Loading`.
//!    It is read only while its entry counts a reader. Both entries keep it from being evicted.

use kinlock::{Mutex, MutexGuard};
use kinlock_invalidation::{Domain, Section, Tag};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::*};
use std::time::{Duration, Instant};
use std::{fs::File, sync::Arc, thread};

const PAGE: usize = 4096;
const WORDS: usize = PAGE / 8;
/// Pages behind a lock.
const SHARD: usize = 64;

/// What keeps an evicted page from being read into its place before its batch is done.
pub(crate) trait Protection: Sync {
    type Mark: Default + Sync;
    type Section<'a>;
    /// Whether the shard's lock is held until the batch is done.
    const HOLDS_LOCK: bool = false;
    fn begin(&self) -> Self::Section<'_>;
    /// An entry is cleared, under the lock.
    fn mark(&self, section: &Self::Section<'_>, mark: &Self::Mark);
    /// The page is about to be used again. The lock is not held.
    fn wait(&self, mark: &Self::Mark);
}

impl Protection for Domain {
    type Mark = Tag;
    type Section<'a> = Section<'a>;
    fn begin(&self) -> Section<'_> {
        self.begin()
    }
    fn mark(&self, section: &Section<'_>, tag: &Tag) {
        section.tag(tag);
    }
    fn wait(&self, tag: &Tag) {
        self.wait(tag).expect("no section is open here");
    }
}

pub(crate) struct Nothing<const HOLDS_LOCK: bool>;

impl<const HOLDS_LOCK: bool> Protection for Nothing<HOLDS_LOCK> {
    type Mark = ();
    type Section<'a> = ();
    const HOLDS_LOCK: bool = HOLDS_LOCK;
    fn begin(&self) {}
    fn mark(&self, (): &(), (): &()) {}
    fn wait(&self, (): &()) {}
}

/// Batches pin an epoch. Grace periods have numbers; a mark is that of the next one.
#[derive(Default)]
pub(crate) struct Epochs {
    begun: AtomicU64,
    ended: AtomicU64,
}

impl Protection for Epochs {
    type Mark = AtomicU64;
    type Section<'a> = crossbeam_epoch::Guard;
    fn begin(&self) -> crossbeam_epoch::Guard {
        crossbeam_epoch::pin()
    }
    fn mark(&self, _: &crossbeam_epoch::Guard, mark: &AtomicU64) {
        mark.store(self.begun.load(SeqCst) + 1, Relaxed);
    }
    fn wait(&self, mark: &AtomicU64) {
        while self.ended.load(Acquire) < mark.load(Relaxed) {
            let number = self.begun.fetch_add(1, SeqCst) + 1;
            let over = Arc::new(AtomicBool::new(false));
            let set = Arc::clone(&over);
            crossbeam_epoch::pin().defer(move || set.store(true, Release));
            while !over.load(Acquire) {
                crossbeam_epoch::pin().flush();
                thread::yield_now();
            }
            self.ended.fetch_max(number, AcqRel);
        }
    }
}

#[derive(Clone, Copy)]
enum Entry {
    Absent,
    /// A thread reads it from the file, without holding the lock.
    Loading,
    /// The number of its readers, and whether it was read since the last eviction looked.
    Resident(u32, bool),
}

/// Its entries, and the mark of each page.
type Shard<M> = (Mutex<[Entry; SHARD]>, [M; SHARD]);

pub(crate) struct Pool<P: Protection> {
    protection: P,
    file: File,
    base: usize,
    shards: Vec<Shard<P::Mark>>,
    /// The most resident pages, about.
    memory: usize,
    resident: AtomicUsize,
    hand: AtomicUsize,
    wrong: AtomicU64,
}

impl<P: Protection> Pool<P> {
    pub(crate) fn new(protection: P, file: &File, shards: usize, memory: usize) -> Self {
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let (access, bytes) = (libc::PROT_READ | libc::PROT_WRITE, shards * SHARD * PAGE);
        // SAFETY: a new mapping touches no existing memory.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, kind, -1, 0) };
        assert_ne!(base, libc::MAP_FAILED, "no address space left");
        // SAFETY: invariant 1. Huge pages would be split again and again.
        unsafe { libc::madvise(base, bytes, libc::MADV_NOHUGEPAGE) };
        let entries = || Mutex::new([Entry::Absent; SHARD]);
        let marks = || std::array::from_fn(|_| P::Mark::default());
        let shard = |_| (entries(), marks());
        Pool {
            protection,
            file: file.try_clone().expect("the file is open"),
            base: base as usize,
            shards: (0..shards).map(shard).collect(),
            memory,
            resident: AtomicUsize::new(0),
            hand: AtomicUsize::new(0),
            wrong: AtomicU64::new(0),
        }
    }

    fn address<T>(&self, page: usize) -> *mut T {
        (self.base + page * PAGE) as *mut T
    }

    /// Reads a page and verifies it. False if another thread is loading it: try another one.
    fn read(&self, page: usize) -> bool {
        let ((table, marks), at) = (&self.shards[page / SHARD], page % SHARD);
        let mut entries = table.lock();
        match entries[at] {
            Entry::Loading => return false,
            Entry::Resident(readers, _) => entries[at] = Entry::Resident(readers + 1, true),
            Entry::Absent => {
                entries[at] = Entry::Loading;
                drop(entries);
                self.protection.wait(&marks[at]);
                // SAFETY: invariants 1 and 2.
                let place = unsafe { std::slice::from_raw_parts_mut(self.address(page), PAGE) };
                let read = self.file.read_exact_at(place, (page * PAGE) as u64);
                read.unwrap();
                self.resident.fetch_add(1, Relaxed);
                entries = table.lock();
                entries[at] = Entry::Resident(1, true);
            }
        }
        drop(entries);
        let words = self.address::<u64>(page);
        // SAFETY: invariants 1 and 2. Volatile: a late batch changes it meanwhile.
        let word = |i| unsafe { words.add(i).read_volatile() };
        let wrong = word(0) != checksum(page, word);
        self.wrong.fetch_add(wrong as u64, Relaxed);
        if let Entry::Resident(readers, _) = &mut table.lock()[at] {
            *readers -= 1;
        }
        true
    }

    /// Evicts pages of the next shard that were not read since the last look.
    fn evict(&self) {
        let number = self.hand.fetch_add(1, Relaxed) % self.shards.len();
        let (table, marks) = &self.shards[number];
        let section = self.protection.begin();
        let mut batch = Vec::with_capacity(SHARD);
        let mut entries = table.lock();
        for (at, entry) in entries.iter_mut().enumerate() {
            match *entry {
                Entry::Resident(0, false) => {
                    *entry = Entry::Absent;
                    self.protection.mark(&section, &marks[at]);
                    batch.push(number * SHARD + at);
                }
                Entry::Resident(readers, _) => *entry = Entry::Resident(readers, false),
                _ => {}
            }
        }
        let held = P::HOLDS_LOCK.then_some(entries);
        for run in batch.chunk_by(|a, b| a + 1 == *b) {
            let at = self.address(run[0]);
            // SAFETY: invariant 1; no thread uses the pages before our section has ended.
            unsafe { libc::madvise(at, run.len() * PAGE, libc::MADV_DONTNEED) };
        }
        drop::<Option<MutexGuard<'_, _>>>(held);
        drop(section);
        self.resident.fetch_sub(batch.len(), Relaxed);
    }

    /// Reads at random in `threads` threads. Returns the number of reads, and of those that found a
    /// wrong checksum.
    pub(crate) fn run(&self, threads: usize, span: Duration) -> (u64, u64) {
        let pages = (self.shards.len() * SHARD) as u64;
        let end = Instant::now() + span;
        let reader = |me: u64| {
            let mut x = me;
            let mut random = |n: u64| {
                x = x.wrapping_mul(6364136223846793005).wrapping_add(1);
                (x >> 33) % n
            };
            let mut reads = 0;
            while Instant::now() < end {
                for _ in 0..64 {
                    while self.resident.load(Relaxed) > self.memory {
                        self.evict();
                    }
                    // Three of four reads are of an eighth of the pages.
                    let among = if random(4) == 0 { pages } else { pages / 8 };
                    reads += self.read(random(among) as usize) as u64;
                }
            }
            reads
        };
        thread::scope(|s| {
            let spawned = |me| s.spawn(move || reader(me));
            let threads: Vec<_> = (1..=threads as u64).map(spawned).collect();
            let reads = threads.into_iter().map(|t| t.join().unwrap()).sum();
            (reads, self.wrong.load(Relaxed))
        })
    }
}

impl<P: Protection> Drop for Pool<P> {
    fn drop(&mut self) {
        // SAFETY: invariant 1.
        unsafe { libc::munmap(self.base as *mut _, self.shards.len() * SHARD * PAGE) };
    }
}

/// The checksum of a page, over all its words but the first, which holds the checksum.
fn checksum(page: usize, word: impl Fn(usize) -> u64) -> u64 {
    (1..WORDS).fold(page as u64, |sum, i| sum.rotate_left(5) ^ word(i))
}

/// A file of `shards` shards of pages, each page with its checksum. It has no name any more.
pub(crate) fn file(shards: usize) -> File {
    let name = format!("kinlock-buffer-pool-{}-{shards}", std::process::id());
    let path = std::env::temp_dir().join(name);
    let file = File::create_new(&path).expect("a file can be made");
    std::fs::remove_file(path).expect("it was just made");
    for page in 0..shards * SHARD {
        let content = |i: usize| (page * WORDS + i) as u64;
        let mut words: [u64; WORDS] = std::array::from_fn(content);
        words[0] = checksum(page, |i| words[i]);
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        file.write_all_at(&bytes, (page * PAGE) as u64).unwrap();
    }
    file
}

const SHARDS: usize = 256;

/// Reads with memory for a quarter of the file, after a warm-up.
fn measure<P: Protection>(protection: P, file: &File, threads: usize) -> (u64, u64) {
    let pool = Pool::new(protection, file, SHARDS, SHARDS * SHARD / 4);
    let seconds = std::env::args().next_back().unwrap().parse().unwrap_or(1.0);
    pool.run(threads, Duration::from_secs_f64(0.3 * seconds));
    pool.run(threads, Duration::from_secs_f64(seconds))
}

fn main() {
    let file = file(SHARDS);
    let mut bad = 0;
    let mut show = |threads: usize, name: &str, (reads, wrong): (u64, u64)| {
        println!("{name:>16}, {threads:>2} threads: {reads:>9} reads/s, {wrong} wrong checksums");
        bad += wrong;
    };
    if std::env::args().any(|argument| argument == "--without-waiting") {
        show(8, "without waiting", measure(Nothing::<false>, &file, 8));
    }
    for n in [1, 2, 16, 64] {
        show(n, "kinlock", measure(Domain::new(), &file, n));
        show(n, "lock held", measure(Nothing::<true>, &file, n));
        show(n, "crossbeam-epoch", measure(Epochs::default(), &file, n));
    }
    std::process::exit((bad > 0) as i32);
}
