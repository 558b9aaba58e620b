//! A mutex of three states, as many standard libraries have: a thread tries, spins shortly, and
//! then sleeps. Any running thread may take a free mutex. There is no queue and no hand-off.
//!
//! Our mutex is compared with it on machines that we do not have. It behaves like Rust's
//! `std::sync::Mutex` on Linux.

use super::Lock;
use crate::platform::{Sim, SimU32};
use crate::world::with;
use kinlock_core::platform::{Atomic, NEVER, Ordering::*, Platform};

const FREE: u32 = 0;
const HELD: u32 = 1;
/// Held, and a thread may sleep.
const CONTENDED: u32 = 2;

/// How often a thread looks at a held lock before it sleeps.
const LOOKS: f64 = 100.0;

/// How long these looks take. A look is a load that hits and a pause. Waiting for this time is the
/// same for the simulated machine, and costs the host less.
pub(super) fn spin_ns() -> u64 {
    let look = with(|w| w.costs().nanos(w.costs().own_cache + w.costs().pause));
    (LOOKS * look) as u64
}

struct Futex {
    state: SimU32,
}

pub(super) fn place(_: usize) -> &'static dyn Lock {
    crate::place(Futex {
        state: SimU32::new(FREE),
    })
}

impl Futex {
    fn key(&self) -> *const u32 {
        (&raw const self.state).cast()
    }

    /// Looks until the mutex is free, or contended, which means that others sleep already. Returns
    /// the last state seen.
    fn spin(&self) -> u32 {
        let (Ok(state) | Err(state)) =
            Sim::wait_for(&self.state, Relaxed, spin_ns(), |state| state != HELD);
        state
    }

    fn take(&self) -> bool {
        let taken = self.state.compare_exchange(FREE, HELD, Acquire, Relaxed);
        taken.is_ok()
    }

    #[cold]
    fn lock_contended(&self) {
        let mut state = self.spin();
        if state == FREE && self.take() {
            return;
        }
        loop {
            // From here on the thread takes the mutex as contended: it has used up a wake-up, and
            // others may still sleep.
            if state != CONTENDED && self.state.swap(CONTENDED, Acquire) == FREE {
                return;
            }
            let current = || self.state.load(Relaxed);
            Sim::park(self.key(), CONTENDED, NEVER, current);
            state = self.spin();
        }
    }
}

impl Lock for Futex {
    fn lock(&self, _: usize) {
        if !self.take() {
            self.lock_contended();
        }
    }

    fn unlock(&self, _: usize) {
        if self.state.swap(FREE, Release) == CONTENDED {
            Sim::unpark(self.key(), 1);
        }
    }
}
