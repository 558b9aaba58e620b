//! The mutex among the locks that are explored.

use super::{Explored, KNOBS, MAX_ACCESSES, Specimen};
use crate::report::Property;
use crate::specimen::fault;
use kinlock_core::config::{Quantum, Tuning};
use kinlock_core::events::Event;
use kinlock_core::raw::mutex::{MutexConfig, MutexFault, Queue, QueuedMutex};
use kinlock_core::raw::osq::PredecessorCpu;
use kinlock_sim::Sim;
use kinlock_sim::random::Random;

/// The mutex with a queue drawn by lot for each schedule.
pub(super) const SOUND: Specimen = Specimen {
    name: "mutex",
    defect: None,
    place: place::<0>,
    tuning,
    reach: &[
        Event::SlowPath,
        Event::Queued,
        Event::Unqueue,
        Event::Barge,
        Event::HandoffRequest,
        Event::Pickup,
        Event::Park,
        Event::Wake,
        Event::Timeout,
        Event::SlotFallback,
    ],
    // Running threads may barge. Only the time that a waiter waits is bounded.
    in_order: false,
    meets: false,
    // A waiter that leaves the queue polls the lock until its neighbour has linked itself, and the
    // neighbour may be preempted for long.
    max_accesses: 20 * MAX_ACCESSES,
};

pub(super) const fn broken<const FAULT: u8>(name: &'static str, defect: Property) -> Specimen {
    Specimen {
        name,
        defect: Some(defect),
        place: place::<FAULT>,
        max_accesses: MAX_ACCESSES,
        ..SOUND
    }
}

pub(super) const USUAL_QUEUE: Queue = Queue::Osq(PredecessorCpu::Cached);

/// Mostly the usual one.
pub(in crate::explore) fn queue(random: &mut Random) -> Queue {
    match random.below(6) {
        0 => Queue::Unqueued,
        1 => Queue::Osq(PredecessorCpu::SharedLine),
        2 => Queue::Osq(PredecessorCpu::OwnLine),
        _ => USUAL_QUEUE,
    }
}

/// In how many waits a thread barges at a mutex of which it knows nothing, if at all. Drawn,
/// because schedules are short and waiters learn little.
pub(in crate::explore) fn barging(random: &mut Random) -> Option<u16> {
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
    const FAULT: MutexFault = fault!(
        FAULT,
        MutexFault: MissingWake,
        LostWakeup,
        DoubleHandOff,
        LeakyCancel,
        QueuedRequest
    );

    fn tuning() -> Tuning {
        KNOBS.get().now()
    }

    fn initial_budget() -> Option<u16> {
        KNOBS.get().barging
    }

    fn queue() -> Queue {
        KNOBS.get().queue
    }
}

/// The configuration without a defect.
pub(super) type Sound<const PARK: bool> = Kind<PARK, 0>;

fn place<const FAULT: u8>(park: bool) -> Explored {
    fn place<C: MutexConfig>() -> Explored {
        Explored {
            lock: kinlock_sim::place(QueuedMutex::<Sim, C>::new()),
            meeting: None,
        }
    }
    if park {
        place::<Kind<true, FAULT>>()
    } else {
        place::<Kind<false, FAULT>>()
    }
}
