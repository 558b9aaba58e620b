//! `invalidation`: processes that map and unmap memory, with a section of delayed invalidation per
//! operation.
//!
//! A process maps 128 MB and unmaps them, without touching them. So there are hardly any pages to
//! invalidate, and the sections themselves are what processes share. Other things that a kernel
//! shares between such processes, for example counters of reserved memory, are not modelled.

use super::{Body, Constant, Kind, Metered, Prepare, none, work};
use crate::world::Placement;
use std::rc::Rc;

const OUTSIDE: Constant = Constant {
    name: "private work outside the section",
    ns: 2_087.0,
    origin: "fitted",
    source: "column `mutex`, one process: 429,339 operations a second, 2,329 ns each, less the section and \
             what beginning and ending it takes",
};
const INSIDE: Constant = Constant {
    name: "work within the section",
    ns: 200.0,
    origin: "assumed",
    source: "64 entries of a page directory are looked at, each for 2 MB: some nanoseconds each",
};

/// The workload.
pub const KIND: Kind = Kind {
    name: "invalidation",
    about: "mmap and munmap of 128 MB in many processes, one section of delayed invalidation each; \
            takes invalidation-...",
    placement: Placement::Compact,
    parameters: &[OUTSIDE, INSIDE],
    prepare: Prepare::Lock(prepare),
    unsimulated_seconds: none,
};

struct Invalidation {
    sections: Metered,
}

fn prepare(_: usize, sections: Metered) -> Rc<dyn Body> {
    Rc::new(Invalidation { sections })
}

impl Body for Invalidation {
    fn iterate(&self, me: usize) -> u64 {
        work(OUTSIDE.ns);
        self.sections.lock(me);
        work(INSIDE.ns);
        self.sections.unlock(me);
        1
    }
}
