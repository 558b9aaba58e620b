//! Sections of delayed invalidation: not locks, but begun and ended where a lock is taken and released. For the workload `invalidation`.

use super::{Kind, Lock};
use crate::platform::{Sim, SimU64};
use crate::world::with;
use kinlock::config::Tuning;
use kinlock::platform::Atomic;
use kinlock::raw::invalidation::{
    Backend, Config, Domain, Locked, Member, Packed, PackedPair, Pair, Place, Slots,
};
use kinlock::raw::mutex::{MutexConfig, Queue};
use kinlock::raw::osq::PredecessorCpu;

type Places<L> = &'static [Place<Sim, L>];

struct Sections<C: Config, B: Backend<Sim>>(Domain<Sim, C, B, Places<B::Link>>);

impl<C: Config, B: Backend<Sim>> Lock for Sections<C, B> {
    fn lock(&self, me: usize) {
        let begun = self.0.begin(me as u16 + 1, || 0);
        begun.expect("a run is shorter than that");
    }

    fn unlock(&self, me: usize) {
        self.0.end(me as u16 + 1);
    }
}

macro_rules! mutex {
    ($(#[$doc:meta])* $name:ident, $park:literal, $polls:literal, $queue:expr) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        struct $name;

        impl MutexConfig for $name {
            const PARK: bool = $park;
            const POLLS: bool = $polls;

            fn tuning() -> Tuning {
                with(|w| w.tuning)
            }

            fn queue() -> Queue {
                $queue
            }
        }

        impl Config for $name {
            type Mutex = Self;
        }
    };
}

mutex!(
    /// As configured.
    Ours, true, false, Queue::Osq(PredecessorCpu::Cached)
);
mutex!(
    /// As a kernel's: whoever waits looks at the word all the time, nobody sleeps.
    Polled, false, true, Queue::Unqueued
);

fn place<C: Config, B: Backend<Sim>>(
    threads: usize,
    backend: B,
    link: fn() -> B::Link,
) -> &'static dyn Lock {
    let places: Places<B::Link> = crate::place_slice(threads, |_| Place::new(link()));
    crate::place(Sections::<C, B>(Domain::new(backend, places)))
}

fn place_locked<C: Config>(threads: usize) -> &'static dyn Lock {
    place::<C, Locked<Sim, C>>(threads, Locked::new(0), Member::new)
}

fn place_packed(threads: usize) -> &'static dyn Lock {
    place::<Ours, Packed<Sim, Ours>>(threads, Packed::new(0), || PackedPair::new(0))
}

fn place_slots(threads: usize) -> &'static dyn Lock {
    place::<Ours, Slots<Sim, Ours>>(threads, Slots::new(0), || SimU64::new(0))
}

/// All of them.
pub const ALL: &[Kind] = &[
    Kind {
        name: "sections-mutex",
        about: "open sections in a list under a global mutex, as before the published table: every spinner looks at the word, nobody parks",
        place: place_locked::<Polled>,
    },
    Kind {
        name: "sections-locked",
        about: "our backend `locked`: the same list under our mutex as configured",
        place: place_locked::<Ours>,
    },
    Kind {
        name: "sections-packed",
        about: "our backend `packed`: the list without a lock",
        place: place_packed,
    },
    Kind {
        name: "sections-slots",
        about: "our backend `slots`: a slot per thread and a ticket",
        place: place_slots,
    },
];
