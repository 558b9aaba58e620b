//! The condition variable, with its mutex, among the locks that are explored.
//!
//! # Invariants
//!
//! 1. [`Meeting::wait_until`] is called by a thread that holds the lock only, as it demands.

use super::{Explored, MAX_ACCESSES, Meeting, Specimen, mutex};
use crate::report::Property;
use crate::specimen::fault;
use kinlock_core::events::Event;
use kinlock_core::raw::condvar::{CondvarConfig, CondvarFault};
use kinlock_core::raw::{MutexConfig, QueuedCondvar, QueuedMutex};
use kinlock_sim::Sim;

/// The condition variable, with a mutex whose queue is drawn by lot.
pub(super) const SOUND: Specimen = Specimen {
    name: "condvar",
    place: place::<0>,
    reach: &[Event::Park, Event::Wake, Event::HandoffRequest],
    meets: true,
    ..mutex::SOUND
};

pub(super) const fn broken<const FAULT: u8>(name: &'static str) -> Specimen {
    Specimen {
        name,
        defect: Some(Property::Completion),
        place: place::<FAULT>,
        max_accesses: MAX_ACCESSES,
        ..SOUND
    }
}

#[derive(Clone, Copy, Debug)]
struct Kind<const FAULT: u8>;

impl<const FAULT: u8> CondvarConfig for Kind<FAULT> {
    const FAULT: CondvarFault = fault!(
        FAULT,
        CondvarFault: BlindSleep,
        LateCount,
        CarelessClear,
        BrokenChain,
        SwallowedWake,
        LingeringSpinner
    );
    // So that a few threads are enough for requeueing.
    const AT_ONCE: u32 = 0;
}

fn place<const FAULT: u8>(park: bool) -> Explored {
    fn place<M: MutexConfig, C: CondvarConfig>() -> Explored {
        let pair = kinlock_sim::place(Pair::<M, C> {
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
        place::<mutex::Sound<true>, Kind<FAULT>>()
    } else {
        place::<mutex::Sound<false>, Kind<FAULT>>()
    }
}

struct Pair<M: MutexConfig, C: CondvarConfig> {
    mutex: QueuedMutex<Sim, M>,
    condvar: QueuedCondvar<Sim, C>,
}

impl<M: MutexConfig, C: CondvarConfig> Meeting for Pair<M, C> {
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
