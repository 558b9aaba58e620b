//! `Once` among the locks that are explored: several, beside a mutex that handlers take.

use super::{Explored, MAX_ACCESSES, Runs, Specimen, mutex};
use kinlock_core::events::Event;
use kinlock_core::platform::Platform;
use kinlock_core::raw::LockConfig;
use kinlock_core::raw::mutex::QueuedMutex;
use kinlock_core::raw::once::RunOnce;
use kinlock_sim::Sim;

/// Each round of a schedule has one of its own.
const ONCES: usize = 16;

pub(super) const SOUND: Specimen = Specimen {
    name: "once",
    place: place::<Sim>,
    reach: &[Event::Park, Event::Wake],
    runs: true,
    max_accesses: MAX_ACCESSES,
    ..mutex::SOUND
};

pub(super) fn place<P: Platform>(park: bool) -> Explored {
    fn place<P: Platform, M: LockConfig>() -> Explored {
        let set = kinlock_sim::place(Set::<P, M> {
            mutex: QueuedMutex::default(),
            onces: Default::default(),
        });
        Explored {
            lock: &set.mutex,
            meeting: None,
            reading: None,
            running: Some(set),
        }
    }
    match park {
        true => place::<P, mutex::Kind<true>>(),
        false => place::<P, mutex::Kind<false>>(),
    }
}

struct Set<P: Platform, M: LockConfig> {
    mutex: QueuedMutex<P, M>,
    onces: [RunOnce<P>; ONCES],
}

impl<P: Platform, M: LockConfig> Runs for Set<P, M> {
    fn call(&self, number: usize, function: &mut dyn FnMut()) {
        // Never `Err`: no function panics.
        let _ = self.onces[number % ONCES].call(false, |_| function());
    }
}
