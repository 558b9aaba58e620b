//! The locks that are explored, by name: the library's source on the simulated machine, in the
//! configurations that differ in their queues.
//!
//! # Invariants
//!
//! 1. [`Explored::unlock`] is called by the thread that took the lock only, as that function
//!    demands.

mod condvar;
mod mutex;
mod once;
mod rwlock;

use crate::report::Property;
use crate::specimen::named;
use crate::test_lock::{Algorithm, ReadWrite};
use kinlock_core::config::{LocalLimit, Scan, Tuning};
use kinlock_core::events::Event;
use kinlock_core::platform::Platform;
use kinlock_core::raw::mutex::QueueKind;
use kinlock_core::raw::{LockConfig, QueuedSpinLock};
use kinlock_measure::random::Random;
use kinlock_sim::Sim;
use std::cell::Cell;

/// A kind of lock.
#[derive(Clone, Copy, Debug)]
pub struct Specimen {
    /// Its name on the command line and in reports.
    pub name: &'static str,
    /// What its defect violates, if it is broken on purpose.
    pub defect: Option<Property>,
    /// Places one in the current schedule; whether its waiters may park.
    pub(super) place: fn(park: bool) -> Explored,
    /// The knobs of one schedule.
    pub(super) tuning: fn(&mut Random) -> Tuning,
    /// Events that all schedules together have to reach.
    pub(super) reach: &'static [Event],
    /// Whether its waiters are served in an order that can be judged by counting.
    pub(super) in_order: bool,
    /// Whether it has a condition variable, which is then what is explored.
    pub(super) meets: bool,
    /// Whether it is a reader-writer lock.
    pub(super) reads: bool,
    /// Whether it runs functions once, which is then what is explored.
    pub(super) runs: bool,
    /// The number of accesses after which a schedule counts as endless.
    pub(super) max_accesses: u64,
}

const MAX_ACCESSES: u64 = 1_000_000;

/// For a queued spinlock.
const QUEUE: &[Event] = &[
    Event::Queued,
    Event::BlindTry,
    Event::BlindTryFailed,
    Event::Steal,
    Event::Park,
    Event::Wake,
    Event::Timeout,
    Event::Reap,
    Event::SlotFallback,
];
/// For one that reorders its queue.
const REORDERED: &[Event] = &[
    Event::Queued,
    Event::Steal,
    Event::Park,
    Event::Wake,
    Event::Timeout,
    Event::Reap,
    Event::SlotFallback,
    Event::BlindTry,
    Event::BlindTryFailed,
    Event::SetAside,
    Event::Splice,
    Event::FlushByLimit,
];
/// For one whose limit leaves time to run out of local waiters.
const LINGERING: &[Event] = &[
    Event::Queued,
    Event::BlindTry,
    Event::BlindTryFailed,
    Event::WaitForLocal,
    Event::SetAside,
    Event::Splice,
    Event::FlushByLimit,
];

/// A lock in a schedule.
#[derive(Clone, Copy)]
pub(super) struct Explored {
    pub(super) lock: &'static dyn Algorithm,
    /// The condition variable beside it.
    pub(super) meeting: Option<&'static dyn Meeting>,
    /// The same lock, if it can be taken for reading.
    pub(super) reading: Option<&'static dyn ReadWrite>,
    /// What runs functions once, beside it.
    pub(super) running: Option<&'static dyn Runs>,
}

impl Explored {
    pub(super) fn unlock(&self) {
        // SAFETY: invariant 1.
        unsafe { self.lock.unlock() }
    }

    /// Whether no thread holds it or waits for it, and nothing is left of those that did. The fast
    /// path succeeds only if no bit of the word is set; what it takes is not given back. Beside a
    /// condition variable a flag for sleepers may be left behind, because a thread that has slept
    /// owes it.
    pub(super) fn is_at_rest(&self) -> bool {
        (self.meeting.is_some() || !self.lock.is_contended()) && self.lock.try_lock()
    }
}

/// A condition variable with its lock.
pub(super) trait Meeting {
    /// Releases the lock, waits and takes it again. `false`: the time is up, and no notification
    /// was taken. The caller holds the lock.
    fn wait_until(&self, deadline: u64) -> bool;
    fn notify_one(&self);
    fn notify_all(&self);
}

/// Runs functions once, each with a number.
pub(super) trait Runs {
    /// Runs `function`, unless one with this number has returned. Waits for one that is running.
    fn call(&self, number: usize, function: &mut dyn FnMut());
}

/// All locks.
pub static ALL: &[Specimen] = &[
    Specimen {
        reach: QUEUE,
        ..sound("fifo", place::<true, Sim>, |_| Tuning::DEFAULT)
    },
    Specimen {
        reach: LINGERING,
        ..sound("cna", place::<true, Sim>, |_| reordering())
    },
    sound("cna-count", place::<true, Sim>, counted),
    sound("cna-timed", place::<true, Sim>, |random| {
        limited(LocalLimit::time(1 + random.below(3) as u8).ok())
    }),
    sound("cna-incremental", place::<true, Sim>, |random| {
        let mut tuning = counted(random);
        tuning.scan = Scan::Incremental;
        tuning
    }),
    sound("cna-no-pending", place::<false, Sim>, counted),
    mutex::SOUND,
    condvar::SOUND,
    rwlock::SOUND,
    once::SOUND,
];

named!(Specimen, "lock", ALL);

pub(super) use mutex::{at_most, is_joined, queue};

const fn sound(
    name: &'static str,
    place: fn(bool) -> Explored,
    tuning: fn(&mut Random) -> Tuning,
) -> Specimen {
    Specimen {
        name,
        defect: None,
        place,
        tuning,
        reach: REORDERED,
        in_order: true,
        meets: false,
        reads: false,
        runs: false,
        max_accesses: MAX_ACCESSES,
    }
}

fn reordering() -> Tuning {
    let mut tuning = Tuning::DEFAULT;
    tuning.reorder = true;
    tuning
}

fn limited(limit: Option<LocalLimit>) -> Tuning {
    let mut tuning = reordering();
    tuning.limit = limit.unwrap_or_default();
    tuning
}

/// A limit of a few local hand-offs, so that most schedules reach it.
fn counted(random: &mut Random) -> Tuning {
    limited(LocalLimit::count(random.below(4) as u8).ok())
}

thread_local! {
    /// The knobs of the schedule that this host thread plays.
    static KNOBS: Cell<Knobs> = const { Cell::new(Knobs::USUAL) };
}

/// The knobs of a schedule.
#[derive(Clone, Copy)]
pub(super) struct Knobs {
    pub(super) tuning: Tuning,
    /// Whether every wait finds other knobs.
    pub(super) change: bool,
    /// The queue of a mutex. The same throughout a schedule: waiters have to agree.
    pub(super) queue: QueueKind,
    /// Whether a mutex has lock and flags in one atomic.
    pub(super) joined: bool,
}

impl Knobs {
    const USUAL: Self = Knobs {
        tuning: Tuning::DEFAULT,
        change: false,
        queue: mutex::USUAL_QUEUE,
        joined: false,
    };

    /// Gives these knobs to the schedules that this host thread plays from now on.
    pub(super) fn set(self) {
        KNOBS.set(self);
    }

    fn now(self) -> Tuning {
        let mut tuning = self.tuning;
        if self.change {
            let random = Sim::random();
            tuning.reorder = random & 3 != 0;
            tuning.scan = [Scan::Full, Scan::Incremental][(random >> 2) as usize & 1];
            tuning.stealing = random >> 5 & 1 == 0;
            tuning.slice_extension = random >> 4 & 1 == 0;
            if random >> 6 & 1 == 0 {
                tuning.limit = LocalLimit::time(1).unwrap_or_default();
            }
            tuning.quantum = mutex::quantum(random >> 7);
        }
        tuning
    }
}

#[derive(Clone, Copy, Debug)]
struct Kind<const PENDING: bool, const PARK: bool>;

impl<const PENDING: bool, const PARK: bool> LockConfig for Kind<PENDING, PARK> {
    const PENDING_BIT: bool = PENDING;
    const PARK: bool = PARK;

    fn tuning() -> Tuning {
        KNOBS.get().now()
    }
}

fn place<const PENDING: bool, P: Platform>(park: bool) -> Explored {
    fn place<P: Platform, C: LockConfig>() -> Explored {
        Explored {
            lock: kinlock_sim::place(QueuedSpinLock::<P, C>::new()),
            meeting: None,
            reading: None,
            running: None,
        }
    }
    if park {
        place::<P, Kind<PENDING, true>>()
    } else {
        place::<P, Kind<PENDING, false>>()
    }
}
