//! Threads that meet at one lock after the other, and know different things of it.
//!
//! What a waiter does depends on what it knows: that turns are taken, that there are more threads than CPUs. What it has to find out first depends on how fast the machine is,
//! and two threads that know different things seldom meet where a lock is used all the time. So here it is drawn, for another lock in each round, so that hardly anybody remembers it; and waiters are
//! held up between a look and what follows from it, so that they meet on one CPU, too.

use super::{Context, Events, Findings, Scenario, blocking};
use crate::crew;
use crate::injector::Injector;
use crate::oracle::SharedState;
use crate::pretend;
use crate::random::Random;
use crate::test_lock::TestLock;
use kinlock_core::events::Event;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::time::Duration;

pub(super) const SCENARIO: Scenario = Scenario {
    name: "turns",
    about: "threads that know different things of a lock meet at one after the other",
    weight: 4,
    needs_condvar: false,
    run,
};

/// A thread remembers only the lock that it has waited for last.
const LOCKS: usize = 2;
/// In how many waits turns are taken by those who believe in them.
const TURNS: [u16; 3] = [1, 7, 100];
/// The longest time limit, in nanoseconds: some end while others are held up.
const LIMIT: u64 = 300_000;

struct Meeting {
    locks: [Box<dyn TestLock>; LOCKS],
    /// What each of the locks protects: nobody begins a round, with the next lock, before all have ended the last one.
    state: SharedState,
    /// How many have ended a round, all rounds together.
    ended: AtomicU64,
}

fn run(context: &Context) -> Findings {
    let events = Events::start();
    let meeting = Arc::new(Meeting {
        locks: std::array::from_fn(|_| (context.specimen.new_pretended)()),
        state: SharedState::new(),
        ended: AtomicU64::new(0),
    });
    let (threads, seed, level) = (
        context.orders.threads as u64,
        context.orders.seed,
        context.preemption,
    );
    let contended = || events.get(Event::SlowPath) > 0 || threads == 1;
    let outcome = {
        let meeting = Arc::clone(&meeting);
        crew::run(
            &context.orders,
            move |worker| {
                let mut inside = Injector::inside(level, worker.random.branch());
                pretend::hold_up(inside.branch());
                let mut round = 0;
                while worker.running() {
                    // The same for all.
                    pretend::set_crowded(Random::new(seed, round).one_in(2));
                    let known = worker.random.below(1 + TURNS.len() as u64) as usize;
                    pretend::set_turns_at_first(TURNS.get(known).copied());
                    let limit = Duration::from_nanos(match worker.random.one_in(4) {
                        true => worker.random.below(LIMIT),
                        false => 0,
                    });
                    for _ in 0..1 + worker.random.below(2) {
                        worker.with_lock(
                            &*meeting.locks[round as usize % LOCKS],
                            |lock| match limit {
                                Duration::ZERO => blocking(lock),
                                _ => lock.try_lock_for(limit),
                            },
                            |worker| meeting.state.section(worker.name(), || inside.point()),
                        );
                    }
                    round += 1;
                    meeting.ended.fetch_add(1, AcqRel);
                    while meeting.ended.load(Acquire) < round * threads && worker.running() {
                        std::thread::yield_now();
                    }
                }
            },
            |_| contended(),
        )
    };
    let detail = format!(
        "{} rounds, {}",
        meeting.ended.load(Relaxed) / threads,
        events.list(&[
            Event::SlowPath,
            Event::Queued,
            Event::Turn,
            Event::Claim,
            Event::Grant,
            Event::Park,
            Event::Timeout,
        ]),
    );
    Findings::new(outcome, &meeting.state, 0).with_reach(contended(), detail)
}
