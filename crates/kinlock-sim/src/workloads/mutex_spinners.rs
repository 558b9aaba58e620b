//! `mutex-spinners`: a file server's load, after AIM7's `fserver`: a mutex of the file system is held briefly, and jobs work on their own between.
//!
//! A thread stands for a CPU, which runs one user's job after another: with many more users than CPUs there is always one to run, and to the mutex it makes
//! no difference which. So the number of users is not modelled. A section finds and changes a few lines of the file system, which the holder before has written.

use super::{Body, Constant, Kind, Metered, none, work};
use crate::platform::SimU64;
use crate::world::Placement;
use kinlock::platform::{Atomic, Ordering::Relaxed};
use std::rc::Rc;

const THINK: Constant = Constant {
    name: "private work between sections",
    ns: 20_000.0,
    origin: "fitted",
    source: "",
};
const SECTION: Constant = Constant {
    name: "work under the mutex",
    ns: 500.0,
    origin: "assumed",
    source: "a few hundred instructions of the file system",
};
/// Lines that a section reads and then writes.
const LINES: usize = 4;

/// The workload.
pub const KIND: Kind = Kind {
    name: "mutex-spinners",
    about: "a file server: a mutex held for a microsecond or two, long private work between",
    placement: Placement::Compact,
    parameters: &[THINK, SECTION],
    prepare,
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

fn knob(name: &str, default: f64) -> f64 {
    std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default)
}

impl Body for MutexSpinners {
    fn iterate(&self, me: usize) -> u64 {
        work(knob("THINK", THINK.ns));
        self.lock.lock(me);
        let n = knob("LINES", 4.0) as usize;
        for data in &self.data[..n] {
            // What is to be changed has to be looked at first: the holder waits for the line.
            data.0.load(Relaxed);
            data.0.increment();
        }
        work(knob("SECTION", SECTION.ns));
        self.lock.unlock(me);
        1
    }
}
