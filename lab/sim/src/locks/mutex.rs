//! The library's own mutex, compiled from its source for the simulator, in several configurations.
//! The list also has the mutex of the standard library, with which ours is compared.
//!
//! # Invariants
//!
//! 1. Only the thread that took the lock calls [`Lock::unlock`], as that function demands.

use super::{Kind, Lock};
use crate::platform::Sim;
use crate::world::with;
use kinlock_core::config::Tuning;
use kinlock_core::raw::LockConfig;
use kinlock_core::raw::mutex::{QueueKind, QueuedMutex};

/// All mutexes that sleep. To simulate a new queue of the library, add a configuration below and an
/// entry here.
pub(super) const ALL: &[Kind] = &[
    Kind::new(
        "mutex",
        place::<Fifo>,
        "our mutex as configured: waiters sleep in a queue, the one at the front spins, \
         watches and requests",
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
        "our mutex without a queue: every waiter watches and requests for itself",
    ),
    Kind::new(
        "futex",
        super::futex::place,
        "a mutex as the standard library's on Linux: spins shortly, then sleeps; no queue",
    ),
];

fn place<C: LockConfig>(_: usize) -> &'static dyn Lock {
    crate::place(Mutex::<C>(QueuedMutex::default()))
}

struct Mutex<C: LockConfig>(QueuedMutex<Sim, C>);

impl<C: LockConfig> Lock for Mutex<C> {
    fn lock(&self, _: usize) {
        self.0.lock();
    }

    fn unlock(&self, _: usize) {
        // SAFETY: invariant 1.
        unsafe { self.0.unlock() }
    }
}

macro_rules! configuration {
    ($name:ident, $queue:expr) => {
        #[derive(Clone, Copy, Debug)]
        struct $name;

        impl LockConfig for $name {
            fn tuning() -> Tuning {
                let mut tuning = with(|w| w.tuning);
                tuning.reorder |= matches!(Self::queue(), QueueKind::Cna);
                tuning
            }

            fn queue() -> QueueKind {
                $queue
            }
        }
    };
}

configuration!(Fifo, QueueKind::Osq);
configuration!(Unqueued, QueueKind::Unqueued);
configuration!(LocalFirst, QueueKind::Cna);
