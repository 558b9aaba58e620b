//! `mutex-spinners`: a file server's load, after AIM7's `fserver`: a mutex of the file system is held briefly, and jobs work on their own between.
//!
//! A thread stands for a CPU, which runs one user's job after another: with many more users than CPUs there is always one to run, and to the mutex it makes
//! no difference which. So the number of users is not modelled. A section finds and changes a few lines of the file system, which the holder before has written.

use super::{Body, Constant, Kind, Metered, Prepare, none};
use crate::platform::SimU64;
use crate::world::{Placement, with};
use kinlock_core::platform::{Atomic, Ordering::Relaxed};
use std::rc::Rc;

const THINK: Constant = Constant {
    name: "private work between sections",
    ns: 43_000.0,
    origin: "fitted",
    source: "column `base`: 1.69 times the throughput of 1 node on 2, simulated with the unqueued spinners",
};
const SECTION: Constant = Constant {
    name: "work under the mutex",
    ns: 2_000.0,
    origin: "assumed",
    source: "a file system's inode is locked for one or a few microseconds; longer agrees better with 4 nodes of column `base`, shorter with 8",
};
/// Lines that a section reads and then writes.
const LINES: usize = 4;

/// The workload.
pub const KIND: Kind = Kind {
    name: "mutex-spinners",
    about: "a file server: a mutex held for a microsecond or two, long private work between",
    placement: Placement::Compact,
    parameters: &[THINK, SECTION],
    prepare: Prepare::Lock(prepare),
    unsimulated_seconds: none,
};

struct MutexSpinners {
    lock: Metered,
    data: &'static [Data],
}

#[repr(align(128))]
struct Data(SimU64);

fn prepare(_: usize, lock: Metered) -> Rc<dyn Body> {
    Rc::new(MutexSpinners {
        lock,
        data: crate::place_slice(LINES, |_| Data(SimU64::new(0))),
    })
}

impl Body for MutexSpinners {
    fn iterate(&self, me: usize) -> u64 {
        any_length(THINK.ns);
        self.lock.lock(me);
        for data in self.data {
            // What is to be changed has to be looked at first: the holder waits for the line.
            data.0.load(Relaxed);
            data.0.increment();
        }
        any_length(SECTION.ns);
        self.lock.unlock(me);
        1
    }
}

/// Computes for up to twice as long, uniformly: jobs differ much.
fn any_length(nanos: f64) {
    let chance = (with(|w| w.random()) % 1024) as f64 / 512.0;
    crate::compute(nanos * chance);
}
