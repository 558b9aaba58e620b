//! Which locks the process runs on, and whether they are traced.
//!
//! The mode is chosen once, by the first call that the library intercepts
//! ([`choice`](crate::dispatch::choice)). After that only one bit changes: in a process that
//! [stands by](kinlock_report::Switch), the command sets and clears [`REPORTS`]. The mode is one
//! word, so that a fast path recognises the usual case by a single load.
//!
//! No lock's state depends on that bit. So a lock may be taken while it is set, and released after
//! it was cleared, and the other way round.

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use kinlock_recorder::mode::SwitchPage;

/// The page with both modes of the process. In either, 0 is the usual mode: our locks, untraced.
pub(crate) static PAGE_OF_MODES: SwitchPage = SwitchPage::new(UNDECIDED);

/// The mode of the process for everything but reader-writer locks.
pub(crate) static MODE: &AtomicU32 = &PAGE_OF_MODES.switch.mode;
/// The mode of reader-writer locks.
pub(crate) static RWLOCK_MODE: &AtomicU32 = &PAGE_OF_MODES.switch.rwlock_mode;

/// No call has been intercepted yet.
pub(crate) const UNDECIDED: u32 = 1 << 31;
/// Calls are counted.
pub(crate) const COUNTS: u32 = 1 << 30;
/// Mutexes are the queued spinlock.
pub(crate) const SPINS: u32 = 1 << 29;
/// All objects are delegated to the C library.
pub(crate) const DELEGATES: u32 = 1 << 28;
/// There is a contention report. With no other bit set: a report on our mutex, which has a fast
/// path of its own.
pub(crate) use kinlock_report::REPORTS;
/// The process notes who holds reader-writer locks for reading.
pub(crate) use kinlock_report::now::HOLDS;
/// The report notes the order of locks, too.
pub(crate) const ORDERS: u32 = 1 << 26;

/// A mode that has been chosen.
#[derive(Clone, Copy)]
pub(crate) struct Mode(pub(crate) u32);

impl Mode {
    /// Whether calls are counted.
    pub(crate) fn counts(self) -> bool {
        self.0 & COUNTS != 0
    }

    /// Whether there is a contention report.
    pub(crate) fn reports(self) -> bool {
        self.0 & REPORTS != 0
    }

    /// The same mode, without counts.
    pub(crate) fn uncounted(self) -> Self {
        Mode(self.0 & !COUNTS)
    }

    /// Whether the process notes who reads.
    pub(crate) fn notes_holds(self) -> bool {
        self.0 & HOLDS != 0
    }

    /// Whether each acquisition is counted or reported.
    pub(crate) fn traces(self) -> bool {
        self.0 & (COUNTS | REPORTS) != 0
    }

    /// Whether mutexes are the queued spinlock.
    pub(crate) fn spins(self) -> bool {
        self.0 & SPINS != 0
    }

    /// The number by which the report and the counts name the program's locks: 0 our mutex, 1 our
    /// spinlock, 2 the C library's.
    pub(crate) fn lock_number(self) -> u32 {
        match self {
            mode if mode.delegates() => 2,
            mode => mode.spins().into(),
        }
    }

    /// Whether mutexes are our mutex.
    pub(crate) fn blocks(self) -> bool {
        self.0 & (SPINS | DELEGATES) == 0
    }

    /// Whether all objects are the C library's.
    pub(crate) fn delegates(self) -> bool {
        self.0 & DELEGATES != 0
    }
}

/// The mode, if a call has been intercepted and so has chosen one.
#[inline]
pub(crate) fn chosen() -> Option<Mode> {
    of(MODE)
}

/// The same for reader-writer locks.
#[inline]
pub(crate) fn chosen_for_rwlocks() -> Option<Mode> {
    of(RWLOCK_MODE)
}

#[inline]
fn of(word: &AtomicU32) -> Option<Mode> {
    match word.load(Relaxed) {
        UNDECIDED => None,
        mode => Some(Mode(mode)),
    }
}
