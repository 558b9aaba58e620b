//! A lock is released, or a notification sent, just when the only waiter falls asleep or gives up.
//!
//! With many threads the next release wakes a waiter whose wake-up was lost, and so hides the
//! defect. Here there are only two threads: the next round begins only when the waiter has got what
//! it waits for.
//!
//! ```text
//!   call(round, limit) -> next(round) -> spin_until(moment) ... end(round) -> await_end(round)
//! ```
//!
//! # Invariants
//!
//! 1. [`Meeting::wait`] is called between taking the lock and releasing it, by the thread that does
//!    both.

use super::{Context, Events, Stage, blocking, nobody_hasty};
use crate::crew::{self, Orders, Worker};
use crate::injector::{Injector, Preemption};
use crate::pretend;
use crate::report::{Findings, Property};
use crate::test_lock::{Algorithm, AnyTarget, Meeting};
use kinlock_core::events::Event;
use kinlock_core::platform::{NEVER, Platform};
use kinlock_linux::Native;
use kinlock_measure::cpus::allowed_cpus;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::time::Duration;

/// How much earlier or later than the chosen moment the release or the notification may come, in
/// nanoseconds.
const EARLY: u64 = 3_000;
const LATE: u64 = 6_000;
/// How often a thread looks before it sleeps between looks.
const PATIENT_LOOKS: u32 = 2_000;

/// How the two scenarios differ.
#[derive(Clone, Copy)]
struct Kind {
    new: fn() -> AnyTarget,
    /// When waiters change their way of waiting, in nanoseconds. Time limits are chosen from these,
    /// too.
    moments: &'static [u64],
    /// The least number of rounds: enough for a defect that shows in one of some hundred rounds.
    enough: u64,
    /// How often the threads are held up inside algorithms, on the pretended machine.
    held_up: Preemption,
    lead: fn(&Relay, &mut Worker, Round),
    wait: fn(&Relay, &mut Worker, u64),
    reached: fn(&Relay, &Events) -> bool,
}

/// Releases a lock. At the moments spinners fall asleep, time limits and quanta end, and a lone
/// waiter ends its sleep.
pub(super) fn of_lock(context: &Context) -> Findings {
    let kind = Kind {
        new: context.specimen.new,
        moments: &[2_000, 20_000, 50_000, 1_000_000, 4_000_000],
        enough: 4_000,
        held_up: Preemption::Off,
        lead: Relay::hold,
        wait: Relay::take_lock,
        reached: |_, events| events.get(Event::Park) > 0 && events.get(Event::Timeout) > 0,
    };
    run(context, kind)
}

/// Sends a notification. Waiters spin for 50 us. Most moments are early: on a busy machine the two
/// threads run at the same time only for short times, and a round tests something only if they do.
pub(super) fn of_condvar(context: &Context) -> Findings {
    let [new, _] = context.specimen.condvar.expect("it is for these");
    let kind = Kind {
        new,
        moments: &[2_000, 10_000, 10_000, 50_000, 50_000, 55_000, 1_000_000],
        enough: 2_000,
        held_up: context.preemption,
        lead: Relay::give,
        wait: Relay::take_token,
        reached: |relay, events| {
            let can_spin = allowed_cpus().len() > 1;
            let timeouts = relay.timeouts.load(Relaxed);
            let spun = events.get(Event::NotifiedSpinning) > 0;
            events.get(Event::Notified) > 0 && timeouts > 0 && (spun || !can_spin)
        },
    };
    run(context, kind)
}

fn run(context: &Context, kind: Kind) -> Findings {
    let events = Events::start();
    let relay = Arc::new(Relay {
        stage: Stage::new(kind.new),
        token: AtomicBool::new(false),
        step: AtomicU64::new(0),
        limit: AtomicU64::new(0),
        begun_at: AtomicU64::new(0),
        rounds: AtomicU64::new(0),
        timeouts: AtomicU64::new(0),
        hasty: AtomicU64::new(0),
    });
    let orders = Orders {
        threads: 2,
        // Each thread has its own CPU if there are two.
        pinned: true,
        ..context.orders.clone()
    };
    let both = Arc::clone(&relay);
    let body = move |worker: &mut Worker| {
        pretend::hold_up(Injector::inside(kind.held_up, worker.random.branch()));
        match worker.index() {
            0 => both.lead(worker, kind.moments, kind.lead),
            _ => both.follow(worker, kind.wait),
        }
    };
    let reached = || (kind.reached)(&relay, &events);
    // On a busy machine the threads seldom run at the same time, so few rounds fit into the time.
    let enough = |_: &_| reached() && relay.rounds.load(Relaxed) >= kind.enough;
    let findings = crew::run(&orders, body, enough);
    let counts = [&relay.rounds, &relay.timeouts, &relay.hasty];
    let [rounds, timeouts, hasty] = counts.map(|count| count.load(Relaxed));
    let listed = [
        Event::Park,
        Event::Wake,
        Event::Timeout,
        Event::HandoffRequest,
        Event::Pickup,
        Event::Notified,
        Event::NotifiedSpinning,
    ];
    let detail = format!("{rounds} rounds, {}", events.list(&listed));
    findings
        .on(&relay.stage.state)
        .with(Property::Contract, nobody_hasty(hasty, timeouts))
        .with_reach(reached(), detail)
}

struct Relay {
    stage: Stage,
    /// Whether there is a token. Protected by the lock.
    token: AtomicBool,
    /// How many steps have been taken. A round has three steps: it is called, begun and ended.
    step: AtomicU64,
    /// The time limit of the round, in nanoseconds; 0 = none.
    limit: AtomicU64,
    /// When the waiter has begun the round.
    begun_at: AtomicU64,
    /// The number of rounds that have ended.
    rounds: AtomicU64,
    timeouts: AtomicU64,
    /// The number of timeouts before the time was up.
    hasty: AtomicU64,
}

/// A round of the thread that leads.
struct Round {
    number: u64,
    limit: u64,
    /// When the lock is to be released or the token given, in nanoseconds after the waiter has
    /// begun the round.
    after: u64,
}

/// The step after which there is no further round.
const OVER: u64 = u64::MAX;

impl Relay {
    // ---- the thread that leads -----------------------------------------------------------------

    fn lead(&self, worker: &mut Worker, moments: &[u64], turn: fn(&Self, &mut Worker, Round)) {
        let mut number = 0;
        while worker.running() {
            let moment = moments[worker.random.below(moments.len() as u64) as usize];
            let round = Round {
                number,
                limit: if worker.random.one_in(2) { moment } else { 0 },
                after: moment - EARLY.min(moment) + worker.random.below(EARLY + LATE),
            };
            turn(self, worker, round);
            number += 1;
            self.await_step(3 * number);
            self.rounds.store(number, Relaxed);
        }
        self.step.store(OVER, Release);
    }

    /// Holds the lock when the waiter begins, and releases it at the moment.
    fn hold(&self, worker: &mut Worker, round: Round) {
        worker.with_lock(self.stage.lock(), blocking, |worker| {
            self.stage.state.section(worker.name(), || ());
            self.call(&round);
            self.spin_until(round.after);
        });
    }

    /// Gives a token at the moment.
    fn give(&self, worker: &mut Worker, round: Round) {
        self.call(&round);
        self.spin_until(round.after);
        let (inside, all) = (worker.random.one_in(2), worker.random.one_in(8));
        let notify = || match all {
            true => self.meeting().notify_all(),
            false => self.meeting().notify_one(),
        };
        worker.with_lock(self.stage.lock(), blocking, |worker| {
            self.stage.state.section(worker.name(), || ());
            self.token.store(true, Relaxed);
            if inside {
                notify();
            }
        });
        if !inside {
            notify();
        }
    }

    /// Calls the waiter to a round, and returns when the waiter has begun the round.
    fn call(&self, round: &Round) {
        self.limit.store(round.limit, Relaxed);
        self.step.store(3 * round.number + 1, Release);
        self.await_step(3 * round.number + 2);
    }

    fn spin_until(&self, after: u64) {
        let moment = self.begun_at.load(Relaxed) + after;
        while Native::now() < moment {
            std::hint::spin_loop();
        }
    }

    // ---- the waiter ----------------------------------------------------------------------------

    fn follow(&self, worker: &mut Worker, wait: fn(&Self, &mut Worker, u64)) {
        let mut step = 0;
        while self.await_step(step + 1) != OVER {
            let limit = self.limit.load(Relaxed);
            self.begun_at.store(Native::now(), Relaxed);
            self.step.store(step + 2, Release);
            wait(self, worker, limit);
            step += 3;
            self.step.store(step, Release);
        }
    }

    fn take_lock(&self, worker: &mut Worker, limit: u64) {
        let deadline = Native::now() + limit;
        let acquire = |lock: &dyn Algorithm| match limit {
            0 => blocking(lock),
            _ => lock.lock_until(deadline),
        };
        if !self.stage.visit_by(worker, acquire) {
            self.gives_up(deadline);
        }
    }

    fn take_token(&self, worker: &mut Worker, limit: u64) {
        let deadline = match limit {
            0 => NEVER,
            _ => Native::now() + limit,
        };
        if !self.take_until(worker, deadline) {
            self.take_until(worker, NEVER);
        }
    }

    /// Takes the token, unless the time is up. After a timeout it does not look for a token again.
    fn take_until(&self, worker: &mut Worker, deadline: u64) -> bool {
        let mut taken = true;
        let acquire = |lock: &dyn Algorithm| {
            lock.lock();
            while taken && !self.token.load(Relaxed) {
                // SAFETY: invariant 1.
                taken = unsafe { self.meeting().wait(deadline) };
            }
            match taken {
                true => self.token.store(false, Relaxed),
                false => self.gives_up(deadline),
            }
            true
        };
        self.stage.visit_by(worker, acquire);
        taken
    }

    fn gives_up(&self, deadline: u64) {
        self.timeouts.fetch_add(1, Relaxed);
        let hasty = Native::now() < deadline;
        self.hasty.fetch_add(u64::from(hasty), Relaxed);
    }

    fn meeting(&self) -> &dyn Meeting {
        self.stage.target.meeting().expect("it has one")
    }

    /// Waits for a step, without any lock. Returns the step that was taken last.
    fn await_step(&self, step: u64) -> u64 {
        let mut looks = 0;
        loop {
            let seen = self.step.load(Acquire);
            if seen >= step {
                return seen;
            }
            looks += 1;
            if looks > PATIENT_LOOKS {
                std::thread::sleep(Duration::from_micros(50));
            } else if looks % 256 == 0 {
                std::thread::yield_now();
            }
            std::hint::spin_loop();
        }
    }
}
