//! Locks that nobody releases: they harm those who wait for them, and nobody else.
//!
//! # Invariants
//!
//! 1. The prison is taken once before the crew starts, and released once for that, by the watchdog. A prisoner
//!    releases it once after having taken it.

use super::{Context, Findings, Scenario, Stage, blocking};
use crate::crew::{self, Crew};
use crate::injector::Injector;
use crate::report::Property;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

pub(super) const SCENARIO: Scenario = Scenario {
    name: "leak",
    about: "threads that leaked guards, and some that wait for a leaked one, harm no other lock",
    weight: 2,
    needs_condvar: false,
    run,
};

/// Locks that each thread takes and forgets: far more than it has nodes to wait with.
const LEAKED: usize = 64;

fn run(context: &Context) -> Findings {
    let stage = Arc::new(Stage::new(context.specimen.new));
    let prison = Arc::new(Stage::new(context.specimen.new));
    let break_ins = Arc::new(AtomicU64::new(0));
    let prisoners = context.orders.threads / 2;
    prison.lock.lock();
    let outcome = {
        let (stage, inmates, break_ins) = (
            Arc::clone(&stage),
            Arc::clone(&prison),
            Arc::clone(&break_ins),
        );
        let (new, level) = (context.specimen.new, context.preemption);
        let mut released = false;
        crew::run(
            &context.orders,
            move |worker| {
                let leaked: Vec<_> = (0..LEAKED).map(|_| new()).collect();
                leaked.iter().for_each(|lock| lock.lock());
                if worker.index() < prisoners {
                    inmates.lock.lock();
                    inmates.state.section(worker.name(), || ());
                    // SAFETY: invariant 1.
                    unsafe { inmates.lock.unlock() };
                }
                let mut injector = Injector::new(level, worker.random.branch());
                while worker.running() {
                    worker.with_lock(&*stage.lock, blocking, |worker| {
                        stage.state.section(worker.name(), || injector.point());
                    });
                    let lock = &leaked[worker.random.below(LEAKED as u64) as usize];
                    let patience = Duration::from_micros(worker.random.below(20));
                    if lock.try_lock() || lock.try_lock_for(patience) {
                        break_ins.fetch_add(1, Relaxed);
                    }
                }
            },
            |crew: &Crew| {
                if crew.stopping() && !std::mem::replace(&mut released, true) {
                    // SAFETY: invariant 1.
                    unsafe { prison.lock.unlock() };
                }
                true
            },
        )
    };
    let contract = match break_ins.load(Relaxed) {
        0 => prison.state.no_violation().map(|()| {
            format!("{LEAKED} locks leaked by each thread stayed locked; {prisoners} threads waited for one")
        }),
        n => Err(format!("leaked locks were taken {n} times")),
    };
    let mut findings = Findings::new(outcome, &stage.state, 0).with(Property::Contract, contract);
    // Prisoners do nothing but wait.
    findings.acquisitions.drain(..prisoners);
    findings
}
