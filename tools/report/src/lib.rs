//! The table of the contention report: the preloaded library fills it, the command reads it.
//!
//! It is a file in memory, mapped by the program from its first lock on. So it is there however the
//! program ends, and can be read at any time. All parts have a fixed size: nothing is allocated.
//!
//! An entry of zeros is free. Locks, stacks and uses are found by way of an index with open
//! addressing, and their entries are filled one after the other. So the used part of each array is
//! its beginning. What finds no place is counted as dropped. Times are nanoseconds of the monotonic
//! clock. Indices stand for entries plus 1, so that 0 is none.
//!
//! # Memory
//!
//! The file has the size of the table, but no memory at first. Before a [page](PAGE) is first
//! touched, the library asks the kernel for it, and then sets its bit in
//! [`Header::present`]. If there is no memory for it, the entry finds no place. A page without its
//! bit must not be touched, not even by a read: the kernel would have to provide it, and a file
//! system that is full makes that a fatal signal. The command reads the file with `pread`, which
//! returns zeros for pages that are not there.
//!
//! What each acquisition changes is in a [`Tally`] of the thread for the lock, so that no cache
//! line moves with the lock but the lock's own. A thread has a few tallies. One that makes room,
//! and those of a thread that ends, are added to the entries of the lock and the thread. The
//! numbers of a lock are thus those in its entry and those in the tallies that stand
//! [for it](Table::lock_of).
//!
//! # Who changes what
//!
//! | field | changed by |
//! | --- | --- |
//! | of a tally, of a thread | that thread |
//! | of a record | the holder of its lock, likewise |
//! | of a lock, below "the holder's" | its holder, so that plain loads and stores suffice |
//! | other numbers of a lock, of a use | any thread, by atomic additions |

#![no_std]

mod classes;

pub use classes::{bucket, class, class_range, end_of, waits_per_sample};
use core::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering::Relaxed};

/// How a file begins. It changes with the layout.
pub const MAGIC: u64 = u64::from_le_bytes(*b"kinlock6");

/// How many locks, living and ended ones, are told apart.
pub const LOCKS: usize = 16384;
/// How many call stacks.
pub const STACKS: usize = 8192;
/// How many combinations of a lock and a call stack.
pub const USES: usize = 32768;
/// How many threads.
pub const THREADS: usize = 1024;
/// How many pages a table may have: a bit for each.
pub const PAGES: usize = 16384;
/// The unit in which the table gets memory.
pub const PAGE: usize = 4096;
/// How many threads have tallies at a time.
pub const OWNERS: usize = 512;
/// How many tallies such a thread has.
pub const TALLIES: usize = 64;
/// How many shared objects.
pub const MODULES: usize = 256;
/// How many locks are recorded: the first ones, in the second half those that are often measured.
pub const RECORDS: usize = 512;
/// How many classes a recorded distribution has.
pub const CLASSES: usize = 256;
/// Threads of a recorded lock are told apart by their number modulo this.
pub const RECORDED_THREADS: usize = 32;
/// How many calls of a stack, innermost first.
pub const FRAMES: usize = 16;
/// How many classes of a histogram.
pub const BUCKETS: usize = 64;
/// Threads of one lock are told apart by their number modulo this.
pub const THREAD_BITS: usize = 256;

/// Set in the address of a lock that was destroyed or initialised again.
pub const ENDED: u64 = 1;
/// In the place of an address: the entry was in use, and is free again.
pub const FREED: u64 = 2;

/// In the kind of a lock: a spinlock. The other bits are the C library's.
pub const SPIN: u32 = 1 << 16;

/// The whole file.
#[repr(C)]
pub struct Table {
    /// What holds for all of it.
    pub header: Header,
    /// Shared objects in which there are locks or callers.
    pub modules: [Module; MODULES],
    /// At the number of the thread, modulo [`THREADS`], or soon after.
    pub threads: [Thread; THREADS],
    /// Where the locks are, by address.
    pub lock_index: [AtomicU32; 2 * LOCKS],
    /// Where the stacks are, by the hash of their frames.
    pub stack_index: [AtomicU32; 2 * STACKS],
    /// Where the uses are, by lock and stack.
    pub use_index: [AtomicU32; 2 * USES],
    /// In the order in which they came.
    pub locks: [Lock; LOCKS],
    /// Likewise.
    pub stacks: [Stack; STACKS],
    /// Likewise.
    pub uses: [Use; USES],
    /// By the number of the thread.
    pub owners: [Owner; OWNERS],
    /// In the order in which locks were first measured.
    pub records: [Record; RECORDS],
}

impl Table {
    /// The lock that a tally stands for, by its index: if its entry is another lock's by now, the
    /// one that the ended lock has joined. `None` if the tally is free.
    pub fn lock_of(&self, tally: &Tally) -> Option<usize> {
        let serial = tally.serial.load(Relaxed);
        let at = (tally.lock.load(Relaxed) as usize).checked_sub(1)?;
        if serial == 0 || self.locks.get(at)?.serial.load(Relaxed) == serial {
            return (serial != 0).then_some(at);
        }
        let first = (tally.first.load(Relaxed) as usize).checked_sub(1)?;
        let others = self.stacks.get(first)?.ended.load(Relaxed) as usize;
        others.checked_sub(1).filter(|&at| at < LOCKS)
    }
}

/// In how many places acquisitions of reader-writer locks are counted.
pub const RW_SHARDS: usize = 16;

/// A number in a cache line of its own, and in its own pair of lines that are fetched together.
#[repr(C, align(128))]
pub struct Padded(pub AtomicU64);

/// Sums over threads that have ended.
#[repr(C)]
pub struct EndedThreads {
    /// How many they are.
    pub count: AtomicU64,
    /// How often they took a lock.
    pub locked: AtomicU64,
    /// How often they found one taken.
    pub contended: AtomicU64,
    /// How long they waited.
    pub wait_ns: AtomicU64,
    /// How long at most at a time.
    pub wait_max: AtomicU64,
}

/// A page that all processes of a report share: a file beside the tables, made by the command.
#[repr(C)]
pub struct Shared {
    /// [`MAGIC`].
    pub magic: AtomicU64,
    /// Processes for which no table could be made.
    pub without_table: AtomicU32,
    /// Why that failed the last time, as an `errno`.
    pub errno: AtomicU32,
    /// The command has written its report. No more tables are wanted.
    pub is_over: AtomicU32,
}

/// The name of that file is the prefix of the tables' names with this appended.
pub const SHARED: &str = ".shared";

const _: () = assert!(size_of::<Table>() <= PAGES * PAGE && size_of::<Shared>() <= PAGE);

/// The beginning of the file.
#[repr(C)]
pub struct Header {
    /// [`MAGIC`], once the header is complete.
    pub magic: AtomicU64,
    /// When the first call came.
    pub begin: AtomicU64,
    /// When the process ended, if it ended by itself.
    pub end: AtomicU64,
    /// Number of the process.
    pub process: AtomicU32,
    /// Which locks: 0 our mutex, 1 our spinlock, 2 the C library's.
    pub locks: AtomicU32,
    /// How many locality domains the machine has.
    pub domains: AtomicU32,
    /// How many modules there are.
    pub modules: AtomicU32,
    /// How many threads took a lock.
    pub threads: AtomicU32,
    /// How many entries of locks are in use, and how many of stacks and uses.
    pub locks_used: AtomicU32,
    /// Likewise.
    pub stacks_used: AtomicU32,
    /// Likewise.
    pub uses_used: AtomicU32,
    /// How many entries of locks are free again, and how many of stacks and uses.
    pub locks_freed: AtomicU32,
    /// Likewise.
    pub stacks_freed: AtomicU32,
    /// Likewise.
    pub uses_freed: AtomicU32,
    /// The process that started this one.
    pub parent: AtomicU32,
    /// How often there was no memory for a page.
    pub no_memory: AtomicU32,
    /// What the threads did that have ended and whose entries others use now.
    pub ended_threads: EndedThreads,
    /// Acquisitions of reader-writer locks, in shards by the number of the thread.
    pub rwlocked: [Padded; RW_SHARDS],
    /// Which pages of the table have memory.
    pub present: [AtomicU64; PAGES / 64],
    /// How many locks have ended.
    pub ended: AtomicU32,
    /// Whether distributions are recorded.
    pub is_recorded: AtomicU32,
    /// How many locks wanted a record.
    pub records: AtomicU32,
    /// What the program is called, up to the first zero.
    pub program: [AtomicU8; 64],
    /// Acquisitions of locks that found no entry.
    pub dropped_locks: AtomicU64,
    /// Call stacks that found none.
    pub dropped_stacks: AtomicU64,
    /// Uses that found none.
    pub dropped_uses: AtomicU64,
    /// Acquisitions by threads that had none.
    pub dropped_threads: AtomicU64,
}

/// A shared object.
#[repr(C)]
pub struct Module {
    /// Its first address.
    pub start: AtomicU64,
    /// The one after its last; stored last.
    pub end: AtomicU64,
    /// What is added to addresses in its file.
    pub bias: AtomicU64,
    /// Its build ID, up to 32 bytes.
    pub build_id: [AtomicU8; 32],
    /// How many bytes of the build ID there are.
    pub build_id_length: AtomicU32,
    /// How many bytes of the path there are.
    pub path_length: AtomicU32,
    /// Its path, cut off if it is longer.
    pub path: [AtomicU8; 512],
}

/// A thread. Two of them share no cache line, nor a pair of lines that is fetched together.
#[repr(C, align(128))]
pub struct Thread {
    /// Its number in this process, which are 1, 2, ...
    pub token: AtomicU32,
    /// Its number for the kernel.
    pub id: AtomicU32,
    /// What it is called.
    pub name: [AtomicU8; 16],
    /// How often it took a lock, besides what its tallies say.
    pub locked: AtomicU64,
    /// How often it found one taken.
    pub contended: AtomicU64,
    /// How long it waited.
    pub wait_ns: AtomicU64,
    /// How long at most at a time.
    pub wait_max: AtomicU64,
    /// The lock that it waits for now, or 0.
    pub waits_for: AtomicU64,
    /// When it took its first lock.
    pub begin: AtomicU64,
    /// When it ended; 0: it has not.
    pub end: AtomicU64,
}

/// A thread that has tallies.
#[repr(C, align(128))]
pub struct Owner {
    /// The number of the thread, or 0.
    pub token: AtomicU32,
    /// In the place of the lock's serial number, modulo their number, or in the one beside it.
    pub tallies: [Tally; TALLIES],
    /// The waits of each tally.
    pub waits: [Waits; TALLIES],
    /// What is recorded for each tally.
    pub pauses: [Pause; TALLIES],
}

/// How one thread waited for one lock.
#[repr(C)]
pub struct Waits {
    /// How often it found the lock taken, and waited for it.
    pub count: AtomicU64,
    /// How long.
    pub nanos: AtomicU64,
}

/// The time since a thread's last measured hold of a lock ended.
#[repr(C, align(32))]
pub struct Pause {
    /// Since when, or 0.
    pub since: AtomicU64,
    /// How long the thread had waited by then, for all locks.
    pub waited: AtomicU64,
    /// For how many acquisitions the hold stood.
    pub weight: AtomicU32,
    /// The [`Tally::sample_at`] that holds again afterwards.
    pub sample_at: AtomicU32,
}

/// The distributions of a lock. All of it is the lock holder's. Numbers are estimates: each
/// measured acquisition counts as many times as it stands for.
#[repr(C, align(64))]
pub struct Record {
    /// How often holds took how long, by [`class`].
    pub holds: [AtomicU32; CLASSES],
    /// How often a thread that had released the lock asked for it again after how long, the waits
    /// for other locks left out.
    pub thinks: [AtomicU32; CLASSES],
    /// How often a thread, the second index, held it after one, the first.
    pub follows: [[AtomicU32; RECORDED_THREADS]; RECORDED_THREADS],
}

/// The thread holds the lock, and the hold is not measured.
pub const HELD: u64 = 1;

/// What one thread did to one lock. It fills a cache line.
#[repr(C, align(64))]
pub struct Tally {
    /// The serial number of the lock, or 0.
    pub serial: AtomicU32,
    /// The index of its entry, plus 1.
    pub lock: AtomicU32,
    /// Its address.
    pub address: AtomicU64,
    /// How often the thread took it.
    pub locked: AtomicU64,
    /// How often another thread had held it before.
    pub changed: AtomicU64,
    /// How often that was in another locality domain.
    pub remote: AtomicU64,
    /// 0, or [`HELD`], or since when the thread holds it.
    pub since: AtomicU64,
    /// At which number of acquisitions, modulo 2^32, one that does not wait is measured.
    pub sample_at: AtomicU32,
    /// For how many acquisitions that one will stand.
    pub gap: AtomicU16,
    /// For how many the one stands that is measured now.
    pub weight: AtomicU16,
    /// By which use the lock was taken then.
    pub taken_by: AtomicU32,
    /// The stack by which the lock was first taken.
    pub first: AtomicU32,
}

/// A lock.
#[repr(C, align(64))]
pub struct Lock {
    /// Its address; with [`ENDED`] set one that has ended, or several that were first taken by the
    /// same callers; or [`FREED`].
    pub address: AtomicU64,
    /// A number that no lock before it had, or 0.
    pub serial: AtomicU32,
    /// The C library's kind, or [`SPIN`].
    pub kind: AtomicU32,
    // ---- the holder's ----
    /// Number of the thread that held it last, if there is no room for that in the lock itself.
    pub last: AtomicU32,
    /// The domain of that thread, likewise.
    pub domain: AtomicU32,
    /// For how many acquisitions the measured one stands, at present.
    pub gap: AtomicU32,
    /// The stack by which it was first taken.
    pub first: AtomicU32,
    /// The last use that was added; each knows the one before.
    pub uses: AtomicU32,
    /// Its record, plus 1; 0: it has none yet; above the number of records: it gets none.
    pub record: AtomicU32,
    /// Which threads took it, by number modulo [`THREAD_BITS`].
    pub threads: [AtomicU64; THREAD_BITS / 64],
    /// How often its holder took it again, as a recursive one.
    pub nested: AtomicU64,
    /// The longest measured hold.
    pub hold_max: AtomicU64,
    /// Measured holds, times what they stand for.
    pub held: AtomicU64,
    /// Their time, times the same.
    pub hold_ns: AtomicU64,
    /// How many were measured.
    pub samples: AtomicU64,
    /// How often holds took how long, times what they stand for.
    pub holds: [AtomicU64; BUCKETS],
    // ---- any thread's ----
    /// How often it was taken, besides what tallies say.
    pub locked: AtomicU64,
    /// How often its holder was another thread than the one before, likewise.
    pub changed: AtomicU64,
    /// How often that was in another locality domain, likewise.
    pub remote: AtomicU64,
    /// How often waits took how long: measured ones, times what they stand for.
    pub waits: [AtomicU64; BUCKETS],
    /// How often it was found taken, and waited for, besides what tallies say.
    pub contended: AtomicU64,
    /// How long, likewise.
    pub wait_ns: AtomicU64,
    /// How long at most.
    pub wait_max: AtomicU64,
    /// How many of these waits ran out of time.
    pub timeouts: AtomicU64,
    /// Calls that do not wait.
    pub tries: AtomicU64,
    /// How many of them were in vain.
    pub failed: AtomicU64,
    /// How many ended locks it stands for.
    pub ended: AtomicU64,
}

/// A call stack.
#[repr(C)]
pub struct Stack {
    /// Hash of the frames, not 0.
    pub hash: AtomicU64,
    /// Return addresses, innermost first, up to the first 0.
    pub frames: [AtomicU64; FRAMES],
    /// The ended lock that stands for further ones that were first taken here.
    pub ended: AtomicU32,
    /// How many locks have ended that were first taken here.
    pub ended_count: AtomicU32,
}

/// What one lock did by way of one call stack.
#[repr(C)]
pub struct Use {
    /// The lock in the upper, the stack in the lower 32 bits; or [`FREED`].
    pub key: AtomicU64,
    /// How often the lock was found taken: measured waits, times what they stand for.
    pub contended: AtomicU64,
    /// How long it was waited for, likewise.
    pub wait_ns: AtomicU64,
    /// How long at most, of the measured ones.
    pub wait_max: AtomicU64,
    /// Measured holds, times what they stand for.
    pub held: AtomicU64,
    /// Their time, times the same.
    pub hold_ns: AtomicU64,
    /// The use of the same lock that was added before.
    pub before: AtomicU32,
    /// Unused.
    pub unused: AtomicU32,
}

impl Use {
    /// The key of a use, of two indices plus 1.
    pub fn key_of(lock: u32, stack: u32) -> u64 {
        u64::from(lock) << 32 | u64::from(stack)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tally_is_a_cache_line() {
        assert_eq!(size_of::<Tally>(), 64);
        assert_eq!(core::mem::offset_of!(Owner, tallies) % 64, 0);
    }
}
