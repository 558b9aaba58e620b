//! Three threads, and a notification timed to the moment when a waiter falls asleep or gives up.
//!
//! The giver gives a token, the taker needs it. As in [`relay`](super::relay) no other thread mends
//! a lost wake-up. At first there is a rival, which waits for the token with a time limit and gives
//! back what it gets. It leaves early: giver and taker fit on two CPUs, and with more runnable
//! threads than CPUs no waiter spins.
//!
//! # Invariants
//!
//! 1. [`Meeting::wait`] is called between taking the lock and releasing it, by the thread that does
//!    both.

use super::partner::Partner;
use super::patience::Patience;
use super::{Context, Events};
use crate::affinity::{allowed_cpus, pin_to};
use crate::crew::{self, Orders, Worker};
use crate::injector::Injector;
use crate::oracle::SharedState;
use crate::pretend;
use crate::report::{Findings, Property};
use crate::test_lock::{Algorithm, AnyTarget, Meeting};
use kinlock_core::events::Event;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// When waiters change their way of waiting, in nanoseconds: they spin for 50 us, and time limits
/// are drawn from these. Most are short: on a busy machine giver and taker do not run at the same
/// time for long, and only what they do together counts.
const MOMENTS: [u64; 4] = [2_000, 10_000, 50_000, 55_000];
/// The time limits of a rival, which is to fall asleep first.
const RIVAL_MOMENTS: [u64; 3] = [60_000, 100_000, 200_000];
/// One moment in `SELDOM` is [`LAST_MOMENT`].
const SELDOM: u64 = 16;
const LAST_MOMENT: u64 = 1_000_000;
/// How far from such a moment the notification is.
const EARLY: u64 = 3_000;
const LATE: u64 = 6_000;
/// As [`EARLY`], for the end of a rival's time: waking up takes long, so its time is up when it
/// looks.
const EARLY_FOR_RIVAL: u64 = 60_000;

/// The share of the time that the rival is there.
const RIVALRY: u32 = 2;
/// Rounds after which a defect has shown that shows in one of some hundred rounds.
const ENOUGH: u64 = 2_000;

const TAKER: usize = 0;
const RIVAL: usize = 1;

struct Relay {
    target: AnyTarget,
    state: SharedState,
    /// Whether there is a token. With the lock.
    token: AtomicU64,
    waiters: [Partner; 2],
    counts: Counts,
}

#[derive(Default)]
struct Counts {
    sections: AtomicU64,
    /// Rounds that all have ended.
    rounds: AtomicU64,
    timeouts: AtomicU64,
    /// Timeouts before the time was over.
    hasty: AtomicU64,
    /// Tokens that the rival has had.
    stolen: AtomicU64,
}

pub(super) fn run(context: &Context) -> Findings {
    let meets = context.specimen.meets.expect("it is for these");
    let events = Events::start();
    let epoch = Instant::now();
    let relay = Arc::new(Relay {
        target: (meets.new)(),
        state: SharedState::new(),
        token: AtomicU64::new(0),
        waiters: [Partner::new(epoch), Partner::new(epoch)],
        counts: Counts::default(),
    });
    let orders = Orders {
        threads: 3,
        // Giver and taker each on a CPU of its own, if there are two.
        pinned: true,
        ..context.orders.clone()
    };
    let cpus = allowed_cpus();
    let can_spin = cpus.len() > 1;
    let reached = || {
        let slept_or_left =
            events.get(Event::Notified) > 0 && relay.counts.timeouts.load(Relaxed) > 0;
        slept_or_left && (events.get(Event::NotifiedSpinning) > 0 || !can_spin)
    };
    let (all, rivalry, level) = (
        Arc::clone(&relay),
        orders.duration / RIVALRY,
        context.preemption,
    );
    let body = move |worker: &mut Worker| {
        // On the pretended machine only.
        pretend::hold_up(Injector::inside(level, worker.random.branch()));
        // The rival not on the CPU of the giver, which spins.
        if let (2, Some(&cpu)) = (worker.index(), cpus.get(1)) {
            pin_to(cpu);
        }
        match worker.index() {
            0 => all.give(worker, rivalry),
            waiter => all.wait(worker, waiter - 1),
        }
    };
    // On a busy machine the two seldom run at the same time: few rounds fit into the time.
    let enough = |_: &_| reached() && relay.counts.rounds.load(Relaxed) >= ENOUGH;
    let outcome = crew::run(&orders, body, enough);
    let n = &relay.counts;
    let counts = [&n.sections, &n.rounds, &n.timeouts, &n.hasty, &n.stolen];
    let [sections, rounds, timeouts, hasty, stolen] = counts.map(|n| n.load(Relaxed));
    let detail = format!(
        "{rounds} rounds, {timeouts} timeouts, {stolen} tokens given back, {}",
        events.list(&[Event::Notified, Event::NotifiedSpinning, Event::Park]),
    );
    let extra = sections.saturating_sub(outcome.total());
    outcome
        .findings(&relay.state, extra)
        .with(Property::Contract, super::nobody_hasty(hasty, timeouts))
        .with_reach(reached(), detail)
}

impl Relay {
    // ---- the giver -----------------------------------------------------------------------------

    fn give(&self, worker: &mut Worker, rivalry: Duration) {
        let start = Instant::now();
        let mut rival = true;
        while worker.running() {
            if rival && start.elapsed() >= rivalry {
                self.waiters[RIVAL].dismiss();
                rival = false;
            }
            let with_rival = rival && !worker.random.one_in(4);
            self.give_once(worker, with_rival);
        }
        self.waiters.iter().for_each(Partner::dismiss);
    }

    /// A round: calls the waiters, gives a token when the moment has come, and waits for their
    /// ends.
    fn give_once(&self, worker: &mut Worker, with_rival: bool) {
        let round = self.counts.rounds.load(Relaxed) + 1;
        let (moments, hurried, early): (&[u64], _, _) = match with_rival {
            true => (&RIVAL_MOMENTS, RIVAL, EARLY_FOR_RIVAL),
            false => (&MOMENTS, TAKER, EARLY),
        };
        let moment = match worker.random.one_in(SELDOM) {
            true => LAST_MOMENT,
            false => moments[worker.random.below(moments.len() as u64) as usize],
        };
        let timed = with_rival || worker.random.one_in(2);
        let waiters = if with_rival { 2 } else { 1 };
        // The order in line differs.
        for waiter in (0..waiters).map(|n| (n as u64 + round) as usize % waiters) {
            let limit = if timed && waiter == hurried {
                moment
            } else {
                0
            };
            self.waiters[waiter].call(round, limit);
        }
        let after = moment - early.min(moment) + worker.random.below(early + LATE);
        self.waiters[hurried].spin_until(after, || false);
        let (inside, all) = (worker.random.one_in(2), worker.random.one_in(8));
        let notify = || match all {
            true => self.meeting().notify_all(),
            false => self.meeting().notify_one(),
        };
        worker.with_lock(self.target.lock(), super::blocking, |worker| {
            self.section(worker.name());
            self.token.store(1, Relaxed);
            if inside {
                notify();
            }
        });
        if !inside {
            notify();
        }
        (self.waiters[..waiters].iter()).for_each(|waiter| waiter.await_end(round));
        self.counts.rounds.store(round, Relaxed);
    }

    // ---- the waiters ---------------------------------------------------------------------------

    fn wait(&self, worker: &mut Worker, waiter: usize) {
        let mut last = 0;
        while let Some((round, limit)) = self.waiters[waiter].next(last) {
            let taken = self.take(worker, limit);
            if waiter == TAKER && !taken {
                self.take(worker, 0);
            } else if waiter == RIVAL && taken {
                self.counts.stolen.fetch_add(1, Relaxed);
                self.give_back(worker);
            }
            self.waiters[waiter].end(round);
            last = round;
        }
    }

    /// Takes the token, unless the time is up before. Then it does not look again.
    fn take(&self, worker: &mut Worker, limit: u64) -> bool {
        let name = worker.name();
        let patience = match limit {
            0 => Patience::ENDLESS,
            _ => Patience::limited(&mut worker.random, limit),
        };
        let mut taken = false;
        let acquire = |lock: &dyn Algorithm| {
            lock.lock();
            while self.token.load(Relaxed) == 0 {
                // SAFETY: invariant 1.
                let notified = unsafe { self.meeting().wait(patience.limit()) };
                let hasty = !notified && patience.lasts();
                self.section(name);
                if !notified {
                    self.counts.timeouts.fetch_add(1, Relaxed);
                    self.counts.hasty.fetch_add(u64::from(hasty), Relaxed);
                    return true;
                }
            }
            taken = true;
            self.token.store(0, Relaxed);
            self.section(name);
            true
        };
        worker.with_lock(self.target.lock(), acquire, |_| ());
        taken
    }

    fn give_back(&self, worker: &mut Worker) {
        worker.with_lock(self.target.lock(), super::blocking, |worker| {
            self.section(worker.name());
            self.token.store(1, Relaxed);
        });
        self.meeting().notify_one();
    }

    fn meeting(&self) -> &dyn Meeting {
        self.target.meeting().expect("it has one")
    }

    fn section(&self, name: u32) {
        self.counts.sections.fetch_add(1, Relaxed);
        self.state.section(name, || ());
    }
}
