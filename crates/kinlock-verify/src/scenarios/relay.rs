//! Two threads, and a release timed to the moment when the only waiter falls asleep or gives up.
//!
//! In a crowd the next release mends a wake-up that was lost, and hides it. Here nobody else comes: the holder takes the lock again only after
//! the waiter has had it.

use super::{Context, Events, Findings, Scenario, Stage, blocking};
use crate::crew::{self, Orders, Worker};
use kinlock_core::events::Event;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::time::{Duration, Instant};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "relay",
    about: "a holder releases just when its only waiter falls asleep or gives up",
    weight: 4,
    needs_condvar: false,
    run,
};

/// When waiters turn from one way of waiting to another, in nanoseconds: how long spinners stay patient, and time limits.
const TURNS: [u64; 5] = [2_000, 10_000, 50_000, 55_000, 1_000_000];
/// How far from such a moment the release is.
const EARLY: u64 = 3_000;
const LATE: u64 = 6_000;

/// Rounds after which a defect that one round in some hundreds shows has shown.
const ENOUGH: u64 = 4_000;

struct Relay {
    stage: Stage,
    epoch: Instant,
    /// The round that the waiter is to begin.
    called: AtomicU64,
    /// The round that it has begun, and when.
    begun: AtomicU64,
    begun_at: AtomicU64,
    /// The round that it has ended.
    ended: AtomicU64,
    /// The time limit of the round; 0 = none.
    limit: AtomicU64,
}

fn run(context: &Context) -> Findings {
    let events = Events::start();
    let relay = Arc::new(Relay {
        stage: Stage::new(context.specimen.new),
        epoch: Instant::now(),
        called: AtomicU64::new(0),
        begun: AtomicU64::new(0),
        begun_at: AtomicU64::new(0),
        ended: AtomicU64::new(0),
        limit: AtomicU64::new(0),
    });
    let orders = Orders {
        threads: 2,
        // Each on a CPU of its own, if there are two.
        pinned: true,
        ..context.orders.clone()
    };
    let slept_or_left = || events.get(Event::Park) > 0 && events.get(Event::Timeout) > 0;
    let outcome = {
        let both = Arc::clone(&relay);
        crew::run(
            &orders,
            move |worker| match worker.index() {
                0 => both.hold(worker),
                _ => both.wait(worker),
            },
            // On a busy machine the two seldom run at the same time: few rounds fit into the time.
            |_| slept_or_left() && relay.ended.load(Relaxed) >= ENOUGH,
        )
    };
    let detail = format!(
        "{} rounds, {}",
        relay.ended.load(Relaxed),
        events.list(&[
            Event::Park,
            Event::Wake,
            Event::Timeout,
            Event::Claim,
            Event::Grant
        ]),
    );
    Findings::new(outcome, &relay.stage.state, 0).with_reach(slept_or_left(), detail)
}

impl Relay {
    fn hold(&self, worker: &mut Worker) {
        let mut round = 0;
        while worker.running() {
            round += 1;
            let turn = TURNS[worker.random.below(TURNS.len() as u64) as usize];
            let limit = if worker.random.one_in(2) { turn } else { 0 };
            let hold = turn - EARLY.min(turn) + worker.random.below(EARLY + LATE);
            worker.with_lock(&*self.stage.lock, blocking, |worker| {
                self.stage.state.section(worker.name(), || ());
                self.limit.store(limit, Relaxed);
                self.called.store(round, Release);
                self.await_round(&self.begun, round, worker);
                let release = self.begun_at.load(Relaxed) + hold;
                while self.now() < release && worker.running() {
                    std::hint::spin_loop();
                }
            });
            self.await_round(&self.ended, round, worker);
        }
    }

    fn wait(&self, worker: &mut Worker) {
        let mut round = 0;
        loop {
            round += 1;
            if !self.await_round(&self.called, round, worker) {
                return;
            }
            let limit = Duration::from_nanos(self.limit.load(Relaxed));
            self.begun_at.store(self.now(), Relaxed);
            self.begun.store(round, Release);
            let acquire = |lock: &dyn crate::test_lock::TestLock| {
                if limit.is_zero() {
                    return blocking(lock);
                }
                lock.try_lock_for(limit)
            };
            worker.with_lock(&*self.stage.lock, acquire, |worker| {
                self.stage.state.section(worker.name(), || ());
            });
            self.ended.store(round, Release);
        }
    }

    /// `false`: the run is over, and the round may never come.
    fn await_round(&self, reached: &AtomicU64, round: u64, worker: &Worker) -> bool {
        let mut looks = 0u32;
        while reached.load(Acquire) < round {
            if !worker.running() {
                return false;
            }
            looks += 1;
            if looks % 1024 == 0 {
                std::thread::yield_now();
            }
            std::hint::spin_loop();
        }
        true
    }

    fn now(&self) -> u64 {
        self.epoch.elapsed().as_nanos() as u64
    }
}
