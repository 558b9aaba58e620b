//! Delayed invalidation, for the workload `invalidation`. These are not locks: taking the "lock"
//! begins a section, and releasing it ends the section.

mod published;
mod tracked;

use super::own::AsConfigured as Ours;
use super::{Kind, Lock, observed};
use crate::platform::{Sim, SimU64};
use crate::world::{compute, with};
use kinlock_core::platform::Atomic;
use kinlock_invalidation::raw::{Backend, Config, Domain, Locked, Member, Place, Slots};

/// All backends.
pub static ALL: &[Kind] = &[
    Kind::new(
        "invalidation-locked",
        |threads| place(threads, Locked::<Sim, Ours>::new(0), Member::new),
        "our backend `locked`: open sections in a list under a global mutex, ours as configured",
    ),
    Kind::new(
        "invalidation-mutex",
        tracked::place::<true>,
        "what the published list replaced, modelled step by step: a list under a mutex as \
         FreeBSD's, whose spinners poll with pauses that double, and nobody parks",
    ),
    Kind::new(
        "invalidation-mutex-polled",
        tracked::place::<false>,
        "the same list, and every spinner polls the word all the time",
    ),
    Kind::new(
        "invalidation-list",
        published::place,
        "the published list, modelled step by step: who has to start over waits for longer each \
         time",
    ),
    Kind::new(
        "invalidation-slots",
        |threads| place(threads, Slots::<Sim>::new(0), || SimU64::new(0)),
        "our backend `slots`: a slot per thread and a ticket",
    ),
];

fn place<B: Backend<Sim>>(threads: usize, backend: B, link: fn() -> B::Link) -> &'static dyn Lock {
    let places: Places<B::Link> = crate::place_slice(threads, |_| Place::new(link()));
    crate::place(Domain::<Sim, Ours, B, _>::new(backend, places))
}

type Places<L> = &'static [Place<Sim, L>];

impl<B: Backend<Sim>> Lock for Domain<Sim, Ours, B, Places<B::Link>> {
    fn lock(&self, me: usize) {
        let begun = self.begin(me as u16 + 1, || 0);
        begun.expect("a run is shorter than that");
    }

    fn unlock(&self, me: usize) {
        self.end(me as u16 + 1);
    }

    fn observed(&self) -> Vec<(&'static str, f64)> {
        let longest = self.tally().longest_queue;
        vec![(observed::LONGEST_QUEUE, longest as f64)]
    }
}

/// Our mutex as configured.
impl Config for Ours {}

/// FreeBSD's `lock_delay` as its source documents it since 2018, in iterations of a pausing loop:
/// at first 2, then twice as many each time, up to 256 times the next power of two above the number
/// of CPUs, 32,678 at most. FreeBSD's mutex and the published list use it.
struct Delay {
    pauses: u64,
    most: u64,
}

impl Delay {
    fn new() -> Self {
        let cpus = with(|w| w.setup.machine.shape.cpus() as u64);
        Delay {
            pauses: 2,
            most: (256 * (cpus + 1).next_power_of_two()).min(32_678),
        }
    }

    fn wait(&mut self) {
        compute(self.pauses * with(|w| w.costs().pause));
        self.pauses = (2 * self.pauses).min(self.most);
    }
}
