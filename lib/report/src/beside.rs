//! The pages next to the tables: one that all processes of a report share, and one of each process
//! that stands by.

use core::sync::atomic::{AtomicU32, AtomicU64};

/// A page that all processes of a report share. It is a file next to the tables' files, made by the
/// command before it starts the program.
#[repr(C)]
pub struct Shared {
    /// [`MAGIC`](crate::MAGIC).
    pub magic: AtomicU64,
    /// How many processes could not make a table.
    pub without_table: AtomicU32,
    /// Why the last of them could not, as an `errno`.
    pub errno: AtomicU32,
    /// Not 0: the command has written its report, and no more tables are wanted.
    pub is_over: AtomicU32,
    /// How many processes ended by themselves and had taken no lock.
    pub idle: AtomicU32,
}

/// The shared page's file is named like the tables' files, with this in place of the process.
pub const SHARED: &str = ".shared";

/// Set in the [mode](Switch::mode) of a process while it fills its table.
pub const REPORTS: u32 = 1 << 27;

/// The page by which a process that stands by is told to fill its table; it is also a file.
///
/// The library tests the mode with each operation of a lock, and it lies in this page. So the
/// command switches measuring on and off by changing a bit of the file, and no thread has to look
/// for that. The children of a fork share the page of their parent.
///
/// The time between switching on and off is a *window*. The first operation in a window clears the
/// table, or makes it, and stores the number of the window [there](crate::Header::window).
#[repr(C)]
pub struct Switch {
    /// [`MAGIC`](crate::MAGIC).
    pub magic: AtomicU64,
    /// The mode of everything but reader-writer locks. Its bits are the library's, except for
    /// [`REPORTS`], which the command sets and clears.
    pub mode: AtomicU32,
    /// The mode of reader-writer locks, likewise.
    pub rwlock_mode: AtomicU32,
    /// The number of the last window, which the command has increased before it set the bits.
    pub window: AtomicU32,
    /// Why a process had no table in the last window, as an `errno`; 0: no process lacked one.
    pub errno: AtomicU32,
}

/// The file of a switch is named like the tables' files, with this before the process.
pub const SWITCH: &str = ".switch";
