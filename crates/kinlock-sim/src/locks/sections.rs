//! Sections of delayed invalidation: not locks, but begun and ended where a lock is taken and released. For the workload `invalidation`.

use super::{Kind, Lock};
use crate::platform::{Sim, SimU32, SimU64};
use crate::world::with;
use kinlock_core::config::Tuning;
use kinlock_core::platform::{Atomic, Ordering::*, Platform};
use kinlock_core::raw::mutex::{MutexConfig, QueuedMutex};
use kinlock_invalidation::raw::{
    Backend, Config, Domain, Exclusion, Locked, Member, Packed, PackedPair, Pair, Place, Slots,
};

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

/// Our mutex as configured.
#[derive(Clone, Copy, Debug)]
struct Ours;

impl MutexConfig for Ours {
    fn tuning() -> Tuning {
        with(|w| w.tuning)
    }
}

impl Config for Ours {
    type Mutex = Self;
}

/// The lock of which the published list got rid, FreeBSD's adaptive mutex: it is taken and released by a compare-and-swap, and whoever waits looks at the word after pauses that double. Nobody
/// sleeps while the holder runs.
///
/// Without back-off, for comparison: whoever waits looks all the time.
struct Adaptive<const BACKS_OFF: bool>(SimU32);

const FREE: u32 = 0;
const HELD: u32 = 1;

impl<const BACKS_OFF: bool> Exclusion for Adaptive<BACKS_OFF> {
    fn new() -> Self {
        Adaptive(SimU32::new(FREE))
    }

    fn lock(&self) {
        // From 2 to 256 times the next power of two above the number of CPUs, 32,678 at most, in turns of a loop that pauses: its `lock_delay` since 2018.
        let (turn, cpus) = with(|w| (w.costs().pause, w.machine().shape.cpus() as u64));
        let most = (256 * (cpus + 1).next_power_of_two()).min(32_678);
        let mut turns = 2;
        while self
            .0
            .compare_exchange(FREE, HELD, Acquire, Relaxed)
            .is_err()
        {
            if !BACKS_OFF {
                Sim::wait(&self.0, Relaxed, |word| word == FREE);
                continue;
            }
            while self.0.load(Relaxed) != FREE {
                crate::world::compute(turns * turn);
                turns = (2 * turns).min(most);
            }
        }
    }

    unsafe fn unlock(&self) {
        let _ = self.0.compare_exchange(HELD, FREE, Release, Relaxed);
    }

    fn reset_in_child(&self) {}
}

fn place<C: Config, B: Backend<Sim>>(
    threads: usize,
    backend: B,
    link: fn() -> B::Link,
) -> &'static dyn Lock {
    let places: Places<B::Link> = crate::place_slice(threads, |_| Place::new(link()));
    crate::place(Sections::<C, B>(Domain::new(backend, places)))
}

fn place_locked<M: Exclusion>(threads: usize) -> &'static dyn Lock {
    place::<Ours, Locked<Sim, Ours, M>>(threads, Locked::new(0), Member::new)
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
        name: "sections-locked",
        about: "our backend `locked`: open sections in a list under a global mutex, ours as configured",
        place: place_locked::<QueuedMutex<Sim, Ours>>,
    },
    Kind {
        name: "sections-mutex",
        about: "the same list under a mutex as FreeBSD's: spinners look at the word after pauses that double, nobody parks",
        place: place_locked::<Adaptive<true>>,
    },
    Kind {
        name: "sections-mutex-polled",
        about: "the same list, and every spinner looks at the word all the time",
        place: place_locked::<Adaptive<false>>,
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
