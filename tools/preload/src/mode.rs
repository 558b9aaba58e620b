//! What the environment asks for. It is read by the first call that the library intercepts, which
//! may come before any constructor. Nothing here allocates.

use crate::environment::{self, COUNTS_PATH, REPORT_PATH, complain, keep_path, variable};
use crate::layout;
use crate::report::memory::{self, Begun};
use core::sync::atomic::{AtomicU32, Ordering::*};

/// The first C library with condition variables as they are since. In older ones all is passed.
const OLDEST: (u32, u32) = (2, 25);

/// The mode of the process; 0 is the usual one: our mutex, nothing counted.
pub(crate) static MODE: AtomicU32 = AtomicU32::new(UNDECIDED);
/// No call has been intercepted yet.
const UNDECIDED: u32 = 1 << 31;
const COUNTS: u32 = 1 << 30;
const SPINS: u32 = 1 << 29;
const PASSES: u32 = 1 << 28;
/// Alone: our mutex, and a report.
pub(crate) const REPORTS: u32 = 1 << 27;

/// The same for reader-writer locks; 0: ours, and nothing is counted.
pub(crate) static RWLOCKS: AtomicU32 = AtomicU32::new(UNDECIDED);

/// A mode that has been decided.
#[derive(Clone, Copy)]
pub(crate) struct Mode(u32);

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

    /// Whether each acquisition is looked at.
    pub(crate) fn watches(self) -> bool {
        self.0 & (COUNTS | REPORTS) != 0
    }

    /// Whether mutexes are the queued spinlock.
    pub(crate) fn spins(self) -> bool {
        self.0 & SPINS != 0
    }

    /// Which locks the program runs on: 0 our mutex, 1 our spinlock, 2 the C library's.
    pub(crate) fn named_lock(self) -> u32 {
        match self {
            mode if mode.passes() => 2,
            mode => mode.spins().into(),
        }
    }

    /// Whether mutexes are our mutex.
    pub(crate) fn is_usual(self) -> bool {
        self.0 & (SPINS | PASSES) == 0
    }

    /// Whether all objects are the C library's.
    pub(crate) fn passes(self) -> bool {
        self.0 & PASSES != 0
    }
}

#[inline]
pub(crate) fn mode() -> Mode {
    match MODE.load(Relaxed) {
        UNDECIDED => decide(),
        mode => Mode(mode),
    }
}

/// The mode of reader-writer locks: whether they pass, and whether calls are counted.
pub(crate) fn of_rwlocks() -> Mode {
    match RWLOCKS.load(Relaxed) {
        UNDECIDED => {
            mode();
            Mode(RWLOCKS.load(Relaxed))
        }
        mode => Mode(mode),
    }
}

/// Whether a call has been intercepted.
pub(crate) fn is_decided() -> bool {
    MODE.load(Relaxed) != UNDECIDED
}

#[cold]
fn decide() -> Mode {
    let mut mode = match variable(b"KINLOCK_LOCK") {
        // What the objects of older ones look like is not known here.
        _ if environment::c_library() < OLDEST => PASSES,
        None | Some(b"kinlock-mutex") => 0,
        Some(b"kinlock-spin") => SPINS,
        Some(b"pthread") => PASSES,
        Some(_) => {
            complain(
                1,
                b"kinlock: ignoring KINLOCK_LOCK: expected kinlock-mutex, kinlock-spin or \
                  pthread\n",
            );
            0
        }
    };
    let mut rwlocks = match variable(b"KINLOCK_RWLOCK") {
        _ if environment::c_library() < OLDEST => PASSES,
        None => mode & PASSES,
        Some(b"ours") => 0,
        Some(b"glibc") => PASSES,
        Some(_) => {
            complain(
                8,
                b"kinlock: ignoring KINLOCK_RWLOCK: expected ours or glibc\n",
            );
            mode & PASSES
        }
    };
    if mode & PASSES == 0 && !layout::knows_mutexes_and_condvars() {
        complain(
            16,
            b"kinlock: this C library's mutexes or condition variables are not as expected: they \
              stay its own\n",
        );
        mode = PASSES;
    }
    if rwlocks & PASSES == 0 && !layout::knows_rwlocks() {
        complain(
            32,
            b"kinlock: this C library's reader-writer locks are not as expected: they stay its \
             own\n",
        );
        rwlocks = PASSES;
    }
    if let Some(path) = variable(b"KINLOCK_COUNTS") {
        if keep_path(&COUNTS_PATH, path) {
            mode |= COUNTS;
            rwlocks |= COUNTS;
        } else {
            complain(
                2,
                b"kinlock: ignoring KINLOCK_COUNTS: the path is too long\n",
            );
        }
    }
    if let Some(path) = variable(b"KINLOCK_REPORT") {
        if !keep_path(&REPORT_PATH, path) {
            complain(
                4,
                b"kinlock: ignoring KINLOCK_REPORT: the path is too long\n",
            );
        } else if let Begun::Done = memory::begin(Mode(mode).named_lock()) {
            mode |= REPORTS;
            rwlocks |= REPORTS;
        }
    }
    RWLOCKS.store(rwlocks, Relaxed);
    // All threads that decide decide the same.
    MODE.store(mode, Relaxed);
    Mode(mode)
}
