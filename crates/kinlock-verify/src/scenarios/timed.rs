//! Waiters that give up: time limits that often run out, between tries and ordinary waits.

use super::{Context, Events, Findings, Scenario, Stage, blocking};
use crate::crew::{self, Worker};
use crate::injector::Injector;
use crate::report::Property;
use crate::test_lock::TestLock;
use kinlock_core::events::Event;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "timed",
    about: "lock, try_lock and try_lock_for with tiny limits, mixed: waiters abandon the queue",
    weight: 4,
    needs_condvar: false,
    run,
};

#[derive(Default)]
struct Tally {
    timely: AtomicU64,
    timeouts: AtomicU64,
    /// Gave up before the time was over.
    hasty: AtomicU64,
    tries_failed: AtomicU64,
}

fn run(context: &Context) -> Findings {
    let events = Events::start();
    let stage = Arc::new(Stage::new(context.specimen.new));
    let tally = Arc::new(Tally::default());
    let reached = || {
        let happened = |count: &AtomicU64| count.load(Relaxed) > 0;
        happened(&tally.timely) && happened(&tally.timeouts) || context.orders.threads == 1
    };
    let outcome = {
        let (stage, tallied, level) = (Arc::clone(&stage), Arc::clone(&tally), context.preemption);
        crew::run(
            &context.orders,
            move |worker| {
                let mut injector = Injector::new(level, worker.random.branch());
                while worker.running() {
                    let section = |worker: &mut Worker| {
                        stage.state.section(worker.name(), || injector.point());
                    };
                    match worker.random.below(8) {
                        0 | 1 => {
                            worker.with_lock(&*stage.lock, blocking, section);
                        }
                        2 | 3 => {
                            if !worker.with_lock(&*stage.lock, |lock| lock.try_lock(), section) {
                                tallied.tries_failed.fetch_add(1, Relaxed);
                            }
                        }
                        _ => {
                            let limit = Duration::from_nanos(1 << worker.random.below(22));
                            worker.with_lock(&*stage.lock, |l| tallied.try_for(l, limit), section);
                        }
                    }
                    injector.point();
                }
            },
            |_| reached(),
        )
    };
    let [timely, timeouts, hasty, tries] = [
        &tally.timely,
        &tally.timeouts,
        &tally.hasty,
        &tally.tries_failed,
    ]
    .map(|n| n.load(Relaxed));
    let contract = match hasty {
        0 => Ok("nobody gave up before the time was over".into()),
        _ => Err(format!(
            "{hasty} of {timeouts} gave up before the time was over"
        )),
    };
    let detail = format!(
        "{timely} timed acquisitions, {timeouts} timeouts, {tries} failed tries, {}",
        events.list(&[Event::Timeout, Event::Reap, Event::Unqueue]),
    );
    Findings::new(outcome, &stage.state, 0)
        .with(Property::Contract, contract)
        .with_reach(reached(), detail)
}

impl Tally {
    fn try_for(&self, lock: &dyn TestLock, limit: Duration) -> bool {
        let start = Instant::now();
        let taken = lock.try_lock_for(limit);
        let counter = if taken { &self.timely } else { &self.timeouts };
        counter.fetch_add(1, Relaxed);
        if !taken && start.elapsed() < limit {
            self.hasty.fetch_add(1, Relaxed);
        }
        taken
    }
}
