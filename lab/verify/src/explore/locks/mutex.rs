//! The mutex among the locks that are explored.

use super::{KNOBS, MAX_ACCESSES, Specimen};
use crate::play::Plays;
use crate::test_lock::Target;
use kinlock_core::config::{Quantum, Tuning};
use kinlock_core::events::Event;
use kinlock_core::platform::Platform;
use kinlock_core::raw::LockConfig;
use kinlock_core::raw::mutex::{Joined, Layout, QueueKind, QueuedMutex, Split};
use kinlock_measure::random::Random;
use kinlock_sim::Sim;

/// The mutex with a queue drawn at random for each schedule.
pub(super) const SOUND: Specimen = Specimen {
    name: "mutex",
    defect: None,
    place: place::<Sim>,
    tuning,
    reach: &[&[
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
    ]],
    // Running threads may barge: only the time of a wait is bounded, not the number of overtakers.
    in_order: false,
    plays: Plays::Lock,
    // A waiter that leaves the queue polls the lock until its neighbour has linked itself, which
    // takes long if the neighbour is preempted.
    max_accesses: 20 * MAX_ACCESSES,
};

pub(super) const USUAL_QUEUE: QueueKind = QueueKind::Osq;

/// Draws a queue, mostly the usual one.
pub(in crate::explore) fn queue(random: &mut Random) -> QueueKind {
    match random.below(6) {
        0 => QueueKind::Unqueued,
        _ => USUAL_QUEUE,
    }
}

/// Draws one of the two layouts.
pub(in crate::explore) fn is_joined(random: &mut Random) -> bool {
    random.one_in(2)
}

/// A quantum between none and the longest.
pub(super) fn quantum(lot: u32) -> Quantum {
    let micros = [0, 1, 5, 30, 100, 1000][lot as usize % 6];
    Quantum::from_micros(micros).unwrap_or_default()
}

/// `quantum`, or `micros` microseconds if that is less.
pub(in crate::explore) fn at_most(quantum: Quantum, micros: u16) -> Quantum {
    Quantum::from_micros(quantum.micros().min(micros)).unwrap_or_default()
}

fn tuning(random: &mut Random) -> Tuning {
    let mut tuning = Tuning::DEFAULT;
    tuning.quantum = quantum(random.next() as u32);
    tuning
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Kind<const PARK: bool>;

impl<const PARK: bool> LockConfig for Kind<PARK> {
    const PARK: bool = PARK;
    // Schedules are short.
    const TRIALS: u32 = 4;

    fn tuning() -> Tuning {
        KNOBS.get().now()
    }

    fn queue() -> QueueKind {
        KNOBS.get().queue
    }
}

pub(super) fn place<P: Platform>(park: bool) -> &'static dyn Target {
    fn place<P: Platform, C: LockConfig, L: Layout<P>>() -> &'static dyn Target {
        kinlock_sim::place(QueuedMutex::<P, C, L>::default())
    }
    match (park, KNOBS.get().joined) {
        (true, false) => place::<P, Kind<true>, Split<P>>(),
        (false, false) => place::<P, Kind<false>, Split<P>>(),
        (true, true) => place::<P, Kind<true>, Joined<P>>(),
        (false, true) => place::<P, Kind<false>, Joined<P>>(),
    }
}
