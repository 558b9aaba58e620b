//! Which thread holds which mutex, and which locks a thread reads, as far as debug builds remember:
//! for finding a thread that waits for itself. Release builds have nothing here.
//!
//! Two fixed tables of words. Each word mixes a lock's address with a thread's number. A thread
//! that finds its own mix there holds the mutex, or reads the lock, already.
//!
//! * *Mutexes.* The address selects the place. Two locks may select the same place. The table then
//!   remembers the later holder of a mutex, and forgets it when a reader-writer lock there is
//!   released: relocking the other mutex goes unnoticed. The reverse error needs a leaked guard:
//!   its word stays until the holder of another mutex, in the same memory, has written its own. Any
//!   other word is gone before its mutex is free, since whichever thread releases the mutex clears
//!   the place.
//! * *Readers.* Address and number select the place. A word also mixes in the lock's count of
//!   writes, and counts the reads. If two reads select the same place, the later one is remembered.
//!   The reverse error is rare: a read that another thread has released, and a leaked one, are
//!   forgotten at the next write. Waits that end within [`GRACE`], such as behind a writer that
//!   gives up, are not reported.
//!
//! All accesses are relaxed: the tables order nothing and hide no data race from a race detector.
//! They neither allocate nor wait, and may be used in signal handlers. In the child of a fork the
//! forking thread keeps its number and what it holds.
//!
//! This module is not part of builds with the feature `send_guard`, since there another thread may
//! release a lock, so that a thread may rightly wait for a lock that it has taken. Nor is it part
//! of builds with `deadlock_detection`, which finds such waits itself.

use super::Kind;
use core::cell::Cell;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use core::time::Duration;
use kinlock_core::platform::NEVER;
use kinlock_linux::native::deadline;

const PLACES: usize = 4096;
const COUNT: u64 = 0xff;

/// How long a thread waits for itself before it panics.
const GRACE: Duration = Duration::from_secs(1);

/// 0: not held.
static HELD: [AtomicU64; PLACES] = [const { AtomicU64::new(0) }; PLACES];
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

    /// The moment until which the thread waits next. Panics if a plain read has waited for its own
    /// thread.
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

fn acquired<L>(lock: &L, kind: Kind) {
    match kind {
        Kind::Mutex => {
            let (place, mix) = held(lock);
            place.store(mix, Relaxed);
        }
        Kind::Exclusive => _ = writes(lock).fetch_add(1, Relaxed),
        Kind::Shared | Kind::Upgradable => read(lock),
    }
}

fn read<L>(lock: &L) {
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
        // A plain or upgradable reader stays a reader.
        _ if reads(lock) && kind != Kind::Exclusive => {}
        kind => acquired(lock, kind),
    }
}

/// A read that is not in the table may be another thread's. The word that this clears may be
/// another thread's, which has left the release to this one, or another mutex's, whose relocking
/// then goes unnoticed.
pub(crate) fn releasing<L>(lock: &L) {
    held(lock).0.store(0, Relaxed);
    let (place, mix) = entry(lock);
    let word = place.load(Relaxed);
    if word & !COUNT == mix {
        let left = word - 1;
        place.store(if left & COUNT == 0 { 0 } else { left }, Relaxed);
    }
}

/// Panics if the calling thread holds this mutex, which is held.
#[track_caller]
pub(crate) fn forbid_relock<L>(mutex: &L) {
    let (place, mix) = held(mutex);
    assert!(
        place.load(Relaxed) != mix,
        "this thread locks a kinlock mutex that it holds already: it would wait for ever"
    );
}

fn reads<L>(lock: &L) -> bool {
    let (place, mix) = entry(lock);
    place.load(Relaxed) & !COUNT == mix
}

const ODD: u64 = 0x9e37_79b9_7f4a_7c15;

fn hash<L>(lock: &L) -> u64 {
    (core::ptr::from_ref(lock).addr() as u64).wrapping_mul(ODD)
}

fn held<L>(mutex: &L) -> (&'static AtomicU64, u64) {
    let hash = hash(mutex);
    let mix = hash ^ number().wrapping_mul(ODD).rotate_left(32);
    // Never 0, which means not held.
    (&HELD[(hash >> 52) as usize % PLACES], mix | 1)
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

/// The calling thread's number, which no other thread ever has. Not the number of
/// [`thread_identity`](kinlock_linux::native::thread_identity): an uncontended lock makes no system
/// call, even in debug builds.
fn number() -> u64 {
    std::thread_local! {
        // No destructor: accessible for as long as the thread runs.
        static NUMBER: Cell<u64> = const { Cell::new(0) };
    }
    static LAST: AtomicU64 = AtomicU64::new(0);
    if NUMBER.get() == 0 {
        // A signal handler may have set a number in between. Its locks are released again, so that
        // number may be lost.
        NUMBER.set(LAST.fetch_add(1, Relaxed) + 1);
    }
    NUMBER.get()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::RawMutex;
    use lock_api::RawMutex as _;

    #[test]
    fn a_thread_may_wait_for_what_another_thread_has_released() {
        let mutex = RawMutex::new();
        mutex.lock();
        std::thread::scope(|s| {
            s.spawn(|| {
                // SAFETY: the holder waits for this thread, and leaves the release to it.
                unsafe { mutex.unlock() };
                // Acts as a thread that has taken the lock and has not noted it yet.
                assert!(mutex.0.try_lock());
            });
        });
        forbid_relock(&mutex.0);
    }
}
