//! Waiters that give up: time limits that often run out, between tries and ordinary waits.

use super::{Context, Events, Stage, blocking};
use crate::crew::{self, Worker};
use crate::injector::Injector;
use crate::report::{Findings, Property};
use crate::test_lock::TestLock;
use kinlock_core::events::Event;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

struct Shared {
    stage: Stage,
    counts: Counts,
}

#[derive(Default)]
struct Counts {
    timely: AtomicU64,
    timeouts: AtomicU64,
    /// Timeouts before the time was over.
    hasty: AtomicU64,
    tries_failed: AtomicU64,
}

pub(super) fn run(context: &Context) -> Findings {
    let events = Events::start();
    let shared = Arc::new(Shared {
        stage: Stage::new(context.specimen.new),
        counts: Counts::default(),
    });
    let counts = &shared.counts;
    let reached = || {
        let happened = |count: &AtomicU64| count.load(Relaxed) > 0;
        happened(&counts.timely) && happened(&counts.timeouts) || context.orders.threads == 1
    };
    let (of_crew, own_context) = (Arc::clone(&shared), context.clone());
    let body = move |worker: &mut Worker| {
        let mut injector = own_context.injector(worker);
        while worker.running() {
            of_crew.visit(worker, &mut injector);
            injector.point();
        }
    };
    let outcome = crew::run(&context.orders, body, |_| reached());
    let [timely, timeouts] = [&counts.timely, &counts.timeouts].map(|n| n.load(Relaxed));
    let [hasty, tries] = [&counts.hasty, &counts.tries_failed].map(|n| n.load(Relaxed));
    let detail = format!(
        "{timely} timed acquisitions, {timeouts} timeouts, {tries} failed tries, {}",
        events.list(&[Event::Timeout, Event::Reap, Event::Unqueue]),
    );
    outcome
        .findings(&shared.stage.state, 0)
        .with(Property::Contract, super::nobody_hasty(hasty, timeouts))
        .with_reach(reached(), detail)
}

impl Shared {
    fn visit(&self, worker: &mut Worker, injector: &mut Injector) {
        let kind = worker.random.below(8);
        let limit = Duration::from_nanos(1 << worker.random.below(22));
        let acquire = |lock: &dyn TestLock| match kind {
            0 | 1 => blocking(lock),
            2 | 3 => {
                let taken = lock.try_lock();
                self.counts
                    .tries_failed
                    .fetch_add(u64::from(!taken), Relaxed);
                taken
            }
            _ => self.try_for(lock, limit),
        };
        worker.with_lock(&*self.stage.lock, acquire, |worker| {
            self.stage.state.section(worker.name(), || injector.point());
        });
    }

    fn try_for(&self, lock: &dyn TestLock, limit: Duration) -> bool {
        let start = Instant::now();
        let taken = lock.try_lock_for(limit);
        let counter = if taken {
            &self.counts.timely
        } else {
            &self.counts.timeouts
        };
        counter.fetch_add(1, Relaxed);
        if !taken && start.elapsed() < limit {
            self.counts.hasty.fetch_add(1, Relaxed);
        }
        taken
    }
}
