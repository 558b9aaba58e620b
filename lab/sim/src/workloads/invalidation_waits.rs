//! `invalidation-waits`: threads that wait for sections of delayed invalidation, while other work
//! takes CPUs from threads that are in a section.
//!
//! It is `invalidation`, and now and then a thread reuses what was removed: it waits until all
//! sections that are open at that moment have ended. What is measured are these waits. Threads
//! beyond the number of CPUs only compute, each on a CPU that it shares with one of the others. A
//! thread that loses its CPU within a section makes every waiter wait until it runs again: the
//! priority inversion that FreeBSD avoids by raising the priority of threads in sections.

use super::invalidation::{INSIDE, OUTSIDE};
use super::{Body, Constant, Kind, Metered, work};
use crate::platform::{SimU64, place_slice};
use crate::world::{Placement, with};
use kinlock_core::platform::{Atomic, Ordering::Relaxed};
use std::rc::Rc;

/// One operation in this number waits.
const WAITS_ONE_IN: u64 = 16;
const OTHER_WORK: Constant = Constant::assumed(
    10_000.0,
    "a piece of other work",
    "any length: it is interrupted when the time slice ends",
);

/// The workload.
pub const KIND: Kind = Kind::new(
    "invalidation-waits",
    Placement::Compact,
    &[OUTSIDE, INSIDE, OTHER_WORK],
    prepare,
    "the same, and one operation in 16 waits for all open sections; threads beyond the CPUs only \
     compute; takes invalidation-...",
);

#[repr(align(128))]
struct Data(SimU64);

fn prepare(threads: usize, sections: Metered) -> Rc<dyn Body> {
    let cpus = with(|w| w.usable_cpus);
    let data = place_slice(threads, |_| Data(SimU64::new(0)));
    Rc::new(move |me: usize| {
        if me >= cpus {
            // Threads lose their CPUs at accesses.
            data[me].0.load(Relaxed);
            work(OTHER_WORK.value());
            return 0;
        }
        work(OUTSIDE.value());
        sections.begin(me);
        work(INSIDE.value());
        sections.unlock(me);
        if with(|w| w.random()) % WAITS_ONE_IN == 0 {
            sections.wait_for_sections(me);
        }
        1
    })
}
