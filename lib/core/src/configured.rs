//! The algorithms with the knobs in force, as a [`Source`] completes them.

use crate::config::{self, Source};
use crate::raw::mutex::{MutexConfig, QueueKind};
use crate::raw::qspinlock::Config;
use crate::raw::rwlock::RwLockConfig;
use crate::tuning::Tuning;
use core::marker::PhantomData;
use core::sync::atomic::Ordering::Relaxed;

/// The knobs of [`config`]: what the crate `kinlock` uses.
#[derive(Clone, Copy, Debug)]
pub struct AsConfigured<S>(PhantomData<S>);

impl<S: Source> Config for AsConfigured<S> {
    fn tuning() -> Tuning {
        config::tuning_of_spinlock::<S>()
    }
}

impl<S: Source> MutexConfig for AsConfigured<S> {
    fn tuning() -> Tuning {
        config::tuning_of_wait::<S>()
    }

    fn queue() -> QueueKind {
        match S::kind_of_queue().load(Relaxed) {
            FIFO => QueueKind::Osq,
            LOCAL_FIRST => QueueKind::Cna,
            _ => choose_queue::<S>(),
        }
    }
}

impl<S: Source> RwLockConfig for AsConfigured<S> {
    fn tuning() -> Tuning {
        config::tuning_of_wait::<S>()
    }

    fn queue() -> QueueKind {
        <Self as MutexConfig>::queue()
    }
}

/// As [`AsConfigured`], but always first in, first out.
#[derive(Clone, Copy, Debug)]
pub struct Fifo<S>(PhantomData<S>);

impl<S: Source> Config for Fifo<S> {
    fn tuning() -> Tuning {
        Tuning {
            reorder: false,
            ..config::tuning_of_wait::<S>()
        }
    }
}

/// As [`Fifo`], and no thread overtakes a waiter that sleeps.
#[derive(Clone, Copy, Debug)]
pub struct InOrder<S>(PhantomData<S>);

impl<S: Source> Config for InOrder<S> {
    fn tuning() -> Tuning {
        Tuning {
            stealing: false,
            ..<Fifo<S> as Config>::tuning()
        }
    }
}

/// As [`AsConfigured`], but always NUMA-aware.
#[derive(Clone, Copy, Debug)]
pub struct NumaAware<S>(PhantomData<S>);

impl<S: Source> Config for NumaAware<S> {
    fn tuning() -> Tuning {
        Tuning {
            reorder: true,
            ..config::tuning_of_wait::<S>()
        }
    }
}

// The kind of queue of all mutexes, decided once: one lock must not mix two kinds.
const UNDECIDED: u8 = 0;
const FIFO: u8 = 1;
const LOCAL_FIRST: u8 = 2;

#[cold]
fn choose_queue<S: Source>() -> QueueKind {
    let choice = if !config::is_decided() {
        // Nobody knows the locality domains yet. Waiters use no queue meanwhile.
        return QueueKind::Unqueued;
    } else if config::tuning::<S>().reorder {
        LOCAL_FIRST
    } else {
        FIFO
    };
    let _ = S::kind_of_queue().compare_exchange(UNDECIDED, choice, Relaxed, Relaxed);
    <AsConfigured<S> as MutexConfig>::queue()
}
