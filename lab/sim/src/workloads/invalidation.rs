//! `invalidation`: processes that map and unmap memory, with a section of delayed invalidation per
//! operation.
//!
//! A process maps 128 MB and unmaps them, without touching them. So there are hardly any pages to
//! invalidate, and the sections themselves are what processes share. Other things that a kernel
//! shares between such processes, for example counters of reserved memory, are not modelled.

use super::{Body, Constant, Kind, Metered, work};
use crate::world::Placement;
use std::rc::Rc;

pub(super) const OUTSIDE: Constant = Constant::fitted(
    2_087.0,
    "private work outside the section",
    "column `mutex`, one process: 429,339 operations a second, 2,329 ns each, less the section and \
     what beginning and ending it takes",
);
pub(super) const INSIDE: Constant = Constant::assumed(
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
    Rc::new(move |me: usize| {
        work(OUTSIDE.value());
        sections.lock(me);
        work(INSIDE.value());
        sections.unlock(me);
        1
    })
}
