//! The table of the contention report: `kinlock-recorder` fills it, the command reads it.
//!
//! This crate is the only definition of the table's layout. Each process of a report has one table,
//! a file in memory that the process maps from its first lock on. So the table is there however the
//! process ends, and can be read at any time. All parts have a fixed size: nothing is allocated.
//!
//! # Version
//!
//! [`MAGIC`] is the version of the layout, and changes with it. A [table](Header::magic) and the
//! [page that all processes share](Shared::magic) begin with it, and both sides check it: the
//! command ignores a table with another version, and the library does not use a shared page with
//! another version. That the layout is unchanged is checked when this crate is compiled, by the
//! sizes and places of its parts.
//!
//! # Entries
//!
//! An entry of zeros is free. Locks, stacks and uses are found by way of an index with open
//! addressing, and their entries are filled one after the other. So the used part of each of these
//! arrays is its beginning. If there is no free entry, that is counted as dropped. Fields that
//! refer to an entry hold its index plus 1, so that 0 is none.
//!
//! # Memory
//!
//! The file has the size of the table, but no memory at first. Before a [page](PAGE) is first
//! touched, the library asks the kernel for its memory, and then sets the page's bit in
//! [`Header::present`]. If there is no memory, the entry counts as dropped. A page without its bit
//! must not be touched, not even by a read: the kernel would have to provide memory, and if the
//! file system is full it ends the process by a signal instead. The command reads the file with
//! `pread`, which returns zeros for pages that are not there.
//!
//! # Tallies
//!
//! What changes with each acquisition is in a [`Tally`] of the thread for the lock, so that no
//! cache line but the lock's own moves with the lock. A thread has a few tallies. When one has to
//! make room, or its thread ends, its numbers are added to the entries of the lock and the thread.
//! The numbers of a lock are therefore those in its entry plus those in the tallies that belong
//! [to it](Table::lock_of).
//!
//! # Weights
//!
//! Not every acquisition is measured. A measured one has a weight: the number of acquisitions that
//! it stands for. A *weighted* number counts each measured one that many times, so it is an
//! estimate of the number over all acquisitions.
//!
//! # Units, and who writes
//!
//! Times are nanoseconds of the monotonic clock (`CLOCK_MONOTONIC`): points in time since the boot
//! of the machine, or durations. Any thread of the process may change a field, by atomic
//! operations, except for these:
//!
//! - The thread that makes the table writes `magic`, `begin`, `process`, `parent`, `locks`,
//!   `domains`, `is_recorded`, `is_ordered` and `window` of the [`Header`]; the one that ends the
//!   process writes `end`.
//! - The thread that adds an entry fills it: a [`Module`] (`end` last), a [`Place`], a [`Misuse`]
//!   (`kind` last; not its `count`), an [`Order`] (not `from_stack` and the makers), the key and
//!   the frames of a [`Stack`], the keys of a [`Use`], and address, number, kind and place of a
//!   [`Lock`].
//! - The thread to which an entry belongs changes it by plain loads and stores: [`Thread`],
//!   [`Owner`], [`Held`], [`Tally`] (the thread that unlocks also stores 0 in `since`), [`Waits`]
//!   and [`Pause`]. The same holds for a [`Maker`], but any thread may change the last one of an
//!   order.
//! - The holder of the lock changes its [`Record`] by plain loads and stores, since the lock orders
//!   the writers, and of its [`Lock`] `last`, `domain`, `gap`, `first`, `record`, `nested`,
//!   `samples`, `held`, `holds`, `hold_ns` and `hold_max`. A [reading side](READING) has several
//!   holders, which change it by atomic operations.
//! - The command writes `magic` and `is_over` of [`Shared`], and of a [`Switch`] the bit
//!   [`REPORTS`], `window`, and the 0 in `errno`.

#![no_std]

mod beside;
mod classes;
mod misuse;
pub mod now;
mod thread;
pub mod unwind;

pub use beside::{REPORTS, SHARED, SWITCH, Shared, Switch};
pub use classes::{bucket, class, class_range, end_of, waits_per_sample};
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};
pub use misuse::*;
pub use thread::{HELD, HELDS, Held, Owner, Pause, READS, Tally, Thread, Waits};

/// The version of the layout. It has to change with the layout, and with the meaning of a field.
pub const MAGIC: u64 = u64::from_le_bytes(*b"kinloc13");

/// How many locks the table has room for, living and ended ones.
pub const LOCKS: usize = 16384;
/// How many call stacks the table has room for.
pub const STACKS: usize = 8192;
/// How many combinations of a lock and a call stack the table has room for.
pub const USES: usize = 32768;
/// How many threads the table has room for.
pub const THREADS: usize = 1024;
/// How many pages a table may have: [`Header::present`] has a bit for each.
pub const PAGES: usize = 16384;
/// The unit in which the table gets memory, in bytes.
pub const PAGE: usize = 4096;
/// How many places in the source the table has room for.
pub const PLACES: usize = 2048;
/// How many threads can have tallies at the same time.
pub const OWNERS: usize = 512;
/// How many tallies a thread has.
pub const TALLIES: usize = 64;
/// How many shared objects the table has room for.
pub const MODULES: usize = 256;
/// How many locks can be recorded. The first half of the records goes to the first locks, the
/// second half to locks that are measured often.
pub const RECORDS: usize = 512;
/// How many classes a recorded distribution has; see [`class`].
pub const CLASSES: usize = 256;
/// A record tells threads apart by their number modulo this.
pub const RECORDED_THREADS: usize = 32;
/// How many return addresses of a call stack are kept, from the innermost one on.
pub const FRAMES: usize = 16;
/// How many classes a histogram has; see [`bucket`].
pub const BUCKETS: usize = 64;
/// A lock tells threads apart by their number modulo this.
pub const THREAD_BITS: usize = 256;

/// Set in the address of a lock that has ended: it was destroyed, or its memory was initialised as
/// another lock.
pub const ENDED: u64 = 1;
/// In the place of an address or a key: the entry was in use, and is free again.
pub const FREED: u64 = 2;
/// The two lowest bits in the place of an address: the entry is for locks that have no entry of
/// their own, since the table is nearly full and nobody was seen to wait for them. The other bits
/// are the stack by which they were first taken.
pub const OTHERS: u64 = 3;

/// Set in the address of an entry that is the reading side of a reader-writer lock: what threads
/// did that asked for the lock for reading. No object has such an address.
pub const READING: u64 = 1 << 63;
/// In the place of an address: the entry is for all waits for the ends of threads.
pub const JOINS: u64 = 1 << 62;

/// Set in the kind of a lock that is a spinlock. The other bits are the C library's kind of a
/// mutex.
pub const SPIN: u32 = 1 << 16;
/// Set in the kind of a lock that is a reader-writer lock. Such a lock has two entries: its writing
/// side, and its [reading side](READING).
pub const RWLOCK: u32 = 1 << 17;
/// Set in the kind of a condition variable.
pub const CONDVAR: u32 = 1 << 18;
/// Set in the kind of a barrier.
pub const BARRIER: u32 = 1 << 19;
/// Set in the kind of a semaphore.
pub const SEMAPHORE: u32 = 1 << 20;
/// Set in the kind of the entry for all waits for the ends of threads.
pub const JOIN: u32 = 1 << 21;
/// Kinds of objects that are no locks, though threads wait for them, in the order of
/// [`Thread::other_ns`].
pub const NO_LOCKS: [u32; 4] = [CONDVAR, BARRIER, SEMAPHORE, JOIN];
/// Set in the kind of a lock: its next acquisition looks up its callers, for its order.
pub const OUTER: u32 = 1 << 24;

/// The whole file.
#[repr(C)]
pub struct Table {
    /// What concerns the whole table.
    pub header: Header,
    /// Shared objects in which there are locks or callers, in the order in which they were found.
    pub modules: [Module; MODULES],
    /// Threads. A thread's entry is at its number modulo [`THREADS`], or soon after.
    pub threads: [Thread; THREADS],
    /// Indices of locks plus 1, by the hash of the address.
    pub lock_index: [AtomicU32; 2 * LOCKS],
    /// Indices of stacks plus 1, by the hash of the frames.
    pub stack_index: [AtomicU32; 2 * STACKS],
    /// Indices of uses plus 1, by the hash of lock and stack.
    pub use_index: [AtomicU32; 2 * USES],
    /// Locks, in the order in which they were first taken.
    pub locks: [Lock; LOCKS],
    /// Call stacks, in the order in which they were found.
    pub stacks: [Stack; STACKS],
    /// Uses, in the order in which they were found.
    pub uses: [Use; USES],
    /// The tallies of threads. A thread's tallies are at its number modulo [`OWNERS`], or after.
    pub owners: [Owner; OWNERS],
    /// Records, in the order in which the locks were first measured.
    pub records: [Record; RECORDS],
    /// Misuses, in the order in which they were first seen.
    pub misuses: [Misuse; MISUSES],
    /// Indices of orders plus 1, by the hash of the locks.
    pub order_index: [AtomicU32; 2 * ORDERS],
    /// Orders, as they were first seen.
    pub orders: [Order; ORDERS],
    /// Indices of places plus 1, by the hash of their addresses.
    pub place_index: [AtomicU32; 2 * PLACES],
    /// Places in the source, as they were first seen.
    pub places: [Place; PLACES],
}

impl Table {
    /// The index of the lock to which a tally belongs. If that lock has ended and its entry is
    /// another lock's by now: the ended lock to whose numbers its own were added. `None`: the tally
    /// is free.
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

/// Sums over threads that have ended and whose entries were given to other threads.
#[repr(C)]
pub struct EndedThreads {
    /// How many threads these are.
    pub count: AtomicU64,
    /// How often they took a lock.
    pub locked: AtomicU64,
    /// How often they waited for one.
    pub contended: AtomicU64,
    /// How long they waited, in ns.
    pub wait_ns: AtomicU64,
    /// Their longest wait, in ns.
    pub wait_max: AtomicU64,
    /// How long they lived from their first lock on, in ns.
    pub life_ns: AtomicU64,
    /// How often they waited for what is no lock.
    pub others: AtomicU64,
    /// For how long, in ns, by kind: in the order of [`NO_LOCKS`].
    pub other_ns: [AtomicU64; NO_LOCKS.len()],
}

/// The beginning of the file.
#[repr(C)]
pub struct Header {
    /// [`MAGIC`], once the header is complete.
    pub magic: AtomicU64,
    /// When the table was made: at the first lock of the process.
    pub begin: AtomicU64,
    /// When the process ended by itself; 0: it has not.
    pub end: AtomicU64,
    /// The number of the process.
    pub process: AtomicU32,
    /// Which locks the table is about: 0 our mutex, 1 our spinlock, 2 the C library's, in place of
    /// pthread locks; 3 those that the program uses itself, by the crate `kinlock`.
    pub locks: AtomicU32,
    /// How many locality domains the machine has.
    pub domains: AtomicU32,
    /// How many modules there are. It may exceed [`MODULES`].
    pub modules: AtomicU32,
    /// How many threads have taken a lock.
    pub threads: AtomicU32,
    /// How many entries of locks have ever been used. It may exceed [`LOCKS`], and likewise below.
    pub locks_used: AtomicU32,
    /// How many entries of stacks have ever been used.
    pub stacks_used: AtomicU32,
    /// How many entries of uses have ever been used.
    pub uses_used: AtomicU32,
    /// How many of the entries of locks are free again.
    pub locks_freed: AtomicU32,
    /// How many of the entries of stacks are free again.
    pub stacks_freed: AtomicU32,
    /// How many of the entries of uses are free again.
    pub uses_freed: AtomicU32,
    /// The number of the process that started this one.
    pub parent: AtomicU32,
    /// How often the kernel had no memory for a page.
    pub no_memory: AtomicU32,
    /// Sums over threads that have ended and whose entries other threads use now.
    pub ended_threads: EndedThreads,
    /// Which pages of the table have memory.
    pub present: [AtomicU64; PAGES / 64],
    /// How many locks have ended.
    pub ended: AtomicU32,
    /// Whether distributions are recorded: 1, or 0.
    pub is_recorded: AtomicU32,
    /// How many locks have asked for a record while there were some left. It may exceed
    /// [`RECORDS`].
    pub records: AtomicU32,
    /// What the program is called, up to the first zero.
    pub program: [AtomicU8; 64],
    /// Acquisitions of locks for which there was no entry.
    pub dropped_locks: AtomicU64,
    /// Look-ups of call stacks for which there was no entry.
    pub dropped_stacks: AtomicU64,
    /// Look-ups of uses for which there was no entry.
    pub dropped_uses: AtomicU64,
    /// Acquisitions by threads for which there was no entry.
    pub dropped_threads: AtomicU64,
    /// How many entries of misuses are used. It may exceed [`MISUSES`].
    pub misuses: AtomicU32,
    /// Whether the order of locks is noted: 1, or 0.
    pub is_ordered: AtomicU32,
    /// How many entries of orders have ever been used. It may exceed [`ORDERS`].
    pub orders_used: AtomicU32,
    /// How many of the entries of orders are free again.
    pub orders_freed: AtomicU32,
    /// Misuses for which there was no entry.
    pub dropped_misuses: AtomicU64,
    /// How often an order was seen for which there was no entry.
    pub dropped_orders: AtomicU64,
    /// Acquisitions by threads that held more locks already than [`Owner::held`] has room for.
    pub dropped_held: AtomicU64,
    /// Waits for what is no lock, for which there was no entry.
    pub dropped_waits: AtomicU64,
    /// The [window](Switch) that is measured; 0: the process does not stand by.
    pub window: AtomicU32,
    /// How many entries of places have ever been used. It may exceed [`PLACES`].
    pub places_used: AtomicU32,
    /// How many of the entries of places are free again.
    pub places_freed: AtomicU32,
}

/// A shared object.
#[repr(C)]
pub struct Module {
    /// Its first address.
    pub start: AtomicU64,
    /// The address after its last. It is stored after all other fields; 0: they are not complete.
    pub end: AtomicU64,
    /// What is added to an address in its file to get an address in memory.
    pub bias: AtomicU64,
    /// The first 32 bytes of its build ID.
    pub build_id: [AtomicU8; 32],
    /// How many bytes of the build ID are stored; 0: none was found.
    pub build_id_length: AtomicU32,
    /// How many bytes of the path are stored.
    pub path_length: AtomicU32,
    /// The first 512 bytes of its path.
    pub path: [AtomicU8; 512],
}

/// The recorded distributions of one lock.
#[repr(C, align(64))]
pub struct Record {
    /// Durations of holds, weighted, by [`class`].
    pub holds: [AtomicU32; CLASSES],
    /// Think times, weighted, by [`class`]: from a thread's unlock until it asks for the lock
    /// again, without its waits for other locks.
    pub thinks: [AtomicU32; CLASSES],
    /// How often a thread (the second index) held the lock right after another (the first index),
    /// weighted.
    pub follows: [[AtomicU32; RECORDED_THREADS]; RECORDED_THREADS],
}

/// Waits that found a reader-writer lock held in one of its two ways.
#[repr(C)]
pub struct Behind {
    /// How many.
    pub count: AtomicU64,
    /// For how long, in ns.
    pub nanos: AtomicU64,
}

/// A lock, one side of a reader-writer lock, or what else threads wait for.
///
/// Of what is [no lock](NO_LOCKS), `locked` counts the calls that may wait and have returned.
#[repr(C, align(64))]
pub struct Lock {
    /// The address of the lock, with [`READING`] set if this is its reading side. With [`ENDED`]
    /// set: it has ended, or the entry is for several ended locks that were first taken by the same
    /// callers. With [`OTHERS`] set: the entry is for several locks. [`FREED`]: the entry is free
    /// again. [`JOINS`]: all waits for the ends of threads.
    pub address: AtomicU64,
    /// A number that no lock before it had. 0: the entry is free.
    pub serial: AtomicU32,
    /// The C library's kind of the mutex, or [`SPIN`].
    pub kind: AtomicU32,
    // ---- written by the holder ----
    /// The token of the last holder, if the lock object has no room for it.
    pub last: AtomicU32,
    /// The locality domain of that thread, if the lock object has no room for it.
    pub domain: AtomicU32,
    /// The weight that measured acquisitions without a wait have at present.
    pub gap: AtomicU32,
    /// The stack by which the lock was first taken, as an index plus 1.
    pub first: AtomicU32,
    /// The last use that was added, as an index plus 1. [`Use::before`] links it to the one before.
    pub uses: AtomicU32,
    /// The lock's record, as an index plus 1; 0: it has none yet; above [`RECORDS`]: it gets none.
    pub record: AtomicU32,
    /// Which threads have taken the lock, by number modulo [`THREAD_BITS`].
    pub threads: [AtomicU64; THREAD_BITS / 64],
    /// How often its holder took it again, as a recursive mutex.
    pub nested: AtomicU64,
    /// The longest measured hold, in ns.
    pub hold_max: AtomicU64,
    /// Holds, weighted.
    pub held: AtomicU64,
    /// The time of all holds, weighted, in ns.
    pub hold_ns: AtomicU64,
    /// How many holds were measured.
    pub samples: AtomicU64,
    /// Durations of holds, weighted, by [`bucket`].
    pub holds: [AtomicU64; BUCKETS],
    // ---- written by any thread ----
    /// How often the lock was taken, without what tallies say.
    pub locked: AtomicU64,
    /// How many of these were hand-offs: the last holder was another thread.
    pub changed: AtomicU64,
    /// How many of the hand-offs came from another locality domain.
    pub remote: AtomicU64,
    /// Durations of waits, weighted, by [`bucket`].
    pub waits: [AtomicU64; BUCKETS],
    /// How often a thread waited for the lock, without what tallies say.
    pub contended: AtomicU64,
    /// How long threads waited, without what tallies say, in ns.
    pub wait_ns: AtomicU64,
    /// The longest wait, in ns.
    pub wait_max: AtomicU64,
    /// How many of the waits ended since their time limit expired.
    pub timeouts: AtomicU64,
    /// Calls that do not wait.
    pub tries: AtomicU64,
    /// How many of these calls found the lock taken.
    pub failed: AtomicU64,
    /// How many ended locks the entry is for, or how many [`OTHERS`].
    pub ended: AtomicU64,
    /// For one side of a reader-writer lock: waits that found it held by readers, and by a writer.
    pub behind: [Behind; 2],
    /// The place in the source where the program took the lock when it got its entry, as an index
    /// plus 1; 0: the program does not tell.
    pub place: AtomicU32,
}

/// A place in the source of a program that tells where it takes locks.
#[repr(C)]
pub struct Place {
    /// The address of the compiler's description of it; 0: free.
    pub address: AtomicU64,
    /// The line.
    pub line: AtomicU32,
    /// The last bytes of the path of the file, up to the first zero.
    pub path: [AtomicU8; 116],
}

/// A call stack.
#[repr(C)]
pub struct Stack {
    /// The hash of the frames; 0: free.
    pub hash: AtomicU64,
    /// Return addresses, innermost first, up to the first 0.
    pub frames: [AtomicU64; FRAMES],
    /// The ended lock to which further ended locks are added that were first taken here, as an
    /// index plus 1.
    pub ended: AtomicU32,
    /// How many locks have ended that were first taken here.
    pub ended_count: AtomicU32,
}

/// The use of one lock by one call stack.
#[repr(C)]
pub struct Use {
    /// The index of the lock plus 1 in the upper 32 bits, that of the stack plus 1 in the lower; 0:
    /// free; [`FREED`]: free again.
    pub key: AtomicU64,
    /// Waits for the lock, weighted.
    pub contended: AtomicU64,
    /// The time of these waits, weighted, in ns.
    pub wait_ns: AtomicU64,
    /// The longest measured wait, in ns.
    pub wait_max: AtomicU64,
    /// Holds, weighted.
    pub held: AtomicU64,
    /// The time of these holds, weighted, in ns.
    pub hold_ns: AtomicU64,
    /// Calls that do not wait and found the lock taken, weighted.
    pub failed: AtomicU64,
    /// The use of the same lock that was added before this one, as an index plus 1.
    pub before: AtomicU32,
}

impl Use {
    /// The key of a use: of the index of a lock plus 1, and that of a stack plus 1.
    pub fn key_of(lock: u32, stack: u32) -> u64 {
        u64::from(lock) << 32 | u64::from(stack)
    }
}

// The layout of version 13: the version in `MAGIC` has to change with it.
const _: () = {
    use core::mem::offset_of;
    assert!(MAGIC == u64::from_le_bytes(*b"kinloc13"));
    assert!(size_of::<Header>() == 2392 && offset_of!(Header, program) == 2228);
    assert!(size_of::<Module>() == 576 && size_of::<Thread>() == 128);
    assert!(size_of::<Lock>() == 1280 && offset_of!(Lock, locked) == 624);
    assert!(size_of::<Place>() == 128);
    assert!(size_of::<Stack>() == 144 && size_of::<Use>() == 64);
    assert!(size_of::<Owner>() == 7680 && offset_of!(Owner, waits) == 4160);
    // A tally is a cache line.
    assert!(size_of::<Tally>() == 64 && offset_of!(Owner, tallies) % 64 == 0);
    assert!(size_of::<Record>() == 6144 && size_of::<Shared>() == 24);
    assert!(size_of::<Misuse>() == 48 && size_of::<Order>() == 240);
    assert!(size_of::<Table>() == 36432256 && offset_of!(Table, locks) == 739_712);
    // The bits of `present` cover the table, and the shared page fits on one page.
    assert!(size_of::<Table>() <= PAGES * PAGE && size_of::<Shared>() <= PAGE);
};
