//! `lock2`: file locks through `fcntl`, after will-it-scale's test of that name.
//!
//! Each operation, locking or unlocking a range of a file, takes one hot spinlock for a moment and
//! otherwise does private work in the kernel. Under the lock one line is read, which stands for
//! checking the table of open files again. The test's threads lock one range of one file, and under
//! its hot lock the file's list of locks changes, which is not modelled.

use super::{Body, Constant, Kind, Metered, work};
use crate::platform::{SimU64, place};
use crate::world::Placement;
use kinlock_core::platform::{Atomic, Ordering::Relaxed};
use std::rc::Rc;

const WORK: Constant = Constant::fitted(
    620.4,
    "private work per operation",
    "lock2, stock, 1 to 8 threads",
);
const SECTION: Constant = Constant::assumed(5.0, "work under the lock", "a few loads and compares");

/// The workload.
pub const KIND: Kind = Kind::new(
    "lock2",
    Placement::Compact,
    &[WORK, SECTION],
    prepare,
    "fcntl file locks: one hot lock, taken once per operation",
);

fn prepare(_: usize, lock: Metered) -> Rc<dyn Body> {
    // The table of open files: read under the lock, never written.
    let table = place(SimU64::new(0));
    Rc::new(move |me: usize| {
        work(WORK.value());
        lock.lock(me);
        table.load(Relaxed);
        work(SECTION.value());
        lock.unlock(me);
        1
    })
}
