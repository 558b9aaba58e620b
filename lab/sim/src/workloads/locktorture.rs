//! `locktorture`: writers that do nothing but take the lock, after the Linux kernel's test module
//! of that name.
//!
//! Now and then a writer holds the lock for 2 us (once in 4 n acquisitions of its own, n = writers)
//! or for 100 ms (once in 200,000 n). The long holds stop all writers; they are accounted for by
//! their expected number, not simulated. Each writer counts its acquisitions under the lock, in 16
//! bytes of a table: four writers share a cache line.

use super::{Body, Constant, Kind, Meter, Metered, Prepare, work};
use crate::platform::{SimU64, compute, place, place_slice};
use crate::world::{Placement, with};
use kinlock_core::platform::{Atomic, Ordering::Relaxed};
use std::rc::Rc;

const WORK: Constant = Constant::fitted(
    21.9,
    "work outside the lock",
    "locktorture, stock, 1, 4 and 8 threads",
);
const SECTION: Constant = Constant::fitted(
    102.7,
    "drawing the delays, under the lock",
    "locktorture, stock, 1, 4 and 8 threads",
);
const SHORT_HOLD: Constant =
    Constant::published(2_000.0, "short hold", "description of the workload");
const LONG_HOLD: Constant =
    Constant::published(100_000_000.0, "long hold", "description of the workload");

/// The workload.
pub const KIND: Kind = Kind {
    name: "locktorture",
    about: "writers that do nothing but take the lock; now and then a long hold",
    placement: Placement::Scheduled,
    parameters: &[WORK, SECTION, SHORT_HOLD, LONG_HOLD],
    prepare: Prepare::Lock(prepare),
    unsimulated_seconds: |meter: &Meter, threads| {
        meter.acquisitions as f64 / (200_000.0 * threads as f64) * LONG_HOLD.ns / 1e9
    },
};

struct Statistics {
    _failures: SimU64,
    acquisitions: SimU64,
}

fn prepare(writers: usize, lock: Metered) -> Rc<dyn Body> {
    // Set by every writer under the lock, after a check that it is not set.
    let held = place(SimU64::new(0));
    let statistics = place_slice(writers, |_| Statistics {
        _failures: SimU64::new(0),
        acquisitions: SimU64::new(0),
    });
    Rc::new(move |me: usize| {
        work(WORK.value());
        lock.lock(me);
        // The branch on the value is predicted, but the line arrives before it is written.
        held.glance(Relaxed);
        held.store(1, Relaxed);
        statistics[me].acquisitions.increment();
        work(SECTION.value());
        if with(|w| w.random()) % (4 * writers as u64) == 0 {
            compute(SHORT_HOLD.value());
        }
        held.store(0, Relaxed);
        lock.unlock(me);
        1
    })
}
