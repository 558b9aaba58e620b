//! `mutex-spinners`: a file server's load, after AIM7's `fserver`. A mutex of the file system is
//! held briefly, and jobs work on their own in between.
//!
//! A thread stands for a CPU, which runs one user's job after another. With many more users than
//! CPUs there is always a job to run, and for the mutex it makes no difference which. So the number
//! of users is not modelled. A critical section changes a few lines of the file system, which the
//! previous holder has written.

use super::{Body, Constant, Kind, Metered};
use crate::platform::{SimU64, compute, place_slice};
use crate::world::{Placement, with};
use kinlock_core::platform::{Atomic, Ordering::Relaxed};
use std::rc::Rc;

const THINK: Constant = Constant::fitted(
    43_000.0,
    "private work between sections",
    "chosen knowing the result: column `base`: 1.69 times the throughput of 1 node on 2, simulated \
     with the unqueued spinners",
);
const SECTION: Constant = Constant::assumed(
    2_000.0,
    "work under the mutex",
    "a file system's inode is locked for one or a few microseconds; longer agrees better with \
     4 nodes of column `base`, shorter with 8",
);
/// Lines that a section reads and then writes.
const LINES: usize = 4;

/// The workload.
pub const KIND: Kind = Kind::new(
    "mutex-spinners",
    Placement::Compact,
    &[THINK, SECTION],
    prepare,
    "a file server: a mutex held for a microsecond or two, long private work between",
);

#[repr(align(128))]
struct Data(SimU64);

fn prepare(_: usize, lock: Metered) -> Rc<dyn Body> {
    let lines = place_slice(LINES, |_| Data(SimU64::new(0)));
    Rc::new(move |me: usize| {
        any_length(THINK.value());
        lock.lock(me);
        for Data(line) in lines {
            // The old value is read before it is changed, so the holder waits for the line.
            line.load(Relaxed);
            line.increment();
        }
        any_length(SECTION.value());
        lock.unlock(me);
        1
    })
}

/// Computes for a time that is uniform from zero to twice the mean, since jobs differ a lot.
fn any_length(nanos: f64) {
    let chance = (with(|w| w.random()) % 1024) as f64 / 512.0;
    compute(nanos * chance);
}
