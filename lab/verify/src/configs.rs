//! Configurations of the library's locks and condition variables: sound ones, and each with one
//! defect switched on.

use kinlock_core::config::{Quantum, Tuning};
use kinlock_core::platform::Platform;
use kinlock_core::raw::condvar::{CondvarConfig, CondvarFault};
use kinlock_core::raw::mutex::{MutexConfig, MutexFault};
use kinlock_core::raw::once::{OnceConfig, OnceFault};
use kinlock_core::raw::rwlock::{RwLockConfig, RwLockFault};
use kinlock_core::raw::{Config, Fault};
use kinlock_linux::Native;

/// Configurations of one kind, each with its fault and its functions.
macro_rules! configs {
    ($kind:ident, $faults:ident; $($name:ident: $fault:ident $rest:tt)*) => {$(
        #[derive(Clone, Copy, Debug)]
        pub(crate) struct $name;

        impl $kind for $name {
            const FAULT: $faults = $faults::$fault;
            configs!(@$kind $rest);
        }
    )*};
    (@Config ($tuning:expr)) => {
        fn tuning() -> Tuning {
            $tuning
        }
    };
    // Many trials, since few waits follow each other at one lock. Many hand-off requests, too,
    // which are made and withdrawn at once: time limits here are shorter than the quantum.
    (@MutexConfig ()) => {
        const TRIALS: u32 = 4;

        fn tuning() -> Tuning {
            let mut tuning = kinlock_linux::config::tuning();
            if Native::random() % 2 == 0 {
                tuning.quantum = Quantum::FAIR;
            }
            tuning
        }
    };
    // Few, so that a broadcast moves the others to the mutex wherever some sleep.
    // The same.
    (@RwLockConfig ()) => {
        const TRIALS: u32 = 4;

        fn tuning() -> Tuning {
            <SoundMutex as MutexConfig>::tuning()
        }
    };
    (@OnceConfig ()) => {};
    (@CondvarConfig ()) => {
        const AT_ONCE: u32 = 4;
    };
}

configs! {
    Config, Fault;
    Tuned: None (kinlock_linux::config::tuning())
    Fifo: None (reordering(false))
    Cna: None (reordering(true))
    Strict: None (strict())
    NoExclusion: NoExclusion (reordering(true))
    LostSplice: LostSplice (reordering(true))
    LostWakeup: LostWakeup (reordering(true))
    SilentSleeper: SilentSleeper (reordering(true))
    Starvation: Starvation (reordering(true))
}

configs! {
    MutexConfig, MutexFault;
    SoundMutex: None ()
    MissingWake: MissingWake ()
    LostMutexWakeup: LostWakeup ()
    DoubleHandOff: DoubleHandOff ()
    LeakyCancel: LeakyCancel ()
}

configs! {
    RwLockConfig, RwLockFault;
    SoundRwLock: None ()
    LostReader: LostReader ()
    UnseenReader: UnseenReader ()
    HastyReader: HastyReader ()
    BiasInWrite: BiasInWrite ()
    MissingRwWake: MissingWake ()
    LeakyRequest: LeakyRequest ()
    StaleWriter: StaleWriter ()
    HastyRelease: HastyRelease ()
}

configs! {
    CondvarConfig, CondvarFault;
    SoundCondvar: None ()
    BlindSleep: BlindSleep ()
    CarelessClear: CarelessClear ()
    BrokenChain: BrokenChain ()
    SwallowedWake: SwallowedWake ()
    LingeringSpinner: LingeringSpinner ()
}

configs! {
    OnceConfig, OnceFault;
    SoundOnce: None ()
    EarlyDone: EarlyDone ()
    MissingOnceWake: MissingWake ()
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
