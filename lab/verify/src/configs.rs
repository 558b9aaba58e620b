//! Configurations of the library's locks and condition variables, for checks.

use kinlock_core::config::{Quantum, Tuning};
use kinlock_core::platform::Platform;
use kinlock_core::raw::LockConfig;
use kinlock_linux::Native;

/// Configurations of the spinlock.
macro_rules! spinlocks {
    ($($name:ident: $tuning:expr;)*) => {$(
        #[derive(Clone, Copy, Debug)]
        pub(crate) struct $name;

        impl LockConfig for $name {
            fn tuning() -> Tuning {
                $tuning
            }
        }
    )*};
}

spinlocks! {
    Tuned: kinlock_linux::config::tuning();
    Fifo: reordering(false);
    Cna: reordering(true);
    Strict: strict();
}

/// Of the mutex and the reader-writer lock. Many trials, since few waits follow each other at one
/// lock. Many hand-off requests, too, which are made and withdrawn at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Eager;

impl LockConfig for Eager {
    const TRIALS: u32 = 4;

    fn tuning() -> Tuning {
        let mut tuning = kinlock_linux::config::tuning();
        if Native::random() % 2 == 0 {
            tuning.quantum = Quantum::FAIR;
        }
        tuning
    }
}

fn reordering(on: bool) -> Tuning {
    let mut tuning = kinlock_linux::config::tuning();
    tuning.reorder = on;
    tuning
}

/// NUMA-aware, and without stealing.
fn strict() -> Tuning {
    let mut tuning = reordering(true);
    tuning.stealing = false;
    tuning
}
