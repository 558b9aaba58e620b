//! The mutex among the locks that are explored.
//!
//! # Invariants
//!
//! 1. [`Explored::unlock`] is called by the thread that took the lock only, as that function demands.

use super::{Explored, KNOBS, MAX_ACCESSES, Specimen};
use crate::random::Random;
use crate::report::Property;
use kinlock_core::config::{Quantum, Tuning};
use kinlock_core::events::Event;
use kinlock_core::raw::mutex::{MutexConfig, MutexFault, Queue, QueuedMutex};
use kinlock_core::raw::osq::PredecessorCpu;
use kinlock_sim::Sim;

/// The mutex with a queue drawn by lot for each schedule.
pub(super) const SOUND: Specimen = Specimen {
    name: "mutex",
    defect: None,
    place: place::<NO_FAULT>,
    tuning,
    reach: &[
        Event::SlowPath,
        Event::Queued,
        Event::Unqueue,
        Event::Turn,
        Event::Claim,
        Event::Grant,
        Event::Park,
        Event::Wake,
        Event::Timeout,
        Event::SlotFallback,
    ],
    // Whoever runs may take a free lock: what is bounded is the time that a waiter waits.
    in_order: false,
    meets: false,
    // Whoever leaves the queue looks at the lock again and again until a neighbour, who may be preempted for long, has linked itself.
    max_accesses: 20 * MAX_ACCESSES,
};

pub(super) const MISSING_WAKE: u8 = 1;
pub(super) const LOST_WAKEUP: u8 = 2;
pub(super) const DOUBLE_HAND_OFF: u8 = 3;
pub(super) const LEAKY_CANCEL: u8 = 4;
pub(super) const QUEUED_CLAIM: u8 = 5;
const NO_FAULT: u8 = 0;

pub(super) const USUAL_QUEUE: Queue = Queue::Osq(PredecessorCpu::Cached);

pub(super) const fn broken<const FAULT: u8>(name: &'static str, defect: Property) -> Specimen {
    Specimen {
        name,
        defect: Some(defect),
        place: place::<FAULT>,
        max_accesses: MAX_ACCESSES,
        ..SOUND
    }
}

/// Mostly the usual one.
pub(in crate::explore) fn queue(random: &mut Random) -> Queue {
    match random.below(6) {
        0 => Queue::Unqueued,
        1 => Queue::Osq(PredecessorCpu::SharedLine),
        2 => Queue::Osq(PredecessorCpu::OwnLine),
        _ => USUAL_QUEUE,
    }
}

/// In how many waits a mutex of which nothing is known is taken in turns, if at all, before it is looked at: schedules are short, and waiters learn little.
pub(in crate::explore) fn turns(random: &mut Random) -> Option<u16> {
    [None, Some(0), Some(1), Some(7)][random.below(4) as usize]
}

/// From none to the longest.
pub(super) fn quantum(lot: u32) -> Quantum {
    let micros = [0, 1, 5, 30, 100, 1000][lot as usize % 6];
    Quantum::from_micros(micros).unwrap_or_default()
}

/// `quantum`, or so many microseconds if that is less.
pub(in crate::explore) fn at_most(quantum: Quantum, micros: u16) -> Quantum {
    Quantum::from_micros(quantum.micros().min(micros)).unwrap_or_default()
}

fn tuning(random: &mut Random) -> Tuning {
    let mut tuning = Tuning::DEFAULT;
    tuning.quantum = quantum(random.next() as u32);
    tuning
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Kind<const PARK: bool, const FAULT: u8>;

impl<const PARK: bool, const FAULT: u8> MutexConfig for Kind<PARK, FAULT> {
    const PARK: bool = PARK;
    const FAULT: MutexFault = match FAULT {
        MISSING_WAKE => MutexFault::MissingWake,
        LOST_WAKEUP => MutexFault::LostWakeup,
        DOUBLE_HAND_OFF => MutexFault::DoubleHandOff,
        LEAKY_CANCEL => MutexFault::LeakyCancel,
        QUEUED_CLAIM => MutexFault::QueuedClaim,
        _ => MutexFault::None,
    };

    fn tuning() -> Tuning {
        KNOBS.get().now()
    }

    fn turns_at_first() -> Option<u16> {
        KNOBS.get().turns
    }

    fn queue() -> Queue {
        KNOBS.get().queue
    }
}

/// The configuration without a defect.
pub(super) type Sound<const PARK: bool> = Kind<PARK, NO_FAULT>;

fn place<const FAULT: u8>(park: bool) -> &'static dyn Explored {
    if park {
        kinlock_sim::place(Lock::<Kind<true, FAULT>>(QueuedMutex::new()))
    } else {
        kinlock_sim::place(Lock::<Kind<false, FAULT>>(QueuedMutex::new()))
    }
}

struct Lock<C: MutexConfig>(QueuedMutex<Sim, C>);

impl<C: MutexConfig> Explored for Lock<C> {
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
        // What it takes is not given back.
        !self.0.is_contended() && self.0.try_lock()
    }
}
