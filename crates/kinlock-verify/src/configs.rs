//! Configurations of the library's locks and condition variables: sound ones, and each with one
//! defect switched on.

use crate::pretend;
use kinlock_core::config::Tuning;
use kinlock_core::raw::condvar::{CondvarConfig, CondvarFault};
use kinlock_core::raw::mutex::{MutexConfig, MutexFault};
use kinlock_core::raw::{Config, Fault};

macro_rules! spinlocks {
    ($($name:ident: $fault:ident, $tuning:expr;)*) => {$(
        #[derive(Clone, Copy, Debug)]
        pub(crate) struct $name;

        impl Config for $name {
            const FAULT: Fault = Fault::$fault;

            fn tuning() -> Tuning {
                $tuning
            }
        }
    )*};
}

spinlocks! {
    Tuned: None, kinlock_core::config::tuning();
    Fifo: None, reordering(false);
    Cna: None, reordering(true);
    Strict: None, strict();
    NoExclusion: NoExclusion, reordering(true);
    LostSplice: LostSplice, reordering(true);
    LostWakeup: LostWakeup, reordering(true);
    SilentSleeper: SilentSleeper, reordering(true);
    Starvation: Starvation, reordering(true);
}

macro_rules! mutexes {
    ($($name:ident: $fault:ident;)*) => {$(
        #[derive(Clone, Copy, Debug)]
        pub(crate) struct $name;

        impl MutexConfig for $name {
            const FAULT: MutexFault = MutexFault::$fault;

            fn tuning() -> Tuning {
                kinlock_core::config::tuning()
            }

            fn initial_budget() -> Option<u16> {
                pretend::barging_at_first()
            }
        }
    )*};
}

mutexes! {
    SoundMutex: None;
    MissingWake: MissingWake;
    LostMutexWakeup: LostWakeup;
    DoubleHandOff: DoubleHandOff;
    LeakyCancel: LeakyCancel;
    QueuedRequest: QueuedRequest;
}

macro_rules! condvars {
    ($($name:ident: $fault:ident;)*) => {$(
        #[derive(Clone, Copy, Debug)]
        pub(crate) struct $name;

        impl CondvarConfig for $name {
            const FAULT: CondvarFault = CondvarFault::$fault;
            // Few, so that a broadcast moves the others to the mutex wherever some sleep.
            const AT_ONCE: u32 = 4;
        }
    )*};
}

condvars! {
    SoundCondvar: None;
    BlindSleep: BlindSleep;
    CarelessClear: CarelessClear;
    BrokenChain: BrokenChain;
    SwallowedWake: SwallowedWake;
    LingeringSpinner: LingeringSpinner;
}

fn reordering(on: bool) -> Tuning {
    let mut tuning = kinlock_core::config::tuning();
    tuning.reorder = on;
    tuning
}

/// NUMA-aware, and without stealing.
fn strict() -> Tuning {
    let mut tuning = reordering(true);
    tuning.stealing = false;
    tuning
}
