//! `osq`: many spinners in a queue that they can leave, each of which keeps looking whether its predecessor runs.
//!
//! After the parts of UnixBench that gain most where spinners stop sharing lines: copies of a file, all of which take one lock of the file system for each buffer. The
//! data of a section are the holder's own; what differs between locks is what they do to each other's queue nodes.

use super::{Body, Constant, Kind, Metered, Prepare, none, work};
use crate::platform::SimU64;
use crate::world::Placement;
use kinlock_core::platform::{Atomic, Ordering::Relaxed};
use std::rc::Rc;

const THINK: Constant = Constant {
    name: "private work between sections",
    ns: 100_000.0,
    origin: "assumed",
    source: "a system call, and so much of the copy that about half of 128 threads queue: published is no more than that it is contended",
};
const SECTION: Constant = Constant {
    name: "work under the lock",
    ns: 300.0,
    origin: "assumed",
    source: "some loads and compares; the copy of a buffer of 256 bytes takes about a tenth of that",
};

/// The workload.
pub const KIND: Kind = Kind {
    name: "osq",
    about: "copies of a file: a short section, long private work; what queued spinners do to each other's lines",
    placement: Placement::Spread,
    parameters: &[THINK, SECTION],
    prepare: Prepare::Lock(prepare),
    unsimulated_seconds: none,
};

struct Copies {
    lock: Metered,
    /// The size of the file, say.
    shared: &'static SimU64,
}

fn prepare(_: usize, lock: Metered) -> Rc<dyn Body> {
    Rc::new(Copies {
        lock,
        shared: crate::place(SimU64::new(0)),
    })
}

impl Body for Copies {
    fn iterate(&self, me: usize) -> u64 {
        work(THINK.ns);
        self.lock.lock(me);
        self.shared.load(Relaxed);
        self.shared.increment();
        work(SECTION.ns);
        self.lock.unlock(me);
        1
    }
}
