//! What threads wait for and hold at this moment, for a command that looks at the process.
//!
//! This is no file: it lies in the memory of each process with the recorder, whether or not there
//! is a report, and the command reads it from there. A [note](NOTE) of the ELF file that contains
//! it says where it is. Only waits that do not end at once write to it, and what is held is written
//! only where the mode [asks](HOLDS) for that.

use core::sync::atomic::{AtomicU32, AtomicU64};

/// The name of the note, with its zero. Its content begins with [`MAGIC`](super::MAGIC). Eight
/// bytes follow: the distance from themselves to a [`Now`]. The note's type is 1.
pub const NOTE: &[u8; 8] = b"kinlock\0";

/// How many facts there is room for.
pub const FACTS: usize = 4096;

/// Set in the [mode](super::Switch::mode) of a process that notes who holds locks which do not tell
/// that themselves: reader-writer locks held for reading, and locks of the crate `kinlock`.
pub const HOLDS: u32 = 1 << 25;

/// Set in [`Fact::what`]: the thread holds the object. Otherwise it waits for it.
pub const IS_HELD: u64 = 1;
/// In the place of [`Fact::what`]: the fact is being written.
pub const BUSY: u64 = 2;
/// Set in [`Fact::kind`]: the wait ends by itself, at its time limit.
pub const LIMITED: u32 = 1 << 31;
/// Set in [`Fact::kind`] of a hold or a wait for reading: the thread is the upgradable reader, or
/// waits to become that. Of a wait for writing: it is the upgradable reader.
pub const UPGRADABLE: u32 = 1 << 30;
/// Set in [`Fact::kind`] of a wait for reading: it passes threads that wait to write.
pub const PASSES: u32 = 1 << 29;
/// Set in [`Fact::kind`] of a wait: another thread than the one that took the lock may hold it.
pub const SENDABLE: u32 = 1 << 28;

/// What threads wait for and hold now.
#[repr(C)]
pub struct Now {
    /// Whether the locks are objects of the C library's types, of which most tell who holds them.
    pub are_posix: AtomicU32,
    /// Where the C library keeps the kernel's number of a thread: the distance from the address
    /// that `pthread_self` returns in that thread; 0: it is not known.
    pub number_at: AtomicU32,
    /// How many facts found no room.
    pub dropped: AtomicU64,
    /// Facts. The number of a thread chooses the block of entries in which its facts lie.
    pub facts: [Fact; FACTS],
}

/// What one thread waits for, or holds. It fills one cache line.
#[repr(C, align(64))]
pub struct Fact {
    /// The address of the lock, as in [`Lock::address`](super::Lock::address), or of what is no
    /// lock; of a wait for the end of a thread, that thread as `pthread_join` names it. With
    /// [`IS_HELD`] set: it is held. It is stored after all other fields; 0: there is no fact.
    pub what: AtomicU64,
    /// What it is, as [`Lock::kind`](super::Lock::kind), perhaps with [`LIMITED`], [`UPGRADABLE`],
    /// [`PASSES`] and [`SENDABLE`]. A mutex of the C library's type says its kind itself.
    pub kind: AtomicU32,
    /// The kernel's number of the thread.
    pub thread: AtomicU32,
    /// Since when the thread waits, in ns of the monotonic clock.
    pub since: AtomicU64,
    /// The registers with which its callers can be found: program counter, stack pointer, frame
    /// pointer.
    pub registers: [AtomicU64; 3],
}

impl Now {
    /// A table without facts.
    #[allow(clippy::new_without_default)]
    pub const fn new() -> Self {
        Now {
            are_posix: AtomicU32::new(0),
            number_at: AtomicU32::new(0),
            dropped: AtomicU64::new(0),
            facts: [const {
                Fact {
                    what: AtomicU64::new(0),
                    kind: AtomicU32::new(0),
                    thread: AtomicU32::new(0),
                    since: AtomicU64::new(0),
                    registers: [const { AtomicU64::new(0) }; 3],
                }
            }; FACTS],
        }
    }
}

// The layout of the version in `MAGIC`.
const _: () = assert!(size_of::<Fact>() == 64 && size_of::<Now>() == 64 + 64 * FACTS);
