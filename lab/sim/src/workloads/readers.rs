//! `readers-N`: N of a hundred operations read four words under a reader-writer lock, the others
//! change the words. The work is the same as in `kinlock bench --workload readers-99`.

use super::{Body, Constant, Kind, Metered, Prepare, none, work};
use crate::platform::{SimU64, place};
use crate::world::{Placement, with};
use kinlock_core::platform::{Atomic, Ordering::Relaxed};
use std::rc::Rc;

const SECTION: Constant = Constant::assumed(50.0, "work under the lock", "as in `bench`");
const PRIVATE: Constant = Constant::assumed(100.0, "work outside the lock", "as in `bench`");

const fn kind(
    name: &'static str,
    prepare: fn(usize, Metered) -> Rc<dyn Body>,
    about: &'static str,
) -> Kind {
    Kind {
        name,
        about,
        placement: Placement::Compact,
        parameters: &[SECTION, PRIVATE],
        prepare: Prepare::ReaderWriter(prepare),
        unsimulated_seconds: none,
    }
}

/// Readers only.
pub const ONLY: Kind = kind(
    "readers-100",
    |_, lock| prepare(100, lock),
    "short sections under a reader-writer lock, all of which read",
);
/// One operation in a hundred writes.
pub const MOST: Kind = kind(
    "readers-99",
    |_, lock| prepare(99, lock),
    "the same; one operation in a hundred writes",
);
/// One operation in ten writes.
pub const MANY: Kind = kind(
    "readers-90",
    |_, lock| prepare(90, lock),
    "the same; one in ten writes",
);
/// Half of the operations write.
pub const HALF: Kind = kind(
    "readers-50",
    |_, lock| prepare(50, lock),
    "the same; half of them write",
);

/// Four words in a line of their own.
#[repr(align(128))]
struct Data([SimU64; 4]);

fn prepare(percent: u64, lock: Metered) -> Rc<dyn Body> {
    let data = place(Data([0; 4].map(SimU64::new)));
    Rc::new(move |me: usize| {
        work(PRIVATE.value());
        if with(|w| w.random()) % 100 < percent {
            lock.read(me);
            for word in &data.0 {
                word.load(Relaxed);
            }
            work(SECTION.value());
            lock.unlock_read(me);
        } else {
            lock.lock(me);
            for word in &data.0 {
                word.load(Relaxed);
                word.increment();
            }
            work(SECTION.value());
            lock.unlock(me);
        }
        1
    })
}
