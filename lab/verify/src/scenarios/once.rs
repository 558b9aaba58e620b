//! Two threads, and a function whose end is timed to the moment when the only waiter falls asleep.
//!
//! Each round has a function of its own, and no later round mends a lost wake-up.

use super::partner::Partner;
use super::{Context, Events};
use crate::crew::{self, Orders, Worker};
use crate::report::{Findings, Property};
use crate::test_lock::Runs;
use kinlock_core::events::Event;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// How long functions run, in nanoseconds: waiters spin for 20 us.
const MOMENTS: [u64; 3] = [2_000, 20_000, 200_000];
/// How far from such a moment the end is.
const EARLY: u64 = 3_000;
const LATE: u64 = 6_000;

/// Rounds after which a defect has shown that shows in one of some hundred rounds.
const ENOUGH: u64 = 4_000;

struct Shared {
    new: fn() -> Arc<dyn Runs>,
    /// What runs the function of the current round.
    current: Mutex<Arc<dyn Runs>>,
    waiter: Partner,
    /// The last round whose function has returned: each function stores the number of its round
    /// here.
    returned: AtomicU64,
    /// Functions that ran second, and waits that ended before the function had.
    wrong: AtomicU64,
}

pub(super) fn run(context: &Context) -> Findings {
    let new = context.specimen.runs.expect("the scenario is for these");
    let events = Events::start();
    let shared = Arc::new(Shared {
        new,
        current: Mutex::new(new()),
        waiter: Partner::new(Instant::now()),
        returned: AtomicU64::new(0),
        wrong: AtomicU64::new(0),
    });
    let orders = Orders {
        threads: 2,
        // Each on a CPU of its own, if there are two.
        pinned: true,
        ..context.orders.clone()
    };
    let both = Arc::clone(&shared);
    let body = move |worker: &mut Worker| match worker.index() {
        0 => both.run(worker),
        _ => both.wait(worker),
    };
    let slept = || events.get(Event::Park) > 0;
    // On a busy machine the two seldom run at the same time: few rounds fit into the time.
    let enough = |_: &_| slept() && shared.waiter.rounds() >= ENOUGH;
    let outcome = crew::run(&orders, body, enough);
    let rounds = shared.waiter.rounds();
    let exclusion = match shared.wrong.load(Relaxed) {
        0 => Ok(format!("{rounds} functions, each once")),
        wrong => Err(format!("{wrong} functions ran twice or were not awaited")),
    };
    let detail = format!(
        "{rounds} rounds, {}",
        events.list(&[Event::Park, Event::Wake])
    );
    (outcome.own_findings())
        .with(Property::Exclusion, exclusion)
        .with_reach(slept(), detail)
}

impl Shared {
    fn run(&self, worker: &mut Worker) {
        let mut round = 0;
        while worker.running() {
            round += 1;
            let moment = MOMENTS[worker.random.below(MOMENTS.len() as u64) as usize];
            let span = moment - EARLY.min(moment) + worker.random.below(EARLY + LATE);
            let once = (self.new)();
            *self.current.lock().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&once);
            let mut function = || {
                self.waiter.call(round, 0);
                self.waiter.spin_until(span, || !worker.running());
                self.returned.store(round, Relaxed);
            };
            worker.operation(|| once.call(&mut function));
            self.waiter.await_end(round);
        }
        self.waiter.dismiss();
    }

    fn wait(&self, worker: &mut Worker) {
        let mut last = 0;
        while let Some((round, _)) = self.waiter.next(last) {
            let current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
            let once = Arc::clone(&current);
            drop(current);
            let mut wrong = 0;
            worker.operation(|| once.call(&mut || wrong += 1));
            wrong += u64::from(self.returned.load(Relaxed) != round);
            self.wrong.fetch_add(wrong, Relaxed);
            self.waiter.end(round);
            last = round;
        }
    }
}
