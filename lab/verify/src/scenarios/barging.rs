//! Threads that believe different things of the machine meet at one lock after the other.
//!
//! What a waiter does depends on what it believes: that the machine is oversubscribed (the
//! spinlock), that the lock is kept by its holders. A waiter normally finds that out, and how
//! depends on the speed of the machine. So here the first is drawn for each thread and round, and
//! the second is tried out more often than by users. Waiters are held up between a look and what
//! follows from it, so that they meet on a single CPU, too.

use super::{Context, Events, blocking};
use crate::crew::{self, Worker};
use crate::injector::Injector;
use crate::oracle::SharedState;
use crate::pretend;
use crate::report::Findings;
use crate::test_lock::{Algorithm, AnyTarget};
use kinlock_core::events::Event;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::time::Duration;

/// They meet at each in turn, so that what one round has left on a lock is found by the next.
const LOCKS: usize = 2;
/// The longest time limit, in nanoseconds: some waits end while others are held up.
const LIMIT: u64 = 300_000;

struct Meeting {
    locks: [AnyTarget; LOCKS],
    /// What each of the locks protects. No thread begins a round, with the next lock, before all
    /// have ended the last one.
    state: SharedState,
    /// How many threads have ended a round, all rounds together.
    ended: AtomicU64,
    threads: u64,
}

pub(super) fn run(context: &Context) -> Findings {
    let events = Events::start();
    let meeting = Arc::new(Meeting {
        locks: std::array::from_fn(|_| (context.specimen.new_pretended)()),
        state: SharedState::new(),
        ended: AtomicU64::new(0),
        threads: context.orders.threads as u64,
    });
    let contended = || events.get(Event::SlowPath) > 0 || meeting.threads == 1;
    let (of_crew, level) = (Arc::clone(&meeting), context.preemption);
    let body = move |worker: &mut Worker| {
        let mut inside = Injector::inside(level, worker.random.branch());
        pretend::hold_up(inside.branch());
        let mut round = 0;
        while worker.running() {
            of_crew.meet(worker, &mut inside, round);
            round += 1;
        }
    };
    let outcome = crew::run(&context.orders, body, |_| contended());
    let detail = format!(
        "{} rounds, {}",
        meeting.ended.load(Relaxed) / meeting.threads,
        events.list(&[
            Event::SlowPath,
            Event::Queued,
            Event::Barge,
            Event::HandoffRequest,
            Event::Pickup,
            Event::Park,
            Event::Timeout,
        ]),
    );
    outcome
        .findings(&meeting.state, 0)
        .with_reach(contended(), detail)
}

impl Meeting {
    fn meet(&self, worker: &mut Worker, inside: &mut Injector, round: u64) {
        pretend::set_oversubscribed(worker.random.one_in(2));
        let limit = Duration::from_nanos(match worker.random.one_in(4) {
            true => worker.random.below(LIMIT),
            false => 0,
        });
        let acquire = |lock: &dyn Algorithm| match limit {
            Duration::ZERO => blocking(lock),
            _ => lock.try_lock_for(limit),
        };
        for _ in 0..1 + worker.random.below(2) {
            worker.with_lock(
                self.locks[round as usize % LOCKS].lock(),
                acquire,
                |worker| {
                    self.state.section(worker.name(), || inside.point());
                },
            );
        }
        self.ended.fetch_add(1, AcqRel);
        while self.ended.load(Acquire) < (round + 1) * self.threads && worker.running() {
            std::thread::yield_now();
        }
    }
}
