//! A lock of the program, as the report knows it.

use core::panic::Location;
use core::sync::atomic::AtomicU32;
use kinlock_report::{Lock, READING, READS, RWLOCK};

/// What the report notes in the lock object itself, whose cache line the holder has anyway. All of
/// it is 0 at first, and only the holder accesses it.
#[derive(Clone, Copy)]
pub struct Marks<'a> {
    /// The lock's serial number.
    pub serial: &'a AtomicU32,
    /// The token of the last thread that held the lock.
    pub last: &'a AtomicU32,
    /// The locality domain of that thread, if the machine has several.
    pub domain: &'a AtomicU32,
}

/// A lock of the program, as the report knows it.
#[derive(Clone, Copy)]
pub struct Object<'a> {
    /// The address in the lock's entry, and so with [`READING`] for the reading side of a
    /// reader-writer lock.
    pub address: u64,
    /// The marks in the lock object. If it has no room for them, they are in the table's entry.
    pub marks: Option<Marks<'a>>,
    /// The C library's word for the kind of a mutex, or another kind of object, such as
    /// [`kinlock_report::SPIN`].
    pub kind: u32,
    /// Where the program takes it, if that is known.
    pub place: Option<&'static Location<'static>>,
    /// Whether the calling thread holds it already, and takes it again since it is recursive.
    pub is_nested: bool,
    /// Whether the thread that holds it may let another one release it. If not, that is misuse.
    pub travels: bool,
}

impl Object<'_> {
    /// An object without marks of its own.
    #[inline]
    pub fn new(address: u64, kind: u32) -> Self {
        Object {
            address,
            marks: None,
            kind,
            place: None,
            is_nested: false,
            travels: false,
        }
    }

    /// One side of the reader-writer lock at this address.
    #[inline]
    pub fn side(address: u64, is_reading: bool) -> Self {
        let side = if is_reading { READING } else { 0 };
        Self::new(address | side, RWLOCK)
    }

    /// Whether it is the reading side of a reader-writer lock: several threads can hold it at a
    /// time.
    #[inline]
    pub fn is_reading(&self) -> bool {
        self.address & READING != 0
    }

    /// The address of the lock of which this is a side, and how the side is held: [`READS`], or 0.
    #[inline]
    pub(super) fn lock_and_mode(&self) -> (u64, u32) {
        let mode = if self.is_reading() { READS } else { 0 };
        (self.address & !READING, mode)
    }
}

/// The marks in the entry of a lock that has none of its own.
pub(super) fn marks_in(lock: &Lock) -> Marks<'_> {
    Marks {
        serial: &lock.serial,
        last: &lock.last,
        domain: &lock.domain,
    }
}
