//! The condition variable, with its mutex, among the locks that are explored.
//!
//! # Invariants
//!
//! 1. [`Explored::unlock`] and [`Meeting::wait_until`] are called by the thread that took the lock only, as they demand.

use super::{Explored, MAX_ACCESSES, Meeting, Specimen, mutex};
use crate::report::Property;
use kinlock_core::events::Event;
use kinlock_core::raw::condvar::{CondvarConfig, CondvarFault};
use kinlock_core::raw::{MutexConfig, QueuedCondvar, QueuedMutex};
use kinlock_sim::Sim;

/// The condition variable, with a mutex whose queue is drawn by lot.
pub(super) const SOUND: Specimen = Specimen {
    name: "condvar",
    place: place::<NO_FAULT>,
    reach: &[Event::Park, Event::Wake, Event::Claim],
    meets: true,
    ..mutex::SOUND
};

pub(super) const BLIND_SLEEP: u8 = 1;
pub(super) const LATE_COUNT: u8 = 2;
pub(super) const CARELESS_CLEAR: u8 = 3;
pub(super) const BROKEN_CHAIN: u8 = 4;
pub(super) const SWALLOWED_WAKE: u8 = 5;
pub(super) const LINGERING_SPINNER: u8 = 6;
pub(super) const STALE_FLAGS: u8 = 7;
const NO_FAULT: u8 = 0;

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
    const FAULT: CondvarFault = match FAULT {
        BLIND_SLEEP => CondvarFault::BlindSleep,
        LATE_COUNT => CondvarFault::LateCount,
        CARELESS_CLEAR => CondvarFault::CarelessClear,
        BROKEN_CHAIN => CondvarFault::BrokenChain,
        SWALLOWED_WAKE => CondvarFault::SwallowedWake,
        LINGERING_SPINNER => CondvarFault::LingeringSpinner,
        STALE_FLAGS => CondvarFault::StaleFlags,
        _ => CondvarFault::None,
    };
    // So that a few threads are enough for requeueing.
    const AT_ONCE: u32 = 0;
}

fn place<const FAULT: u8>(park: bool) -> &'static dyn Explored {
    if park {
        kinlock_sim::place(Pair::<mutex::Sound<true>, Kind<FAULT>>::default())
    } else {
        kinlock_sim::place(Pair::<mutex::Sound<false>, Kind<FAULT>>::default())
    }
}

struct Pair<M: MutexConfig, C: CondvarConfig> {
    mutex: QueuedMutex<Sim, M>,
    condvar: QueuedCondvar<Sim, C>,
}

impl<M: MutexConfig, C: CondvarConfig> Default for Pair<M, C> {
    fn default() -> Self {
        Pair {
            mutex: QueuedMutex::new(),
            condvar: QueuedCondvar::new(),
        }
    }
}

impl<M: MutexConfig, C: CondvarConfig> Explored for Pair<M, C> {
    fn lock(&self) {
        self.mutex.lock();
    }

    fn try_lock(&self) -> bool {
        self.mutex.try_lock()
    }

    fn lock_until(&self, deadline: u64) -> bool {
        self.mutex.lock_until(deadline)
    }

    fn unlock(&self) {
        // SAFETY: invariant 1.
        unsafe { self.mutex.unlock() }
    }

    fn is_at_rest(&self) -> bool {
        // What it takes is not given back. A flag for sleepers may be left behind: whoever has slept owes it.
        self.mutex.try_lock()
    }

    fn meeting(&self) -> Option<&dyn Meeting> {
        Some(self)
    }
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
