//! Entries of misuses, and of the orders in which locks are taken.

use core::sync::atomic::{AtomicU32, AtomicU64};

/// How many misuses the table has room for.
pub const MISUSES: usize = 512;
/// How many orders of two locks the table has room for.
pub const ORDERS: usize = 16384;
/// How many further locks are noted that were held each time when two locks were taken.
pub const GATES: usize = 4;
/// How many threads are noted that have taken two locks one after the other: as many as there are
/// orders in the longest circle that is searched for, so that even then each order of a circle can
/// have a thread of its own.
pub const MAKERS: usize = 8;

/// A [misuse](Misuse::kind): a lock was released by another thread than the one that holds it.
pub const FOREIGN: u32 = 1;
/// A lock was released that nobody holds.
pub const NOT_HELD: u32 = 2;
/// A lock was destroyed while a thread holds it.
pub const DESTROYED_HELD: u32 = 3;
/// A lock or condition variable was destroyed while a thread waits for it.
pub const DESTROYED_AWAITED: u32 = 4;
/// A thread waits for a lock that it holds.
pub const RELOCKED: u32 = 5;
/// A thread takes a reader-writer lock for reading that it holds for reading, though a writer may
/// come in between: the lock's attribute has readers wait behind writers.
pub const READ_AGAIN: u32 = 6;

/// A misuse of a lock, at one place of the program.
#[repr(C)]
pub struct Misuse {
    /// What it is, such as [`FOREIGN`]. It is stored after all other fields; 0: they are not
    /// complete.
    pub kind: AtomicU32,
    /// The kind of the lock, as [`Lock::kind`](crate::Lock::kind), or [`CONDVAR`](crate::CONDVAR).
    pub lock_kind: AtomicU32,
    /// The address of the lock.
    pub address: AtomicU64,
    /// How often this was seen.
    pub count: AtomicU64,
    /// The stack of the call, as an index plus 1.
    pub stack: AtomicU32,
    /// The stack by which the holder had taken the lock, as an index plus 1; 0: it is not known.
    pub taken: AtomicU32,
    /// The stack by which the lock was first taken, as an index plus 1; 0: it is not known.
    pub first: AtomicU32,
    /// The kernel's number of the thread that made the call the first time.
    pub thread: AtomicU32,
    /// The kernel's number of the thread that held the lock then; 0: nobody, or it is not known.
    pub holder: AtomicU32,
}

/// A thread asked for one lock while it held another one.
#[repr(C)]
pub struct Order {
    /// The serial number of the lock that was held in the upper 32 bits, that of the other lock in
    /// the lower; 0: free.
    pub key: AtomicU64,
    /// The address of the lock that was held.
    pub from_address: AtomicU64,
    /// The address of the other lock.
    pub to_address: AtomicU64,
    /// The kind of the lock that was held, as [`Lock::kind`](crate::Lock::kind).
    pub from_kind: AtomicU32,
    /// The kind of the other lock.
    pub to_kind: AtomicU32,
    /// The stack by which the first lock was taken, as an index plus 1; 0: it is not known.
    pub from_stack: AtomicU32,
    /// The stack by which the second lock was asked for.
    pub to_stack: AtomicU32,
    /// The stack by which the first lock was taken for the first time.
    pub from_first: AtomicU32,
    /// The kernel's number of the thread that made the order first.
    pub id: AtomicU32,
    /// The threads that made the order, the earliest first.
    pub makers: [Maker; MAKERS],
}

/// How one thread asked for one lock while it held another one. The last maker of an order stands
/// for all threads that found no place, too.
#[repr(C)]
pub struct Maker {
    /// The number of the thread; 0: free.
    pub thread: AtomicU32,
    /// How the locks were taken, a bit for each way: the bit's number is 2 if the first lock was
    /// held for reading, plus 1 if the second was asked for reading.
    pub modes: AtomicU32,
    /// Serial numbers of locks that the thread also held, each time and not for reading.
    pub gates: [AtomicU32; GATES],
}
