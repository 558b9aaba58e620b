//! The algorithms with the knobs in force.

use crate::config;
use crate::native::kind_of_queue;
use crate::raw::mutex::{MutexConfig, Queue};
use crate::raw::qspinlock::Config;
use crate::raw::rwlock::RwLockConfig;
use crate::tuning::Tuning;
use core::sync::atomic::Ordering::Relaxed;

/// The knobs of [`config`]: what the crate `kinlock` uses.
#[derive(Clone, Copy, Debug)]
pub struct AsConfigured;

impl Config for AsConfigured {
    fn tuning() -> Tuning {
        config::tuning_of_spinlock()
    }
}

impl MutexConfig for AsConfigured {
    fn tuning() -> Tuning {
        config::tuning_of_wait()
    }

    fn queue() -> Queue {
        match kind_of_queue().load(Relaxed) {
            FIFO => Queue::Osq,
            LOCAL_FIRST => Queue::Cna,
            _ => choose_queue(),
        }
    }
}

impl RwLockConfig for AsConfigured {
    fn tuning() -> Tuning {
        config::tuning_of_wait()
    }

    fn queue() -> Queue {
        <Self as MutexConfig>::queue()
    }
}

/// As [`AsConfigured`], but always first in, first out.
#[derive(Clone, Copy, Debug)]
pub struct Fifo;

impl Config for Fifo {
    fn tuning() -> Tuning {
        Tuning {
            reorder: false,
            ..config::tuning_of_wait()
        }
    }
}

/// As [`Fifo`], and no thread overtakes a waiter that sleeps.
#[derive(Clone, Copy, Debug)]
pub struct InOrder;

impl Config for InOrder {
    fn tuning() -> Tuning {
        Tuning {
            stealing: false,
            ..<Fifo as Config>::tuning()
        }
    }
}

/// As [`AsConfigured`], but always NUMA-aware.
#[derive(Clone, Copy, Debug)]
pub struct NumaAware;

impl Config for NumaAware {
    fn tuning() -> Tuning {
        Tuning {
            reorder: true,
            ..config::tuning_of_wait()
        }
    }
}

// The kind of queue of all mutexes, decided once: one lock must not mix two kinds.
const UNDECIDED: u8 = 0;
const FIFO: u8 = 1;
const LOCAL_FIRST: u8 = 2;

#[cold]
fn choose_queue() -> Queue {
    let choice = if !config::is_decided() {
        // Nobody knows the locality domains yet. Waiters use no queue meanwhile.
        return Queue::Unqueued;
    } else if config::tuning().reorder {
        LOCAL_FIRST
    } else {
        FIFO
    };
    let _ = kind_of_queue().compare_exchange(UNDECIDED, choice, Relaxed, Relaxed);
    <AsConfigured as MutexConfig>::queue()
}
