//! Loom models of running a function once, in every interleaving with a bounded number of
//! preemptions.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release -p kinlock-core --test loom_once -- --nocapture`
//!
//! A lost wake-up is a deadlock, which loom reports.
//!
//! # Invariant cited by `SAFETY` comments
//!
//! 1. One function runs at a time, and threads read the cell after a function has ended. If this is
//!    broken, loom reports the access before it happens.
#![cfg(loom)]

mod model;

use kinlock_core::loom::Loom;
use kinlock_core::platform::Platform;
use kinlock_core::raw::once::{OnceState, RunOnce};
use loom::cell::UnsafeCell;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// How many functions have run.
struct Shared<P: Platform> {
    once: RunOnce<P>,
    runs: UnsafeCell<u32>,
}

impl<P: Platform> Shared<P> {
    fn add_one(&self) {
        // SAFETY: invariant 1.
        self.runs.with_mut(|runs| unsafe { *runs += 1 });
    }

    /// How many functions had run when a call returned.
    fn seen(&self) -> u32 {
        assert_eq!(self.once.state(), OnceState::Done);
        // SAFETY: invariant 1.
        self.runs.with(|runs| unsafe { *runs })
    }
}

fn explore<P: Platform>(
    name: &str,
    preemptions: usize,
    threads: usize,
    runs: u32,
    body: fn(&Shared<P>, usize) -> u32,
) {
    let make = || Shared::<P> {
        once: RunOnce::default(),
        runs: UnsafeCell::new(0),
    };
    model::explore(name, preemptions, threads, make, body, move |_, seen| {
        assert!(seen.iter().all(|&s| s == runs), "a call returned too early");
    });
}

/// All threads call; one function runs.
fn all_call<P: Platform>(shared: &Shared<P>, _: usize) -> u32 {
    let called = shared.once.call(false, |_| shared.add_one());
    assert_eq!(called, Ok(()));
    shared.seen()
}

/// The first function panics. All threads call again until a function has returned.
fn first_panics<P: Platform>(shared: &Shared<P>, _: usize) -> u32 {
    let run = |state| {
        shared.add_one();
        if state == OnceState::New {
            // This panics without a message.
            std::panic::resume_unwind(Box::new(()));
        }
    };
    while catch_unwind(AssertUnwindSafe(|| shared.once.call(true, run))).is_err() {}
    shared.seen()
}

#[test]
fn two_call() {
    explore::<Loom>("once: 2 call", 4, 2, 1, all_call);
}

#[test]
fn three_call() {
    explore::<Loom>("once: 3 call", 3, 3, 1, all_call);
}

#[test]
fn two_call_and_the_first_panics() {
    explore::<Loom>("once: 2 call, the first panics", 3, 2, 2, first_panics);
}

#[test]
fn three_call_and_the_first_panics() {
    explore::<Loom>("once: 3 call, the first panics", 2, 3, 2, first_panics);
}
