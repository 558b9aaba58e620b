//! Two threads, and a release timed to the moment when the only waiter falls asleep or gives up.
//!
//! With many threads the next release mends a lost wake-up, and hides it. Here there is no other
//! thread: the holder takes the lock again only after the waiter has had it.

use super::partner::Partner;
use super::{Context, Events, Stage, blocking};
use crate::crew::{self, Orders, Worker};
use crate::report::Findings;
use crate::test_lock::Algorithm;
use kinlock_core::events::Event;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// When waiters change their way of waiting, in nanoseconds: spinners fall asleep, time limits and
/// quanta end, and so does the sleep of a waiter that is alone.
const MOMENTS: [u64; 5] = [2_000, 20_000, 50_000, 1_000_000, 4_000_000];
/// How far from such a moment the release is.
const EARLY: u64 = 3_000;
const LATE: u64 = 6_000;

/// Rounds after which a defect has shown that shows in one of some hundred rounds.
const ENOUGH: u64 = 4_000;

struct Relay {
    stage: Stage,
    waiter: Partner,
}

pub(super) fn run(context: &Context) -> Findings {
    let events = Events::start();
    let relay = Arc::new(Relay {
        stage: Stage::new(context.specimen.new),
        waiter: Partner::new(Instant::now()),
    });
    let orders = Orders {
        threads: 2,
        // Each on a CPU of its own, if there are two.
        pinned: true,
        ..context.orders.clone()
    };
    let slept_or_left = || events.get(Event::Park) > 0 && events.get(Event::Timeout) > 0;
    let both = Arc::clone(&relay);
    let body = move |worker: &mut Worker| match worker.index() {
        0 => both.hold(worker),
        _ => both.wait(worker),
    };
    // On a busy machine the two seldom run at the same time: few rounds fit into the time.
    let enough = |_: &_| slept_or_left() && relay.waiter.rounds() >= ENOUGH;
    let outcome = crew::run(&orders, body, enough);
    let detail = format!(
        "{} rounds, {}",
        relay.waiter.rounds(),
        events.list(&[
            Event::Park,
            Event::Wake,
            Event::Timeout,
            Event::HandoffRequest,
            Event::Pickup
        ]),
    );
    outcome
        .findings(&relay.stage.state, 0)
        .with_reach(slept_or_left(), detail)
}

impl Relay {
    fn hold(&self, worker: &mut Worker) {
        let mut round = 0;
        while worker.running() {
            round += 1;
            let moment = MOMENTS[worker.random.below(MOMENTS.len() as u64) as usize];
            let limit = if worker.random.one_in(2) { moment } else { 0 };
            let hold = moment - EARLY.min(moment) + worker.random.below(EARLY + LATE);
            worker.with_lock(self.stage.lock(), blocking, |worker| {
                self.stage.state.section(worker.name(), || ());
                self.waiter.call(round, limit);
                self.waiter.spin_until(hold, || !worker.running());
            });
            self.waiter.await_end(round);
        }
        self.waiter.dismiss();
    }

    fn wait(&self, worker: &mut Worker) {
        let mut last = 0;
        while let Some((round, limit)) = self.waiter.next(last) {
            let acquire = |lock: &dyn Algorithm| match limit {
                0 => blocking(lock),
                _ => lock.try_lock_for(Duration::from_nanos(limit)),
            };
            self.stage.visit_by(worker, acquire);
            self.waiter.end(round);
            last = round;
        }
    }
}
