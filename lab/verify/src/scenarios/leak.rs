//! Locks that are never released. They must harm only the threads that wait for them.
//!
//! # Invariants
//!
//! 1. The prison is taken once before the crew starts, and released once for that, by the watchdog.
//!    A prisoner releases it once after having taken it.

use super::{Context, Stage};
use crate::crew::{self, Crew, Worker};
use crate::report::{Findings, Property};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// How many locks each thread takes and forgets: far more than a thread has nodes to wait with.
const LEAKED: usize = 64;

struct Shared {
    stage: Stage,
    prison: Stage,
    /// How often a leaked lock was taken again.
    break_ins: AtomicU64,
}

pub(super) fn run(context: &Context) -> Findings {
    let shared = Arc::new(Shared {
        stage: Stage::new(context.specimen.new),
        prison: Stage::new(context.specimen.new),
        break_ins: AtomicU64::new(0),
    });
    let prisoners = context.orders.threads / 2;
    shared.prison.lock().lock();
    let mut released = false;
    let release = |crew: &Crew| {
        if crew.stopping() && !std::mem::replace(&mut released, true) {
            // SAFETY: invariant 1.
            unsafe { shared.prison.lock().unlock() };
        }
        true
    };
    let (of_crew, own_context) = (Arc::clone(&shared), context.clone());
    let body = move |worker: &mut Worker| of_crew.work(worker, &own_context, prisoners);
    let findings = crew::run(&context.orders, body, release);
    let contract = match shared.break_ins.load(Relaxed) {
        0 => shared.prison.state.no_violation().map(|()| {
            format!(
                "{LEAKED} locks leaked by each thread stayed locked; \
                 {prisoners} threads waited for one"
            )
        }),
        n => Err(format!("leaked locks were taken {n} times")),
    };
    let findings = findings.on(&shared.stage.state);
    let mut findings = findings.with(Property::Contract, contract);
    // Prisoners only wait, so their numbers of operations mean nothing.
    findings.operations.drain(..prisoners);
    findings
}

impl Shared {
    fn work(&self, worker: &mut Worker, context: &Context, prisoners: usize) {
        let leaked: Vec<_> = (0..LEAKED).map(|_| (context.specimen.new)()).collect();
        leaked.iter().for_each(|lock| lock.lock().lock());
        if worker.index() < prisoners {
            self.prison.lock().lock();
            self.prison.state.section(worker.name(), || ());
            // SAFETY: invariant 1.
            unsafe { self.prison.lock().unlock() };
        }
        let mut injector = context.injector(worker);
        while worker.running() {
            self.stage.visit(worker, &mut injector);
            let lock = leaked[worker.random.below(LEAKED as u64) as usize].lock();
            let patience = Duration::from_micros(worker.random.below(20));
            if lock.try_lock() || lock.try_lock_for(patience) {
                self.break_ins.fetch_add(1, Relaxed);
            }
        }
    }
}
