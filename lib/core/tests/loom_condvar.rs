//! Loom models of the condition variable: small scenarios in every interleaving with a bounded
//! number of preemptions.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release -p kinlock-core --test loom_condvar -- --nocapture`
//!
//! A lost wake-up is a deadlock, which loom reports.
//!
//! # Invariant cited by `SAFETY` comments
//!
//! 1. The mutex guards the cell. If it is broken, loom reports the access before it happens.
#![cfg(loom)]

mod model;

use kinlock_core::loom::{Loom, set_oversubscribed};
use kinlock_core::platform::Platform;
use kinlock_core::raw::{LockConfig, QueuedCondvar, QueuedMutex};
use loom::cell::UnsafeCell;

/// One wait in `N` is a trial, which finds out whether the mutex should be kept; 0: none is.
#[derive(Clone, Copy, Debug)]
struct Trials<const N: u32>;

impl<const N: u32> LockConfig for Trials<N> {
    const TRIALS: u32 = N;
}

/// A configuration, and the platform of its locks.
trait Model: LockConfig {
    type On: Platform;
}

#[derive(Clone, Copy, Debug)]
struct Correct;

impl LockConfig for Correct {
    const AT_ONCE: u32 = 0;
}

impl Model for Correct {
    type On = Loom;
}

/// A broadcast wakes one waiter at once and moves the others, so two waiters are enough to explore
/// both.
#[derive(Clone, Copy, Debug)]
struct OneAtOnce;

impl LockConfig for OneAtOnce {
    const AT_ONCE: u32 = 1;
}

impl Model for OneAtOnce {
    type On = Loom;
}

/// A deadline right after the start: it passes when a sleep of the thread ends without a wake-up.
const SOON: u64 = 1;

/// Tokens under a mutex.
struct Shared<C: Model, const TRIALS: u32> {
    mutex: QueuedMutex<C::On, Trials<TRIALS>>,
    condvar: QueuedCondvar<C::On, C>,
    tokens: UnsafeCell<u32>,
}

impl<C: Model, const TRIALS: u32> Shared<C, TRIALS> {
    /// Adds tokens under the mutex, then notifies without it.
    fn give<R>(&self, tokens: u32, notify: impl Fn(&QueuedCondvar<C::On, C>) -> R) {
        self.mutex.lock();
        // SAFETY: invariant 1.
        self.tokens.with_mut(|t| unsafe { *t += tokens });
        // SAFETY: taken above.
        unsafe { self.mutex.unlock() };
        notify(&self.condvar);
    }

    /// Waits for a token and takes it. Returns the number of tokens taken.
    fn take(&self) -> u32 {
        self.mutex.lock();
        while self.available() == 0 {
            // SAFETY: held.
            unsafe { self.condvar.wait(&self.mutex) };
        }
        self.take_one()
    }

    /// Like `take`, with a time limit. After a timeout it does not check for a token.
    fn take_soon(&self) -> u32 {
        self.mutex.lock();
        while self.available() == 0 {
            // SAFETY: held.
            if !unsafe { self.condvar.wait_until(&self.mutex, SOON) } {
                // SAFETY: held.
                unsafe { self.mutex.unlock() };
                return 0;
            }
        }
        self.take_one()
    }

    fn available(&self) -> u32 {
        // SAFETY: invariant 1.
        self.tokens.with(|t| unsafe { *t })
    }

    fn take_one(&self) -> u32 {
        // SAFETY: invariant 1.
        self.tokens.with_mut(|t| unsafe { *t -= 1 });
        // SAFETY: taken by the caller.
        unsafe { self.mutex.unlock() };
        1
    }
}

/// Explores `body` in `threads` threads. `body` returns how many of the `given` tokens its thread
/// kept.
fn explore<C: Model>(
    name: &str,
    preemptions: usize,
    threads: usize,
    given: u32,
    body: fn(&Shared<C, 0>, usize) -> u32,
) {
    explore_with::<C, 0>(name, preemptions, threads, given, body);
}

fn explore_with<C: Model, const TRIALS: u32>(
    name: &str,
    preemptions: usize,
    threads: usize,
    given: u32,
    body: fn(&Shared<C, TRIALS>, usize) -> u32,
) {
    let make = || Shared::<C, TRIALS> {
        mutex: QueuedMutex::default(),
        condvar: QueuedCondvar::new(),
        tokens: UnsafeCell::new(0),
    };
    let check = move |shared: &Shared<C, TRIALS>, taken: Vec<u32>| {
        let taken: u32 = taken.iter().sum();
        assert_eq!(given, taken + shared.available(), "a token was lost");
        assert!(!shared.mutex.is_locked(), "the mutex was left locked");
        assert!(shared.mutex.try_lock(), "a flag was left behind");
    };
    model::explore(name, preemptions, threads, make, body, check);
}

fn one_for_one<C: Model, const T: u32>(shared: &Shared<C, T>, i: usize) -> u32 {
    if i == 0 {
        shared.give(1, QueuedCondvar::notify_one);
        return 0;
    }
    shared.take()
}

/// The first thread notifies after each token.
fn two_ones<C: Model, const T: u32>(shared: &Shared<C, T>, i: usize) -> u32 {
    if i == 0 {
        shared.give(1, QueuedCondvar::notify_one);
        shared.give(1, QueuedCondvar::notify_one);
        return 0;
    }
    shared.take()
}

fn one_for_all<C: Model, const T: u32>(shared: &Shared<C, T>, i: usize) -> u32 {
    if i == 0 {
        shared.give(2, QueuedCondvar::notify_all);
        return 0;
    }
    shared.take()
}

/// Two notifications, one of which may find no waiter, and a waiter that waits twice.
fn twice<C: Model, const T: u32>(shared: &Shared<C, T>, i: usize) -> u32 {
    if i == 0 {
        shared.give(1, QueuedCondvar::notify_one);
        shared.give(1, QueuedCondvar::notify_one);
        return 0;
    }
    shared.take() + shared.take()
}

/// One waiter times out once it has slept. The other must get the token if the first does not.
fn one_gives_up<C: Model, const T: u32>(shared: &Shared<C, T>, i: usize) -> u32 {
    match i {
        0 => {
            shared.give(1, QueuedCondvar::notify_one);
            0
        }
        1 => {
            // The other waiter needs the token, and may not have been notified.
            if shared.take_soon() == 1 {
                shared.give(1, QueuedCondvar::notify_one);
            }
            0
        }
        _ => shared.take(),
    }
}

/// A broadcast, and one waiter that times out once it has slept, perhaps on the mutex.
fn all_while_one_gives_up<C: Model, const T: u32>(shared: &Shared<C, T>, i: usize) -> u32 {
    match i {
        0 => {
            shared.give(2, QueuedCondvar::notify_all);
            0
        }
        1 => shared.take_soon(),
        _ => shared.take(),
    }
}

/// A body whose threads have CPUs on which to spin.
macro_rules! spinning {
    ($body:ident) => {
        |shared, i| {
            set_oversubscribed(false);
            $body(shared, i)
        }
    };
}

#[test]
fn notify_one_reaches_the_spinner() {
    explore::<Correct>("1 spinner, notify_one", 3, 2, 1, spinning!(one_for_one));
}

#[test]
fn a_spinner_may_wait_again() {
    explore::<Correct>(
        "1 spinner twice, notify_one twice",
        2,
        2,
        2,
        spinning!(twice),
    );
}

#[test]
fn notify_one_twice_reaches_spinner_and_sleeper() {
    explore::<Correct>(
        "2 waiters, 1 spins, notify_one twice",
        2,
        3,
        2,
        spinning!(two_ones),
    );
}

#[test]
fn notify_all_reaches_spinner_and_sleeper() {
    explore::<Correct>(
        "2 waiters, 1 spins, notify_all",
        2,
        3,
        2,
        spinning!(one_for_all),
    );
}

#[test]
fn a_time_limit_loses_no_notification_of_a_spinner() {
    explore::<Correct>(
        "2 waiters, 1 spins, 1 with a limit, notify_one",
        2,
        3,
        1,
        spinning!(one_gives_up),
    );
}

#[test]
fn notify_one_reaches_the_waiter() {
    explore::<Correct>("1 waiter, notify_one", 3, 2, 1, one_for_one);
}

#[test]
fn a_waiter_may_wait_again() {
    explore::<Correct>("1 waiter twice, notify_one twice", 3, 2, 2, twice);
}

#[test]
fn notify_one_twice_reaches_two() {
    explore::<Correct>("2 waiters, notify_one twice", 2, 3, 2, two_ones);
}

#[test]
fn notify_all_reaches_two() {
    explore::<Correct>("2 waiters, notify_all", 2, 3, 2, one_for_all);
}

#[test]
fn notify_all_reaches_the_woken_and_the_moved_waiter() {
    explore::<OneAtOnce>("2 waiters, notify_all, one at once", 2, 3, 2, one_for_all);
}

#[test]
fn notify_all_reaches_two_while_the_mutex_is_kept() {
    explore_with::<OneAtOnce, 1>("2 waiters, notify_all, kept mutex", 2, 3, 2, one_for_all);
}

#[test]
fn notify_all_reaches_three() {
    explore::<Correct>("3 waiters, notify_all", 1, 4, 3, |shared, i| {
        if i == 0 {
            shared.give(3, QueuedCondvar::notify_all);
            return 0;
        }
        shared.take()
    });
}

#[test]
fn a_time_limit_loses_no_notification() {
    explore::<Correct>(
        "2 waiters, 1 with a limit, notify_one",
        2,
        3,
        1,
        one_gives_up,
    );
}

#[test]
fn a_time_limit_loses_no_waiter_of_a_broadcast() {
    explore::<Correct>(
        "2 waiters, 1 with a limit, notify_all",
        2,
        3,
        2,
        all_while_one_gives_up,
    );
}
