//! Tests on words and waits prepared for them.

mod barging;
mod classifier;
mod oversubscribed;
mod sleep;
mod word;

use super::prediction::Prediction;
use super::wait::Wait;
use super::*;
use crate::Native;
use crate::tuning::Quantum;

#[derive(Clone, Copy, Debug)]
struct Sound;

impl MutexConfig for Sound {
    fn tuning() -> Tuning {
        Tuning::DEFAULT
    }
}

/// Polls like a kernel's spinners.
#[derive(Clone, Copy, Debug)]
struct Polling;

impl MutexConfig for Polling {
    const POLLS: bool = true;
    fn tuning() -> Tuning {
        Tuning::DEFAULT
    }
}

/// Without a quantum: the head may have the lock each time it is free.
#[derive(Clone, Copy, Debug)]
struct Fair;

impl MutexConfig for Fair {
    fn tuning() -> Tuning {
        Tuning {
            quantum: Quantum::FAIR,
            ..Tuning::DEFAULT
        }
    }
}

/// Barging is expected from the beginning.
#[derive(Clone, Copy, Debug)]
struct Barging;

impl MutexConfig for Barging {
    fn tuning() -> Tuning {
        Tuning::DEFAULT
    }
    fn initial_budget() -> Option<u16> {
        Some(5)
    }
}

macro_rules! broken {
    ($name:ident) => {
        #[derive(Clone, Copy, Debug)]
        struct $name;

        impl MutexConfig for $name {
            const FAULT: MutexFault = MutexFault::$name;
            fn tuning() -> Tuning {
                Tuning::DEFAULT
            }
        }
    };
}

broken!(LeakyCancel);
broken!(DoubleHandOff);
broken!(QueuedRequest);
broken!(SilentRequeue);

type Mutex<C = Sound> = QueuedMutex<Native, C>;

fn with<C: MutexConfig>(locked: u8, flags: u8) -> Mutex<C> {
    let mutex = Mutex::new();
    mutex.locked.store(locked, Relaxed);
    mutex.flags.store(flags, Relaxed);
    mutex
}

fn state<C: MutexConfig>(mutex: &Mutex<C>) -> (u8, u8) {
    (mutex.locked.load(Relaxed), mutex.flags.load(Relaxed))
}

/// A wait that has come to the front.
fn at_front() -> Wait {
    Wait {
        quantum: 0,
        ..Wait::new(NEVER, Tuning::DEFAULT)
    }
}

fn requester() -> Wait {
    Wait {
        requested: true,
        ..at_front()
    }
}

fn unlock<C: MutexConfig>(mutex: &Mutex<C>) {
    // SAFETY: every caller has prepared a word that says that the lock is held. Nothing else uses
    // it.
    unsafe { mutex.unlock() }
}

/// A wait that expects barging, with so large a budget.
fn expecting(budget: u16, oversubscribed: bool) -> Wait {
    Wait {
        prediction: Prediction::barging(budget),
        oversubscribed,
        since: Native::now(),
        quantum: 50_000_000,
        ..at_front()
    }
}

/// Runs `work` while another thread stands in the queue.
fn behind_another<C: MutexConfig>(mutex: &Mutex<C>, work: impl FnOnce()) {
    let place = Native::waiters().enter().expect("a slot is free");
    let watch = Watch {
        layout: PredecessorCpu::Cached,
        every: 1_000,
    };
    assert!(mutex.spinners.join(&place, watch, 0, NEVER));
    work();
    mutex.spinners.leave(&place);
}
