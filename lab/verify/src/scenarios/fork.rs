//! Forks while other threads hold and wait for locks. The child has only the forking thread. It
//! uses locks that no other thread used at that moment: a new one, one at rest, and one that the
//! forking thread held.
//!
//! # Invariants
//!
//! 1. A lock is released by the thread that has just taken it, or, in the child, by the copy of the
//!    thread that held it when it forked.

use super::{Context, Stage};
use crate::child::{self, FINE};
use crate::crew::Crew;
use crate::locks::Specimen;
use crate::report::{Findings, Property};
use std::sync::Arc;
use std::time::Duration;

const CHILD_THREADS: u32 = 3;
const CHILD_SECTIONS: u32 = 100;
/// The exit status of a child in which two threads held a lock.
const NOT_EXCLUSIVE: i32 = 10;
/// The pause between two looks at a child.
const PAUSE: Duration = Duration::from_micros(200);

pub(super) fn run(context: &Context) -> Findings {
    let stage = Arc::new(Stage::new(context.specimen.new));
    let mut parent = Parent {
        specimen: context.specimen,
        at_rest: Stage::new(context.specimen.new),
        held: Stage::new(context.specimen.new),
        patience: context.orders.hang,
        children: 0,
        failure: None,
    };
    contend(&parent.at_rest);
    let fork = |crew: &Crew| {
        parent.fork_one(crew);
        parent.children > 0
    };
    let findings = context.contend(&stage, |_| (), fork);
    let children = parent.children;
    let contract = match parent.failure {
        None => Ok(format!(
            "{children} children used three kinds of locks each"
        )),
        Some(failure) => Err(failure),
    };
    findings
        .on(&stage.state)
        .with(Property::Contract, contract)
        .with_reach(children > 0, format!("{children} children"))
}

struct Parent {
    specimen: Specimen,
    at_rest: Stage,
    held: Stage,
    patience: Duration,
    children: u32,
    failure: Option<String>,
}

impl Parent {
    fn fork_one(&mut self, crew: &Crew) {
        if crew.stopping() || self.failure.is_some() {
            return;
        }
        self.held.lock().lock();
        let child = child::fork(|| self.use_locks());
        // SAFETY: invariant 1.
        unsafe { self.held.lock().unlock() };
        if let Some(child) = child {
            self.children += 1;
            let result = child.wait(self.patience, |_| std::thread::sleep(PAUSE));
            let failure = match result {
                Ok(FINE) => return,
                Ok(NOT_EXCLUSIVE) => "found that a lock excluded nobody".into(),
                Ok(code) => format!("ended with status {code}"),
                Err(what) => what,
            };
            self.failure = Some(format!("child {} {failure}", self.children));
        }
    }

    /// What a child does. Returns its exit status.
    fn use_locks(&self) -> i32 {
        // SAFETY: invariant 1.
        unsafe { self.held.lock().unlock() };
        for stage in [&self.held, &self.at_rest, &Stage::new(self.specimen.new)] {
            contend(stage);
            if stage.state.no_violation().is_err() {
                return NOT_EXCLUSIVE;
            }
        }
        FINE
    }
}

/// A few threads use the lock, and now and then all of them queue for it.
fn contend(stage: &Stage) {
    let use_it = |me: u32| {
        for i in 0..CHILD_SECTIONS {
            stage.lock().lock();
            stage.state.section(me, || {
                if i % 16 == 0 {
                    std::thread::yield_now();
                }
            });
            // SAFETY: invariant 1.
            unsafe { stage.lock().unlock() };
        }
    };
    std::thread::scope(|scope| {
        (1..=CHILD_THREADS).for_each(|me| drop(scope.spawn(move || use_it(me))));
    });
}
