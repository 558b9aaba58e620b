//! Which locks a thread reads, as far as debug builds remember: for finding a plain read behind a
//! writer that waits for the same thread. Release builds have nothing here.
//!
//! A fixed table of words. Each word mixes a lock's address, the thread's number and the lock's
//! count of writes, and counts the reads. The first two select the place. A thread that finds its
//! own mix there reads the lock already.
//!
//! Two reads may select the same place. The table then remembers the later one, and the other goes
//! unnoticed. The reverse error is rare: a read that another thread has released, and a leaked one,
//! are forgotten at the next write. Nothing is said of waits that end within [`GRACE`], such as
//! behind a writer that gives up.
//!
//! All accesses are relaxed, as in the table of held mutexes, for the same reasons.

use super::Kind;
use core::cell::Cell;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use core::time::Duration;
use kinlock_core::platform::NEVER;
use kinlock_linux::native::deadline;

const PLACES: usize = 4096;
const COUNT: u64 = 0xff;

/// How long a thread waits for itself before it says so.
const GRACE: Duration = Duration::from_secs(1);

/// 0: not read.
static READ: [AtomicU64; PLACES] = [const { AtomicU64::new(0) }; PLACES];
/// How often locks were taken for writing. Several locks may share a count.
static WRITES: [AtomicU64; PLACES] = [const { AtomicU64::new(0) }; PLACES];

/// An acquisition under way.
pub(crate) struct Acquiring<'a, L> {
    lock: &'a L,
    kind: Kind,
    upgrade: bool,
    /// A plain read by a thread that reads the lock already.
    again: bool,
    waited: bool,
}

impl<'a, L> Acquiring<'a, L> {
    pub(crate) fn begin(lock: &'a L, kind: Kind) -> Self {
        Acquiring {
            lock,
            kind,
            upgrade: false,
            again: kind == Kind::Shared && reads(lock),
            waited: false,
        }
    }

    pub(crate) fn upgrade(lock: &'a L) -> Self {
        Acquiring {
            upgrade: true,
            ..Self::begin(lock, Kind::Exclusive)
        }
    }

    /// Until when the thread waits next. Panics if a plain read has waited for its own thread.
    #[track_caller]
    pub(crate) fn next_limit(&mut self) -> u64 {
        assert!(
            !self.waited,
            "this thread reads a kinlock lock that it reads already, behind a writer that waits \
             for it: it would wait for ever; read_recursive does not wait"
        );
        if !self.again {
            return NEVER;
        }
        self.waited = true;
        deadline(GRACE)
    }

    pub(crate) fn end(self) {
        if self.upgrade {
            changed(self.lock, self.kind);
        } else {
            acquired(self.lock, self.kind);
        }
    }
}

pub(crate) fn tried<L>(lock: &L, kind: Kind, taken: bool) -> bool {
    if taken {
        acquired(lock, kind);
    }
    taken
}

pub(crate) fn acquired<L>(lock: &L, kind: Kind) {
    if kind == Kind::Exclusive {
        writes(lock).fetch_add(1, Relaxed);
        return;
    }
    let (place, mix) = entry(lock);
    let word = place.load(Relaxed);
    if word & !COUNT != mix {
        place.store(mix | 1, Relaxed);
    } else if word & COUNT < COUNT {
        place.store(word + 1, Relaxed);
    }
}

pub(crate) fn changed<L>(lock: &L, kind: Kind) {
    match kind {
        // A reader of either sort stays one.
        _ if reads(lock) && kind != Kind::Exclusive => {}
        kind => acquired(lock, kind),
    }
}

/// A read that is not in the table may be another thread's.
pub(crate) fn releasing<L>(lock: &L) {
    let (place, mix) = entry(lock);
    let word = place.load(Relaxed);
    if word & !COUNT == mix {
        let left = word - 1;
        place.store(if left & COUNT == 0 { 0 } else { left }, Relaxed);
    }
}

fn reads<L>(lock: &L) -> bool {
    let (place, mix) = entry(lock);
    place.load(Relaxed) & !COUNT == mix
}

const ODD: u64 = 0x9e37_79b9_7f4a_7c15;

fn hash<L>(lock: &L) -> u64 {
    (core::ptr::from_ref(lock).addr() as u64).wrapping_mul(ODD)
}

fn writes<L>(lock: &L) -> &'static AtomicU64 {
    &WRITES[(hash(lock) >> 52) as usize % PLACES]
}

fn entry<L>(lock: &L) -> (&'static AtomicU64, u64) {
    let reader = (hash(lock) ^ number().rotate_left(32)).wrapping_mul(ODD);
    let mix = reader ^ writes(lock).load(Relaxed).wrapping_mul(ODD);
    // No count is 0 unless the whole word is.
    (
        &READ[(reader >> 52) as usize % PLACES],
        mix & !COUNT | (COUNT + 1),
    )
}

/// The calling thread's number, which no other thread ever has.
pub(crate) fn number() -> u64 {
    std::thread_local! {
        // No destructor: accessible for as long as the thread runs.
        static NUMBER: Cell<u64> = const { Cell::new(0) };
    }
    static LAST: AtomicU64 = AtomicU64::new(0);
    NUMBER.with(|number| {
        if number.get() == 0 {
            let fresh = LAST.fetch_add(1, Relaxed) + 1;
            // A signal handler may have set a number in between. Its locks are released again,
            // so that number may be lost.
            number.set(fresh);
        }
        number.get()
    })
}
