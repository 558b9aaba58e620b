//! The locks that are explored, by name: the library's source on the simulated machine, in the configurations that differ
//! in their queues, and broken ones.
//!
//! # Invariants
//!
//! 1. [`Explored::unlock`] is called by the thread that took the lock only, as that function demands.

mod condvar;
mod mutex;
mod playing;

use crate::random::Random;
use crate::report::Property;
use kinlock::config::{LocalLimit, Scan, Tuning};
use kinlock::events::Event;
use kinlock::platform::Platform;
use kinlock::raw::mutex::Queue;
use kinlock::raw::{Config, Fault, QueuedSpinLock};
use kinlock_sim::Sim;
use std::cell::Cell;

/// A kind of lock.
#[derive(Clone, Copy, Debug)]
pub struct Specimen {
    /// Its name on the command line and in reports.
    pub name: &'static str,
    /// What its defect violates, if it is broken on purpose.
    pub defect: Option<Property>,
    /// Places one in the schedule under way; whether its waiters may park.
    pub(super) place: fn(park: bool) -> &'static dyn Explored,
    /// The knobs of one schedule.
    pub(super) tuning: fn(&mut Random) -> Tuning,
    /// What all schedules together have to reach.
    pub(super) reach: &'static [Event],
    /// Whether its waiters are served in an order that can be judged by counting.
    pub(super) in_order: bool,
    /// Whether it has a condition variable, which is then what is explored.
    pub(super) meets: bool,
    /// After so many accesses a schedule counts as endless.
    pub(super) max_accesses: u64,
}

const MAX_ACCESSES: u64 = 1_000_000;

/// What a queued spinlock has to reach.
const QUEUE: &[Event] = &[
    Event::Queued,
    Event::TakeUnseen,
    Event::TakeUnseenFailed,
    Event::Steal,
    Event::Park,
    Event::Wake,
    Event::Timeout,
    Event::Reap,
    Event::SlotFallback,
];
/// What one that reorders its queue has to reach.
const REORDERED: &[Event] = &[
    Event::Queued,
    Event::Steal,
    Event::Park,
    Event::Wake,
    Event::Timeout,
    Event::Reap,
    Event::SlotFallback,
    Event::TakeUnseen,
    Event::TakeUnseenFailed,
    Event::SetAside,
    Event::Splice,
    Event::FlushByLimit,
];

/// What one has to reach whose limit leaves time to run out of kin.
const LINGERING: &[Event] = &[
    Event::Queued,
    Event::TakeUnseen,
    Event::TakeUnseenFailed,
    Event::Linger,
    Event::SetAside,
    Event::Splice,
    Event::FlushByLimit,
];

/// What is asked of a lock.
pub(super) trait Explored {
    fn lock(&self);
    fn try_lock(&self) -> bool;
    fn lock_until(&self, deadline: u64) -> bool;
    fn unlock(&self);
    /// Whether nobody holds it or waits for it, and nothing is left of those who did.
    fn is_at_rest(&self) -> bool;
    /// The condition variable beside it.
    fn meeting(&self) -> Option<&dyn Meeting> {
        None
    }
}

/// What is asked of a condition variable.
pub(super) trait Meeting {
    /// Releases the lock, waits and takes it again. `false`: the time is up, and no notification was taken.
    fn wait_until(&self, deadline: u64) -> bool;
    fn notify_one(&self);
    fn notify_all(&self);
}

/// All locks.
pub const ALL: &[Specimen] = &[
    Specimen {
        reach: QUEUE,
        ..sound("fifo", place::<true, SOUND>, |_| Tuning::DEFAULT)
    },
    Specimen {
        reach: LINGERING,
        ..sound("cna", place::<true, SOUND>, |_| reordering())
    },
    sound("cna-count", place::<true, SOUND>, counted),
    sound("cna-timed", place::<true, SOUND>, |random| {
        limited(LocalLimit::time(1 + random.below(3) as u8).ok())
    }),
    sound("cna-incremental", place::<true, SOUND>, |random| {
        let mut tuning = counted(random);
        tuning.scan = Scan::Incremental;
        tuning
    }),
    sound("cna-meddler", place::<true, MEDDLER>, counted),
    sound("cna-no-pending", place::<false, SOUND>, counted),
    broken(
        "busted-exclusion",
        place::<true, NO_EXCLUSION>,
        Property::Exclusion,
    ),
    broken(
        "busted-splice",
        place::<true, LOST_SPLICE>,
        Property::Completion,
    ),
    broken(
        "busted-wakeup",
        place::<true, LOST_WAKEUP>,
        Property::Completion,
    ),
    broken(
        "busted-sleeper",
        place::<true, SILENT_SLEEPER>,
        Property::Completion,
    ),
    broken(
        "busted-rouse",
        place::<true, ROUSED_LEAVES>,
        Property::Completion,
    ),
    broken(
        "busted-starvation",
        place::<true, STARVATION>,
        Property::Progress,
    ),
    mutex::SOUND,
    mutex::broken::<{ mutex::MISSING_WAKE }>("busted-mutex-wake", Property::Completion),
    mutex::broken::<{ mutex::LOST_WAKEUP }>("busted-mutex-sleep", Property::Completion),
    mutex::broken::<{ mutex::DOUBLE_HAND_OFF }>("busted-mutex-grant", Property::Exclusion),
    mutex::broken::<{ mutex::LEAKY_CANCEL }>("busted-mutex-cancel", Property::Completion),
    mutex::broken::<{ mutex::QUEUED_CLAIM }>("busted-mutex-claim", Property::Completion),
    condvar::SOUND,
    condvar::broken::<{ condvar::BLIND_SLEEP }>("busted-condvar-sleep"),
    condvar::broken::<{ condvar::LATE_COUNT }>("busted-condvar-count"),
    condvar::broken::<{ condvar::CARELESS_CLEAR }>("busted-condvar-clear"),
    condvar::broken::<{ condvar::BROKEN_CHAIN }>("busted-condvar-chain"),
    condvar::broken::<{ condvar::SWALLOWED_WAKE }>("busted-condvar-swallow"),
    condvar::broken::<{ condvar::LINGERING_SPINNER }>("busted-condvar-spinner"),
    condvar::broken::<{ condvar::STALE_FLAGS }>("busted-condvar-flags"),
];

pub(super) use mutex::{at_most, queue, turns};

const fn sound(
    name: &'static str,
    place: fn(bool) -> &'static dyn Explored,
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
        max_accesses: MAX_ACCESSES,
    }
}

const fn broken(
    name: &'static str,
    place: fn(bool) -> &'static dyn Explored,
    defect: Property,
) -> Specimen {
    Specimen {
        name,
        defect: Some(defect),
        place,
        tuning: counted,
        reach: &[],
        in_order: true,
        meets: false,
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
    static KNOBS: Cell<Knobs> = const {
        Cell::new(Knobs { tuning: Tuning::DEFAULT, turned: false, queue: mutex::USUAL_QUEUE, turns: None })
    };
}

/// The knobs of a schedule.
#[derive(Clone, Copy)]
pub(super) struct Knobs {
    pub(super) tuning: Tuning,
    /// Whether every wait finds other knobs.
    pub(super) turned: bool,
    /// How waiters for a mutex stand in line. The same for all of a schedule: waiters have to agree.
    pub(super) queue: Queue,
    /// In how many waits a mutex of which nothing is known is taken in turns, if at all.
    pub(super) turns: Option<u16>,
}

impl Knobs {
    /// Makes them those of the schedules that this host thread plays from now on.
    pub(super) fn set(self) {
        KNOBS.set(self);
    }

    fn now(self) -> Tuning {
        let mut tuning = self.tuning;
        if self.turned {
            let random = Sim::random();
            tuning.reorder = random & 3 != 0;
            tuning.scan = [Scan::Full, Scan::Incremental][(random >> 2) as usize & 1];
            tuning.stealing = random >> 5 & 1 == 0;
            if random >> 6 & 1 == 0 {
                tuning.limit = LocalLimit::time(1).unwrap_or_default();
            }
            tuning.quantum = mutex::quantum(random >> 7);
        }
        tuning
    }
}

const SOUND: u8 = 0;
const NO_EXCLUSION: u8 = 1;
const LOST_SPLICE: u8 = 2;
const LOST_WAKEUP: u8 = 3;
const STARVATION: u8 = 4;
const SILENT_SLEEPER: u8 = 5;
const MEDDLER: u8 = 6;
const ROUSED_LEAVES: u8 = 7;

#[derive(Clone, Copy, Debug)]
struct Kind<const PENDING: bool, const PARK: bool, const FAULT: u8>;

impl<const PENDING: bool, const PARK: bool, const FAULT: u8> Config for Kind<PENDING, PARK, FAULT> {
    const PENDING_BIT: bool = PENDING;
    const PARK: bool = PARK;
    const FAULT: Fault = match FAULT {
        NO_EXCLUSION => Fault::NoExclusion,
        LOST_SPLICE => Fault::LostSplice,
        LOST_WAKEUP => Fault::LostWakeup,
        STARVATION => Fault::Starvation,
        SILENT_SLEEPER => Fault::SilentSleeper,
        MEDDLER => Fault::Meddler,
        ROUSED_LEAVES => Fault::RousedLeaves,
        _ => Fault::None,
    };

    fn tuning() -> Tuning {
        KNOBS.get().now()
    }
}

fn place<const PENDING: bool, const FAULT: u8>(park: bool) -> &'static dyn Explored {
    if park {
        kinlock_sim::place(Lock::<Kind<PENDING, true, FAULT>>(QueuedSpinLock::new()))
    } else {
        kinlock_sim::place(Lock::<Kind<PENDING, false, FAULT>>(QueuedSpinLock::new()))
    }
}

struct Lock<C: Config>(QueuedSpinLock<Sim, C>);

impl<C: Config> Explored for Lock<C> {
    fn lock(&self) {
        self.0.lock();
    }

    fn try_lock(&self) -> bool {
        self.0.try_lock()
    }

    fn lock_until(&self, deadline: u64) -> bool {
        self.0.lock_until(deadline)
    }

    fn unlock(&self) {
        // SAFETY: invariant 1.
        unsafe { self.0.unlock() }
    }

    fn is_at_rest(&self) -> bool {
        // The fast path succeeds only if no bit of the word is set; what it takes is not given back.
        !self.0.is_contended() && self.0.try_lock()
    }
}

#[cfg(test)]
mod tests {
    use super::{ALL, Specimen};
    use crate::explore::by_name;
    use crate::locks::BUSTED;

    #[test]
    fn names_are_found() {
        assert_eq!(by_name::<Specimen>("cna").len(), 1);
        assert_eq!(by_name::<Specimen>(BUSTED).len(), 18);
        assert!(by_name::<Specimen>("none").is_empty());
        let mut names: Vec<_> = ALL.iter().map(|lock| lock.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ALL.len());
    }
}
