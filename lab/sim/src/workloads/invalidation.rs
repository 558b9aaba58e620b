//! `invalidation`: processes that map and unmap memory, with a section of delayed invalidation per
//! operation.
//!
//! A process maps 128 MB and unmaps them, without touching them. So there are hardly any pages to
//! invalidate. Processes share only the sections themselves, and the accounting that shows in a
//! profile of the list. The mapping is private and writable, so it reserves swap, whether it is of
//! a file or not: that is counted globally and for the user, and each mapping holds a reference to
//! the credential. All processes share these three counts, which change at the mapping and at its
//! end.

use super::{Body, Constant, Kind, Metered, work};
use crate::platform::{SimU64, place};
use crate::world::Placement;
use kinlock_core::platform::{Atomic, Ordering::Relaxed};
use std::rc::Rc;

const OUTSIDE: Constant = Constant::fitted(
    2_087.0,
    "private work outside the section",
    "column `mutex`, one process: 429,339 operations a second, 2,329 ns each, less the section and \
     what beginning and ending it takes",
);
const INSIDE: Constant = Constant::assumed(
    200.0,
    "work within the section",
    "64 entries of a page directory are looked at, each for 2 MB: some nanoseconds each",
);

/// The workload.
pub const KIND: Kind = Kind::new(
    "invalidation",
    Placement::Compact,
    &[OUTSIDE, INSIDE],
    prepare,
    "mmap and munmap of 128 MB in many processes, one section of delayed invalidation each; \
     takes invalidation-...",
);

fn prepare(_: usize, sections: Metered) -> Rc<dyn Body> {
    let counts: [&SimU64; 3] = std::array::from_fn(|_| place(SimU64::new(0)));
    Rc::new(move |me: usize| {
        work(OUTSIDE.value() / 2.0);
        for count in counts {
            count.fetch_add(1, Relaxed);
        }
        work(OUTSIDE.value() / 2.0);
        sections.lock(me);
        work(INSIDE.value());
        sections.unlock(me);
        for count in counts {
            count.fetch_add(u64::MAX, Relaxed);
        }
        1
    })
}
