//! Loom models of notifications while the mutex is held. Woken waiters take the mutex by
//! [`QueuedMutex::lock_notified`], as in unmodified programs.
//!
//! # Invariant cited by `SAFETY` comments
//!
//! 1. The mutex guards the cell. If it is broken, loom reports the access before it happens.
#![cfg(loom)]

mod model;

use kinlock_core::loom::Loom;
use kinlock_core::platform::Platform;
use kinlock_core::raw::condvar::Partner;
use kinlock_core::raw::mutex::{Joined, QueuedMutex};
use kinlock_core::raw::{LockConfig, QueuedCondvar};
use loom::cell::UnsafeCell;

/// One wait in `TRIALS` is a trial, which finds out whether the mutex should be kept.
#[derive(Clone, Copy, Debug)]
struct Config<const TRIALS: u32>;

impl<const TRIALS: u32> LockConfig for Config<TRIALS> {
    const TRIALS: u32 = TRIALS;
}

/// A configuration, and the platform of its locks.
trait Model: LockConfig {
    type On: Platform;
}

impl<const TRIALS: u32> Model for Config<TRIALS> {
    type On = Loom;
}

struct Sleepy<C: Model>(QueuedMutex<C::On, C, Joined<C::On>>);

impl<C: Model> Partner<C::On> for Sleepy<C> {
    unsafe fn unlock(&self) -> bool {
        // SAFETY: by the caller.
        unsafe { self.0.unlock() };
        true
    }

    fn lock(&self) {
        self.0.lock();
    }

    fn lock_notified(&self) {
        self.0.lock_notified();
    }
}

struct Shared<C: Model> {
    mutex: Sleepy<C>,
    condvar: QueuedCondvar<C::On>,
    tokens: UnsafeCell<u32>,
}

impl<C: Model> Shared<C> {
    /// Adds tokens and notifies, all under the mutex.
    fn give<R>(&self, tokens: u32, notify: fn(&QueuedCondvar<C::On>) -> R) -> u32 {
        self.mutex.lock();
        // SAFETY: invariant 1.
        self.tokens.with_mut(|t| unsafe { *t += tokens });
        notify(&self.condvar);
        loom::thread::yield_now();
        // SAFETY: taken above.
        u32::from(!unsafe { self.mutex.unlock() })
    }

    fn take(&self) -> u32 {
        self.mutex.lock();
        // SAFETY: invariant 1.
        while self.tokens.with(|t| unsafe { *t }) == 0 {
            // SAFETY: held.
            unsafe { self.condvar.wait(&self.mutex) };
        }
        // SAFETY: invariant 1.
        self.tokens.with_mut(|t| unsafe { *t -= 1 });
        // SAFETY: held.
        unsafe { self.mutex.unlock() }.into()
    }
}

/// Thread 0 gives two tokens, with a signal for each or one broadcast. Each other thread takes one.
fn explore<C: Model>(name: &str, body: fn(&Shared<C>, usize) -> u32) {
    let make = || Shared {
        mutex: Sleepy(QueuedMutex::default()),
        condvar: QueuedCondvar::new(),
        tokens: UnsafeCell::new(0),
    };
    let check = |shared: &Shared<C>, taken: Vec<u32>| {
        assert_eq!(taken, [0, 1, 1], "a token was lost");
        assert!(shared.mutex.0.try_lock(), "the mutex was left locked");
    };
    model::explore(name, 2, 3, make, body, check);
}

fn signals<C: Model>(shared: &Shared<C>, i: usize) -> u32 {
    match i {
        0 => shared.give(1, QueuedCondvar::notify_one) + shared.give(1, QueuedCondvar::notify_one),
        _ => shared.take(),
    }
}

fn broadcast<C: Model>(shared: &Shared<C>, i: usize) -> u32 {
    match i {
        0 => shared.give(2, QueuedCondvar::notify_all),
        _ => shared.take(),
    }
}

#[test]
fn under_the_mutex() {
    explore::<Config<0>>("2 waiters, signals under the mutex", signals);
    explore::<Config<0>>("2 waiters, broadcast under the mutex", broadcast);
    explore::<Config<1>>("2 waiters, broadcast under a kept mutex", broadcast);
}
