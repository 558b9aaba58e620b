//! `osq`: many spinners in a queue that they can leave, each of which keeps checking whether its
//! predecessor runs.
//!
//! It follows the parts of UnixBench that gain most if spinners do not share lines: copies of a
//! file, all of which take one lock of the file system for each buffer. The data of a critical
//! section are the holder's own. Locks differ in how their waiters affect each other's queue nodes.

use super::{Body, Constant, Kind, Metered, work};
use crate::platform::{SimU64, place};
use crate::world::Placement;
use kinlock_core::platform::{Atomic, Ordering::Relaxed};
use std::rc::Rc;

const THINK: Constant = Constant::assumed(
    100_000.0,
    "private work between sections",
    "chosen knowing the result: a system call, and so much of the copy that about half of 128 \
     threads queue: published is no more than that it is contended",
);
const SECTION: Constant = Constant::assumed(
    300.0,
    "work under the lock",
    "chosen knowing the result: some loads and compares; the copy of a buffer of 256 bytes takes \
     about a tenth of that",
);

/// The workload.
pub const KIND: Kind = Kind::new(
    "osq",
    Placement::Spread,
    &[THINK, SECTION],
    prepare,
    "copies of a file: a short section, long private work; what queued spinners do to each other's \
     lines",
);

fn prepare(_: usize, lock: Metered) -> Rc<dyn Body> {
    // Data of the file, such as its size.
    let shared = place(SimU64::new(0));
    Rc::new(move |me: usize| {
        work(THINK.value());
        lock.lock(me);
        shared.load(Relaxed);
        shared.increment();
        work(SECTION.value());
        lock.unlock(me);
        1
    })
}
