//! Entries of threads, and what each thread did to each lock.

use crate::{NO_LOCKS, TALLIES};
use core::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64};

/// How many locks a thread can hold at a time so that each is known.
pub const HELDS: usize = 16;

/// A thread. Two threads share no cache line, nor a pair of lines that is fetched together.
#[repr(C, align(128))]
pub struct Thread {
    /// The thread's number in this process, 1, 2, ... in the order of first locks; 0: free.
    pub token: AtomicU32,
    /// The kernel's number of the thread.
    pub id: AtomicU32,
    /// What the thread is called, up to the first zero.
    pub name: [AtomicU8; 16],
    /// How often the thread took a lock, without what its tallies say.
    pub locked: AtomicU64,
    /// How often it waited for one.
    pub contended: AtomicU64,
    /// How long it waited, in ns.
    pub wait_ns: AtomicU64,
    /// Its longest wait, in ns.
    pub wait_max: AtomicU64,
    /// The address in the entry of what it waits for now, or 0.
    pub waits_for: AtomicU64,
    /// Since when it waits for that.
    pub waits_since: AtomicU64,
    /// How often it waited for what is no lock.
    pub others: AtomicU64,
    /// For how long, in ns, by kind: in the order of [`NO_LOCKS`].
    pub other_ns: [AtomicU64; NO_LOCKS.len()],
    /// When it took its first lock.
    pub begin: AtomicU64,
    /// When it ended; 0: it has not.
    pub end: AtomicU64,
}

/// The tallies of one thread.
#[repr(C, align(128))]
pub struct Owner {
    /// The number of the thread; 0: free.
    pub token: AtomicU32,
    /// The tally of a lock is at the lock's serial number modulo [`TALLIES`], or at that place with
    /// the lowest bit inverted.
    pub tallies: [Tally; TALLIES],
    /// The waits of each tally.
    pub waits: [Waits; TALLIES],
    /// The think time that runs for each tally.
    pub pauses: [Pause; TALLIES],
    /// How many of `held` are used.
    pub held_count: AtomicU32,
    /// Not 0: the thread has held more locks than `held` has room for.
    pub held_lost: AtomicU32,
    /// Locks that the thread holds: reader-writer locks, and with lock order all locks.
    pub held: [Held; HELDS],
}

/// A lock that a thread holds.
#[repr(C)]
pub struct Held {
    /// The address of the lock.
    pub address: AtomicU64,
    /// The lock's serial number; 0: it has no entry.
    pub serial: AtomicU32,
    /// The stack by which it was taken, as an index plus 1; 0: it was not looked up.
    pub stack: AtomicU32,
    /// [`READS`], or 0.
    pub mode: AtomicU32,
}

/// In [`Held::mode`]: the thread holds the lock for reading.
pub const READS: u32 = 1;

/// How one thread waited for one lock.
#[repr(C)]
pub struct Waits {
    /// How often it waited.
    pub count: AtomicU64,
    /// How long, in ns.
    pub nanos: AtomicU64,
}

/// The think time of a thread, since its last measured hold of a lock ended.
#[repr(C, align(32))]
pub struct Pause {
    /// When that hold ended; 0: no think time runs.
    pub since: AtomicU64,
    /// How long the thread had waited for all locks by then, in ns.
    pub waited: AtomicU64,
    /// The weight of that hold.
    pub weight: AtomicU32,
    /// The [`Tally::sample_at`] to be restored when the think time ends.
    pub sample_at: AtomicU32,
}

/// In [`Tally::since`]: the thread holds the lock, and the hold is not measured.
pub const HELD: u64 = 1;

/// What one thread did to one lock. It fills one cache line.
#[repr(C, align(64))]
pub struct Tally {
    /// The serial number of the lock; 0: the tally is free.
    pub serial: AtomicU32,
    /// The index of the lock's entry, plus 1.
    pub lock: AtomicU32,
    /// The address of the lock.
    pub address: AtomicU64,
    /// How often the thread took the lock.
    pub locked: AtomicU64,
    /// How many of these were hand-offs: the last holder was another thread.
    pub changed: AtomicU64,
    /// How many of the hand-offs came from another locality domain.
    pub remote: AtomicU64,
    /// Since when the thread holds the lock; [`HELD`]: that was not measured; 0: it does not hold
    /// it.
    pub since: AtomicU64,
    /// The number of the acquisition that is measured next if it does not wait, modulo 2^32.
    pub sample_at: AtomicU32,
    /// The weight that this acquisition will have.
    pub gap: AtomicU16,
    /// The weight of the hold that is measured now.
    pub weight: AtomicU16,
    /// The use by which the lock was taken for that hold, as an index plus 1.
    pub taken_by: AtomicU32,
    /// The stack by which the lock was first taken, as an index plus 1.
    pub first: AtomicU32,
}
