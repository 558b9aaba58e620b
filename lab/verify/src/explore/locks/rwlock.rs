//! The reader-writer lock among the locks that are explored.

use super::mutex::{self, Kind};
use super::{Explored, Specimen};
use kinlock_core::events::Event;
use kinlock_core::platform::Platform;
use kinlock_core::raw::LockConfig;
use kinlock_core::raw::rwlock::QueuedRwLock;
use kinlock_sim::Sim;

/// The reader-writer lock with a queue of writers drawn by lot for each schedule.
pub(super) const SOUND: Specimen = Specimen {
    name: "rwlock",
    place: place::<Sim>,
    reach: &[
        Event::SlowPath,
        Event::Queued,
        Event::Barge,
        Event::HandoffRequest,
        Event::Park,
        Event::Wake,
        Event::Timeout,
        Event::SlotFallback,
        Event::Bias,
        Event::Revoke,
    ],
    reads: true,
    ..mutex::SOUND
};

pub(super) fn place<P: Platform>(park: bool) -> Explored {
    fn place<P: Platform, C: LockConfig>() -> Explored {
        let lock = kinlock_sim::place(QueuedRwLock::<P, C>::default());
        Explored {
            lock,
            meeting: None,
            reading: Some(lock),
            running: None,
        }
    }
    match park {
        true => place::<P, Kind<true>>(),
        false => place::<P, Kind<false>>(),
    }
}
