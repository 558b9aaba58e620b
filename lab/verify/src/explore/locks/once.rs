//! `Once` among the locks that are explored: several, beside a mutex that handlers take.

use super::{Explored, MAX_ACCESSES, Runs, Specimen, mutex};
use crate::report::Property;
use crate::specimen::fault;
use kinlock_core::events::Event;
use kinlock_core::raw::mutex::MutexConfig;
use kinlock_core::raw::mutex::QueuedMutex;
use kinlock_core::raw::once::{OnceConfig, OnceFault, RunOnce};
use kinlock_sim::Sim;

/// Each round of a schedule has one of its own.
const ONCES: usize = 16;

pub(super) const SOUND: Specimen = Specimen {
    name: "once",
    place: place::<0>,
    reach: &[Event::Park, Event::Wake],
    runs: true,
    max_accesses: MAX_ACCESSES,
    ..mutex::SOUND
};

pub(super) const fn broken<const FAULT: u8>(name: &'static str, defect: Property) -> Specimen {
    Specimen {
        name,
        defect: Some(defect),
        place: place::<FAULT>,
        ..SOUND
    }
}

#[derive(Clone, Copy, Debug)]
struct Kind<const FAULT: u8>;

impl<const FAULT: u8> OnceConfig for Kind<FAULT> {
    const FAULT: OnceFault = fault!(FAULT, OnceFault: EarlyDone, MissingWake, BlindSleep);
}

fn place<const FAULT: u8>(park: bool) -> Explored {
    fn place<M: MutexConfig, C: OnceConfig>() -> Explored {
        let set = kinlock_sim::place(Set::<M, C> {
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
        true => place::<mutex::Sound<true>, Kind<FAULT>>(),
        false => place::<mutex::Sound<false>, Kind<FAULT>>(),
    }
}

struct Set<M: MutexConfig, C: OnceConfig> {
    mutex: QueuedMutex<Sim, M>,
    onces: [RunOnce<Sim, C>; ONCES],
}

impl<M: MutexConfig, C: OnceConfig> Runs for Set<M, C> {
    fn call(&self, number: usize, function: &mut dyn FnMut()) {
        // Never `Err`: no function panics.
        let _ = self.onces[number % ONCES].call(false, |_| function());
    }
}
