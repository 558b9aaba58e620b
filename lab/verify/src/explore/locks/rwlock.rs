//! The reader-writer lock among the locks that are explored.

use super::Specimen;
use super::mutex::{self, Kind};
use crate::play::Plays;
use crate::test_lock::Target;
use kinlock_core::events::Event;
use kinlock_core::platform::Platform;
use kinlock_core::raw::rwlock::QueuedRwLock;
use kinlock_sim::Sim;

/// The reader-writer lock with a queue of writers drawn at random for each schedule.
pub(super) const SOUND: Specimen = Specimen {
    name: "rwlock",
    place: place::<Sim>,
    reach: &[&[
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
    ]],
    plays: Plays::Readers,
    ..mutex::SOUND
};

pub(super) fn place<P: Platform>(park: bool) -> &'static dyn Target {
    match park {
        true => kinlock_sim::place(QueuedRwLock::<P, Kind<true>>::default()),
        false => kinlock_sim::place(QueuedRwLock::<P, Kind<false>>::default()),
    }
}
