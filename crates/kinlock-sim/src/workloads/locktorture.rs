//! `locktorture`: writers that do nothing but take the lock, after the Linux kernel's test module of that name.
//!
//! Now and then a writer holds the lock for 2 us (once in 4 n acquisitions of its own, n = writers) or for 100 ms (once in
//! 200,000 n). The long holds stop everybody; they are accounted for by their expected number, not simulated. Each writer counts its
//! acquisitions under the lock, in 16 bytes of a table: four writers share a cache line.

use super::{Body, Constant, Kind, Meter, Metered, Prepare, work};
use crate::platform::SimU64;
use crate::world::{Placement, with};
use kinlock_core::platform::{Atomic, Ordering::Relaxed};
use std::rc::Rc;

const WORK: Constant = Constant {
    name: "work outside the lock",
    ns: 34.2,
    origin: "fitted",
    source: "locktorture, stock, 1, 4 and 8 threads",
};
const SECTION: Constant = Constant {
    name: "drawing the delays, under the lock",
    ns: 89.4,
    origin: "fitted",
    source: "locktorture, stock, 1, 4 and 8 threads",
};
const SHORT_HOLD: Constant = Constant {
    name: "short hold",
    ns: 2_000.0,
    origin: "published",
    source: "description of the workload",
};
const LONG_HOLD: Constant = Constant {
    name: "long hold",
    ns: 100_000_000.0,
    origin: "published",
    source: "description of the workload",
};

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

struct LockTorture {
    lock: Metered,
    writers: usize,
    /// What every writer sets under the lock, having looked that it is not set.
    held: &'static SimU64,
    statistics: &'static [Statistics],
}

struct Statistics {
    _failures: SimU64,
    acquisitions: SimU64,
}

fn prepare(writers: usize, lock: Metered) -> Rc<dyn Body> {
    Rc::new(LockTorture {
        lock,
        writers,
        held: crate::place(SimU64::new(0)),
        statistics: crate::place_slice(writers, |_| Statistics {
            _failures: SimU64::new(0),
            acquisitions: SimU64::new(0),
        }),
    })
}

impl Body for LockTorture {
    fn iterate(&self, me: usize) -> u64 {
        work(WORK.ns);
        self.lock.lock(me);
        // Looking whether it is unset is off the critical path: nothing waits for the answer.
        self.held.store(1, Relaxed);
        self.statistics[me].acquisitions.increment();
        work(SECTION.ns);
        if with(|w| w.random()) % (4 * self.writers as u64) == 0 {
            crate::compute(SHORT_HOLD.ns);
        }
        self.held.store(0, Relaxed);
        self.lock.unlock(me);
        1
    }
}
