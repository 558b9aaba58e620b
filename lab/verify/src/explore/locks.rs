//! The locks that are explored, by name: the library's source on the simulated machine, in the
//! configurations that differ in their queues.

mod mutex;
mod rwlock;

use crate::monitors::Pair;
use crate::play::Plays;
use crate::report::Property;
use crate::specimen::named;
use crate::test_lock::{Set, Target};
use kinlock_core::config::{LocalLimit, Tuning};
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
    /// Places such a lock in the current schedule. `park`: whether its waiters may park.
    pub(super) place: fn(park: bool) -> &'static dyn Target,
    /// The knobs of one schedule.
    pub(super) tuning: fn(&mut Random) -> Tuning,
    /// Events that all schedules together have to reach.
    pub(super) reach: &'static [&'static [Event]],
    /// Whether its waiters are served in an order that can be judged by counting.
    pub(super) in_order: bool,
    /// What threads do with the lock.
    pub(super) plays: Plays,
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
/// Also, for one that reorders its queue.
const REORDERING: &[Event] = &[Event::SetAside, Event::Splice, Event::FlushByLimit];
/// For one whose limit leaves time to run out of local waiters.
const LINGERING: &[Event] = &[
    Event::Queued,
    Event::BlindTry,
    Event::BlindTryFailed,
    Event::WaitForLocal,
];

/// All locks.
pub static ALL: &[Specimen] = &[
    Specimen {
        reach: &[QUEUE],
        ..sound("fifo", place::<true, Sim>, |_| Tuning::DEFAULT)
    },
    Specimen {
        reach: &[LINGERING, REORDERING],
        ..sound("cna", place::<true, Sim>, |_| reordering())
    },
    sound("cna-count", place::<true, Sim>, counted),
    sound("cna-timed", place::<true, Sim>, |random| {
        limited(LocalLimit::time(1 + random.below(3) as u8).ok())
    }),
    sound("cna-no-pending", place::<false, Sim>, counted),
    mutex::SOUND,
    CONDVAR,
    rwlock::SOUND,
    ONCE,
];

named!(Specimen, "lock", ALL);

pub(super) use mutex::{at_most, is_joined, queue};

const fn sound(
    name: &'static str,
    place: fn(bool) -> &'static dyn Target,
    tuning: fn(&mut Random) -> Tuning,
) -> Specimen {
    Specimen {
        name,
        defect: None,
        place,
        tuning,
        reach: &[QUEUE, REORDERING],
        in_order: true,
        plays: Plays::Lock,
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
    /// The queue of a mutex. It is the same throughout a schedule, because waiters have to agree.
    pub(super) queue: QueueKind,
    /// Whether a mutex has its lock and its flags in one atomic.
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

fn place<const PENDING: bool, P: Platform>(park: bool) -> &'static dyn Target {
    match park {
        true => kinlock_sim::place(QueuedSpinLock::<P, Kind<PENDING, true>>::new()),
        false => kinlock_sim::place(QueuedSpinLock::<P, Kind<PENDING, false>>::new()),
    }
}

/// The condition variable, with a mutex whose queue is drawn at random.
const CONDVAR: Specimen = Specimen {
    name: "condvar",
    place: place_condvar::<Sim>,
    reach: &[&[Event::Park, Event::Wake, Event::HandoffRequest]],
    plays: Plays::Tokens,
    ..mutex::SOUND
};

fn place_condvar<P: Platform>(park: bool) -> &'static dyn Target {
    match park {
        true => kinlock_sim::place(Pair::<P, mutex::Kind<true>>::default()),
        false => kinlock_sim::place(Pair::<P, mutex::Kind<false>>::default()),
    }
}

/// `Once`, and a mutex that handlers take.
const ONCE: Specimen = Specimen {
    name: "once",
    place: place_once::<Sim>,
    reach: &[&[Event::Park, Event::Wake]],
    plays: Plays::Functions,
    max_accesses: MAX_ACCESSES,
    ..mutex::SOUND
};

fn place_once<P: Platform>(park: bool) -> &'static dyn Target {
    match park {
        true => kinlock_sim::place(Set::<P, mutex::Kind<true>>::default()),
        false => kinlock_sim::place(Set::<P, mutex::Kind<false>>::default()),
    }
}
