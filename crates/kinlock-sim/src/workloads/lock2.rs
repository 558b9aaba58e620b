//! `lock2`: file locks through `fcntl`, after will-it-scale's test of that name.
//!
//! Each operation, locking or unlocking a range of a private file, takes one hot spinlock for a moment (the table of open files is checked
//! once more) and otherwise does private work in the kernel.

use super::{Body, Constant, Kind, Metered, Prepare, none, work};
use crate::platform::SimU64;
use crate::world::Placement;
use kinlock_core::platform::{Atomic, Ordering::Relaxed};
use std::rc::Rc;

const WORK: Constant = Constant {
    name: "private work per operation",
    ns: 623.6,
    origin: "fitted",
    source: "lock2, stock, 1 to 8 threads",
};
const SECTION: Constant = Constant {
    name: "work under the lock",
    ns: 5.0,
    origin: "assumed",
    source: "a few loads and compares",
};

/// The workload.
pub const KIND: Kind = Kind {
    name: "lock2",
    about: "fcntl file locks: one hot lock, taken once per operation",
    placement: Placement::Compact,
    parameters: &[WORK, SECTION],
    prepare: Prepare::Lock(prepare),
    unsimulated_seconds: none,
};

struct Lock2 {
    lock: Metered,
    /// The table of open files: read under the lock, written by nobody.
    table: &'static SimU64,
}

fn prepare(_: usize, lock: Metered) -> Rc<dyn Body> {
    Rc::new(Lock2 {
        lock,
        table: crate::place(SimU64::new(0)),
    })
}

impl Body for Lock2 {
    fn iterate(&self, me: usize) -> u64 {
        work(WORK.ns);
        self.lock.lock(me);
        self.table.load(Relaxed);
        work(SECTION.ns);
        self.lock.unlock(me);
        1
    }
}
