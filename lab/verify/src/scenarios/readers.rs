//! One reader among writers, and one writer among readers.

use super::{Context, Events};
use crate::crew::{self, Worker};
use crate::injector::Injector;
use crate::oracle::SharedState;
use crate::pretend;
use crate::report::{Findings, Property};
use crate::test_lock::{AnyTarget, ReadWrite};
use kinlock_core::events::Event;
use kinlock_core::platform::NEVER;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

struct Shared {
    target: AnyTarget,
    state: SharedState,
    writes: AtomicU64,
    reads: AtomicU64,
    timeouts: AtomicU64,
    hasty: AtomicU64,
}

/// The first thread writes or gives up, all others read.
pub(super) fn reader_flood(context: &Context) -> Findings {
    run(context, |shared, worker, injector| match worker.index() {
        0 if worker.random.below(4) == 0 => shared.give_up_to_readers(worker, injector),
        0 => _ = shared.write(worker, injector, NEVER),
        _ => shared.read(worker, injector),
    })
}

/// The first thread reads, all others write.
pub(super) fn writer_flood(context: &Context) -> Findings {
    run(context, |shared, worker, injector| match worker.index() {
        0 => shared.read(worker, injector),
        _ => _ = shared.write(worker, injector, NEVER),
    })
}

fn run(context: &Context, visit: fn(&Shared, &mut Worker, &mut Injector)) -> Findings {
    let new = context.specimen.reads.expect("the scenario is for these");
    let events = Events::start();
    let shared = Arc::new(Shared {
        target: new(),
        state: SharedState::new(),
        writes: AtomicU64::new(0),
        reads: AtomicU64::new(0),
        timeouts: AtomicU64::new(0),
        hasty: AtomicU64::new(0),
    });
    let many = context.orders.threads > 1;
    let (of_crew, own_context) = (Arc::clone(&shared), context.clone());
    let body = move |worker: &mut Worker| {
        pretend::hold_up(own_context.injector(worker));
        let mut injector = own_context.injector(worker);
        while worker.running() {
            visit(&of_crew, worker, &mut injector);
        }
    };
    let happened = |count: &AtomicU64| count.load(Relaxed) > 0;
    let reached = || !many || happened(&shared.reads) && happened(&shared.writes);
    let outcome = crew::run(&context.orders, body, |_| reached());
    let [writes, reads] = [&shared.writes, &shared.reads].map(|n| n.load(Relaxed));
    let [timeouts, hasty] = [&shared.timeouts, &shared.hasty].map(|n| n.load(Relaxed));
    let exclusion = match outcome.completed {
        true => shared.state.verdict(writes),
        false => (shared.state.no_violation()).map(|()| "no violation before the hang".into()),
    };
    let events = events.list(&[Event::HandoffRequest, Event::Bias, Event::Revoke]);
    let detail = format!("{reads} reads, {writes} writes, {timeouts} timeouts, {events}");
    let mut findings = outcome.own_findings();
    (findings.verdicts).insert(0, (Property::Exclusion, exclusion));
    findings
        .with(Property::Contract, super::nobody_hasty(hasty, timeouts))
        .with_reach(reached(), detail)
}

impl Shared {
    fn lock(&self) -> &dyn ReadWrite {
        self.target.reading().expect("it is one")
    }

    fn read(&self, worker: &Worker, injector: &mut Injector) {
        worker.operation(|| {
            self.lock().read_until(NEVER, false);
            self.reads.fetch_add(1, Relaxed);
            self.state.look(worker.name(), || injector.point());
            // SAFETY: taken above.
            unsafe { self.lock().unlock_read() };
        });
    }

    /// `false`: the time was up.
    fn write(&self, worker: &Worker, injector: &mut Injector, deadline: u64) -> bool {
        let mut taken = false;
        worker.operation(|| {
            taken = self.lock().lock_until(deadline);
            if taken {
                self.writes.fetch_add(1, Relaxed);
                self.state.section(worker.name(), || injector.point());
                // SAFETY: taken above.
                unsafe { self.lock().unlock() };
            }
        });
        taken
    }

    /// A write that often gives up while readers wait for its turn. They must go on without another
    /// writer.
    fn give_up_to_readers(&self, worker: &mut Worker, injector: &mut Injector) {
        // About the time after which a waiter asks to go next.
        let deadline = self.lock().now() + worker.random.below(1 << 21);
        if self.write(worker, injector, deadline) {
            return;
        }
        let hasty = self.lock().now() < deadline;
        self.hasty.fetch_add(u64::from(hasty), Relaxed);
        self.timeouts.fetch_add(1, Relaxed);
        let before = self.reads.load(Relaxed);
        while worker.running() && self.reads.load(Relaxed) == before {
            std::thread::yield_now();
        }
    }
}
