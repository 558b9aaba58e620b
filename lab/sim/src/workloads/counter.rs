//! `counter`: a few nanoseconds under the lock, then about 100 ns of private work. The benchmark
//! runs the same workload on hardware.

use super::{Constant, Kind, Metered, grid};
use crate::platform::{SimU64, place};
use crate::world::Placement;
use kinlock_core::platform::Atomic;
use kinlock_measure::workloads::counter::{self, WORDS};
use std::rc::Rc;

/// Private work between two sections, on average.
const THINK: Constant = Constant::assumed(
    counter::THINK_NS,
    "private work between sections",
    "a little work of a program: the benchmark's own",
);

/// The workload.
pub const KIND: Kind = Kind::new(
    counter::NAME,
    Placement::Spread,
    &[THINK],
    prepare,
    "a few nanoseconds under the lock, 100 ns of private work between",
);

/// The words of a section, in a line of their own: the simulated locks have theirs.
#[repr(align(64))]
struct Words([SimU64; WORDS]);

fn prepare(_: usize, lock: Metered) -> Rc<dyn super::Body> {
    let words = place(Words([const { 0 }; WORDS].map(SimU64::new)));
    Rc::new(move |me: usize| {
        grid::half_to_one_and_a_half(THINK.ns as u32);
        lock.lock(me);
        words.0.iter().for_each(|word| word.increment());
        lock.unlock(me);
        1
    })
}
