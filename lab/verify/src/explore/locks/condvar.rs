//! The condition variable, with its mutex, among the locks that are explored.
//!
//! # Invariants
//!
//! 1. [`Meeting::wait_until`] is called by a thread that holds the lock only, as it demands.

use super::{Explored, Meeting, Specimen, mutex};
use kinlock_core::events::Event;
use kinlock_core::platform::Platform;
use kinlock_core::raw::{LockConfig, QueuedCondvar, QueuedMutex};
use kinlock_sim::Sim;

/// The condition variable, with a mutex whose queue is drawn by lot.
pub(super) const SOUND: Specimen = Specimen {
    name: "condvar",
    place: place::<Sim>,
    reach: &[Event::Park, Event::Wake, Event::HandoffRequest],
    meets: true,
    ..mutex::SOUND
};

#[derive(Clone, Copy, Debug)]
struct Kind;

impl LockConfig for Kind {
    // So that a few threads are enough for requeueing.
    const AT_ONCE: u32 = 0;
}

pub(super) fn place<P: Platform>(park: bool) -> Explored {
    fn place<P: Platform, M: LockConfig>() -> Explored {
        let pair = kinlock_sim::place(Pair::<P, M> {
            mutex: QueuedMutex::default(),
            condvar: QueuedCondvar::new(),
        });
        Explored {
            lock: &pair.mutex,
            meeting: Some(pair),
            reading: None,
            running: None,
        }
    }
    if park {
        place::<P, mutex::Kind<true>>()
    } else {
        place::<P, mutex::Kind<false>>()
    }
}

struct Pair<P: Platform, M: LockConfig> {
    mutex: QueuedMutex<P, M>,
    condvar: QueuedCondvar<P, Kind>,
}

impl<P: Platform, M: LockConfig> Meeting for Pair<P, M> {
    fn wait_until(&self, deadline: u64) -> bool {
        // SAFETY: invariant 1.
        unsafe { self.condvar.wait_until(&self.mutex, deadline) }
    }

    fn notify_one(&self) {
        self.condvar.notify_one();
    }

    fn notify_all(&self) {
        self.condvar.notify_all();
    }
}
