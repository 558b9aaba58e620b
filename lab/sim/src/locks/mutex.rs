//! The library's mutex, its own source, in several configurations.
//!
//! Those called `polled-...` come as near as it gets to a kernel's mutex at the time of the
//! published tables. Spinners poll the lock all the time. They never sleep: a kernel's CPU that has
//! nothing better to do spins for as long as the holder runs.
//!
//! # Invariants
//!
//! 1. Only the thread that took the lock calls [`Lock::unlock`], as that function demands.

use super::{Kind, Lock};
use crate::platform::{Sim, SimU32};
use crate::world::with;
use kinlock_core::config::Tuning;
use kinlock_core::platform::{Atomic, Ordering::Relaxed, Platform};
use kinlock_core::raw::mutex::{MutexConfig, Queue, QueuedMutex};
use kinlock_core::raw::osq::{PredecessorCpu, Watch};

/// All of them. A queue that is new to the library takes a configuration below and a line here.
pub(super) const ALL: &[Kind] = &[
    Kind::new(
        "mutex",
        place::<Fifo>,
        "our mutex as configured: spinners queue, the one at the front watches and requests; \
         waiters park",
    ),
    Kind::new(
        "mutex-cna",
        place::<LocalFirst>,
        "our mutex as configured on a NUMA machine: the same, and its queue serves local waiters \
         first",
    ),
    Kind::new(
        "mutex-unqueued",
        place::<Unqueued>,
        "our mutex without a queue: every spinner watches and requests for itself",
    ),
    Kind::new(
        "polled",
        place_owned::<Polled>,
        "a mutex as before the published tables: every spinner polls the word, nobody parks",
    ),
    Kind::new(
        "polled-fifo",
        place_owned::<PolledFifo>,
        "a mutex as in the published tables: spinners queue, their head polls the word, nobody \
         parks",
    ),
    Kind::new(
        "polled-cna",
        place_owned::<PolledLocalFirst>,
        "the same, local waiters first",
    ),
    Kind::new(
        "polled-osq-shared",
        place_impatient::<OsqShared>,
        "the same, and spinners read their predecessor's CPU number in its node",
    ),
    Kind::new(
        "polled-osq-own-line",
        place_impatient::<OsqOwnLine>,
        "the same, in a line of its own",
    ),
    Kind::new(
        "polled-osq-cached",
        place_impatient::<OsqCached>,
        "the same, in a copy of their own",
    ),
    Kind::new(
        "futex",
        super::futex::place,
        "a mutex as the standard library's on Linux: spins shortly, then sleeps; no queue",
    ),
];

fn place<C: MutexConfig>(_: usize) -> &'static dyn Lock {
    crate::place(Mutex::<C>(QueuedMutex::default()))
}

fn place_owned<C: MutexConfig>(_: usize) -> &'static dyn Lock {
    crate::place(Owned {
        mutex: Mutex::<C>(QueuedMutex::default()),
        owner: SimU32::new(0),
    })
}

fn place_impatient<C: MutexConfig>(_: usize) -> &'static dyn Lock {
    crate::place(Impatient(Mutex::<C>(QueuedMutex::default())))
}

struct Mutex<C: MutexConfig>(QueuedMutex<Sim, C>);

impl<C: MutexConfig> Lock for Mutex<C> {
    fn lock(&self, _: usize) {
        self.0.lock();
    }

    fn unlock(&self, _: usize) {
        // SAFETY: invariant 1.
        unsafe { self.0.unlock() }
    }
}

/// A mutex with its owner's name beside it, as a kernel's has: written after locking and before
/// unlocking.
struct Owned<C: MutexConfig> {
    mutex: Mutex<C>,
    owner: SimU32,
}

impl<C: MutexConfig> Lock for Owned<C> {
    fn lock(&self, me: usize) {
        self.mutex.lock(me);
        self.owner.store(me as u32 + 1, Relaxed);
    }

    fn unlock(&self, me: usize) {
        self.owner.store(0, Relaxed);
        self.mutex.unlock(me);
    }
}

/// A mutex whose waiters give up now and then, and start anew: they leave the queue from any place
/// in it.
struct Impatient<C: MutexConfig>(Mutex<C>);

/// Nanoseconds after which they do so first; each later time takes twice as long.
const PATIENCE: u64 = 200_000;

impl<C: MutexConfig> Lock for Impatient<C> {
    fn lock(&self, _: usize) {
        let mut patience = PATIENCE;
        while !self.0.0.lock_until(Sim::now() + patience) {
            patience *= 2;
        }
    }

    fn unlock(&self, me: usize) {
        self.0.unlock(me);
    }
}

macro_rules! configuration {
    ($name:ident, $park:literal, $polls:literal, $queue:expr) => {
        #[derive(Clone, Copy, Debug)]
        struct $name;

        impl MutexConfig for $name {
            const PARK: bool = $park;
            const POLLS: bool = $polls;

            fn tuning() -> Tuning {
                let mut tuning = with(|w| w.tuning);
                tuning.reorder |= matches!(Self::queue(), Queue::Cna);
                tuning
            }

            fn queue() -> Queue {
                $queue
            }
        }
    };
}

/// As in the published spin loop, which reads the predecessor's CPU in each iteration: a `pause`,
/// two loads and a compare.
const fn every_iteration(layout: PredecessorCpu) -> Queue {
    Queue::Osq(Watch { layout, every: 50 })
}

use PredecessorCpu::{Cached, OwnLine, SharedLine};
configuration!(Fifo, true, false, Queue::Osq(Watch::CACHED));
configuration!(Unqueued, true, false, Queue::Unqueued);
configuration!(LocalFirst, true, false, Queue::Cna);
configuration!(PolledLocalFirst, false, true, Queue::Cna);
configuration!(Polled, false, true, Queue::Unqueued);
configuration!(PolledFifo, false, true, Queue::Osq(Watch::CACHED));
configuration!(OsqShared, false, true, every_iteration(SharedLine));
configuration!(OsqOwnLine, false, true, every_iteration(OwnLine));
configuration!(OsqCached, false, true, every_iteration(Cached));
