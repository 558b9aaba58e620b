//! Forks while other threads hold and wait for locks. The child has only the forking thread, and uses locks that were
//! not in use by others: one of its own, one at rest, and one that the forking thread holds.
//!
//! Between fork and exit the child allocates and starts threads. POSIX does not promise that this works in the child
//! of a process with threads; Linux's C libraries do.
//!
//! # Invariants
//!
//! 1. A lock is released by the thread that has just taken it, or, in the child, by the copy of the thread that held
//!    it when it forked.
//! 2. The child never returns from `child`: it ends by `_exit`.
//! 3. Until a child has been waited for, its number names no other process. The status is written to a live local.

use super::{Context, Findings, Scenario, Stage, blocking};
use crate::crew::{self, Crew};
use crate::injector::Injector;
use crate::locks::Specimen;
use crate::report::Property;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "fork",
    about: "children forked amid contention use locks of their own, at rest, and inherited",
    weight: 3,
    needs_condvar: false,
    run,
};

const CHILD_THREADS: u32 = 3;
const CHILD_SECTIONS: u32 = 100;

const FINE: i32 = 0;
const NOT_EXCLUSIVE: i32 = 10;
const PANICKED: i32 = 11;

fn run(context: &Context) -> Findings {
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
    let outcome = {
        let (stage, level) = (Arc::clone(&stage), context.preemption);
        crew::run(
            &context.orders,
            move |worker| {
                let mut injector = Injector::new(level, worker.random.branch());
                while worker.running() {
                    worker.with_lock(&*stage.lock, blocking, |worker| {
                        stage.state.section(worker.name(), || injector.point());
                    });
                }
            },
            |crew| {
                parent.fork_one(crew);
                parent.children > 0
            },
        )
    };
    let children = parent.children;
    let contract = match parent.failure {
        None => Ok(format!(
            "{children} children used three kinds of locks each"
        )),
        Some(failure) => Err(failure),
    };
    Findings::new(outcome, &stage.state, 0)
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
        self.held.lock.lock();
        // SAFETY: see the head of the file for what the child may do; it does not return (invariant 2).
        let child = match unsafe { libc::fork() } {
            -1 => None,
            0 => self.child(),
            child => Some(child),
        };
        // SAFETY: invariant 1.
        unsafe { self.held.lock.unlock() };
        if let Some(child) = child {
            self.children += 1;
            self.failure = self
                .wait_for(child)
                .err()
                .map(|what| format!("child {}: {what}", self.children));
        }
    }

    fn child(&self) -> ! {
        let used = catch_unwind(AssertUnwindSafe(|| self.use_locks()));
        let code = match used {
            Ok(Ok(())) => FINE,
            Ok(Err(_)) => NOT_EXCLUSIVE,
            Err(_) => PANICKED,
        };
        // SAFETY: no preconditions; invariant 2.
        unsafe { libc::_exit(code) }
    }

    fn use_locks(&self) -> Result<(), String> {
        // SAFETY: invariant 1.
        unsafe { self.held.lock.unlock() };
        for stage in [&self.held, &self.at_rest, &Stage::new(self.specimen.new)] {
            contend(stage);
            stage.state.no_violation()?;
        }
        Ok(())
    }

    fn wait_for(&self, child: i32) -> Result<(), String> {
        let give_up = Instant::now() + self.patience;
        let mut status = 0;
        // SAFETY: invariant 3.
        while unsafe { libc::waitpid(child, &mut status, libc::WNOHANG) } == 0 {
            if Instant::now() >= give_up {
                // SAFETY: invariant 3.
                unsafe {
                    libc::kill(child, libc::SIGKILL);
                    libc::waitpid(child, &mut status, 0);
                }
                return Err(format!("still busy after {:?}", self.patience));
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        match (libc::WIFEXITED(status), libc::WEXITSTATUS(status)) {
            (true, FINE) => Ok(()),
            (true, NOT_EXCLUSIVE) => Err("a lock excluded nobody".into()),
            (true, PANICKED) => Err("it panicked".into()),
            _ => Err(format!("ended with wait status {status:#x}")),
        }
    }
}

/// A few threads use the lock until all queue for it now and then.
fn contend(stage: &Stage) {
    std::thread::scope(|scope| {
        for me in 1..=CHILD_THREADS {
            scope.spawn(move || {
                for i in 0..CHILD_SECTIONS {
                    stage.lock.lock();
                    stage.state.section(me, || {
                        if i % 16 == 0 {
                            std::thread::yield_now();
                        }
                    });
                    // SAFETY: invariant 1.
                    unsafe { stage.lock.unlock() };
                }
            });
        }
    });
}
