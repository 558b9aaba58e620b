//! Few threads, and a notification timed to the moment when a waiter falls asleep or gives up.
//!
//! One gives a token, another needs it; as with [`relay`](super::relay) nobody else comes to mend a wake-up that was lost. At first there is a rival, who waits for the token
//! until its time is up and gives back what it gets. It leaves early: the two others are as many as two CPUs have room for, and where there are more nobody spins.
//!
//! # Invariants
//!
//! 1. [`Monitor::wait`] is called between taking the lock and releasing it, by the thread that does both.

use super::condvar::monitor;
use super::{Context, Events, Findings, Scenario};
use crate::affinity::{allowed_cpus, pin_to};
use crate::crew::{self, Orders, Worker};
use crate::injector::Injector;
use crate::monitors::{Limit, Monitor};
use crate::oracle::SharedState;
use crate::pretend;
use crate::report::Property;
use crate::test_lock::TestLock;
use kinlock_core::events::Event;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::time::{Duration, Instant, SystemTime};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "condvar-relay",
    about: "a notification comes just when its only waiter falls asleep or gives up",
    weight: 4,
    needs_condvar: true,
    run,
};

/// When waiters turn from one way of waiting to another, in nanoseconds: they spin for 50 us, and time limits are drawn from these. Mostly soon: where other processes use the
/// CPUs too, giver and taker do not run at the same time for long, and what they do together is what counts.
const TURNS: [u64; 4] = [2_000, 10_000, 50_000, 55_000];
/// The time limits of a rival, who is to fall asleep first.
const RIVAL_TURNS: [u64; 3] = [60_000, 100_000, 200_000];
/// One turn in so many is as late as this.
const SELDOM: u64 = 16;
const LAST_TURN: u64 = 1_000_000;
/// How far from such a moment the notification is.
const EARLY: u64 = 3_000;
const LATE: u64 = 6_000;
/// The same where a rival's time is up: it takes so long to wake up that its time is up when it notices.
const EARLY_FOR_RIVAL: u64 = 60_000;

/// The share of the time that the rival is there.
const RIVALRY: u32 = 2;
/// Rounds after which a defect that one round in some hundreds shows has shown.
const ENOUGH: u64 = 2_000;
/// After so many looks whoever awaits something sleeps between them.
const PATIENT_LOOKS: u32 = 2_000;

const TAKER: usize = 0;
const RIVAL: usize = 1;

struct Relay {
    monitor: Box<dyn Monitor>,
    state: SharedState,
    sections: AtomicU64,
    /// Whether there is a token. With the lock.
    token: AtomicU64,
    epoch: Instant,
    /// The time limits of the round; 0 = none.
    limits: [AtomicU64; 2],
    /// The round that each is to begin, or [`OVER`]; the one that it has begun, and when; the one that it has ended.
    called: [AtomicU64; 2],
    begun: [AtomicU64; 2],
    begun_at: [AtomicU64; 2],
    ended: [AtomicU64; 2],
    /// Rounds that everybody has ended.
    rounds: AtomicU64,
    timeouts: AtomicU64,
    /// Gave up before the time was over.
    hasty: AtomicU64,
    /// Tokens that the rival has had.
    stolen: AtomicU64,
}

/// There is no further round.
const OVER: u64 = u64::MAX;

fn run(context: &Context) -> Findings {
    let events = Events::start();
    let zeros = || [const { AtomicU64::new(0) }; 2];
    let relay = Arc::new(Relay {
        monitor: monitor(context, false),
        state: SharedState::new(),
        sections: AtomicU64::new(0),
        token: AtomicU64::new(0),
        epoch: Instant::now(),
        limits: zeros(),
        called: zeros(),
        begun: zeros(),
        begun_at: zeros(),
        ended: zeros(),
        rounds: AtomicU64::new(0),
        timeouts: AtomicU64::new(0),
        hasty: AtomicU64::new(0),
        stolen: AtomicU64::new(0),
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
        let slept_or_left = events.get(Event::Notified) > 0 && relay.timeouts.load(Relaxed) > 0;
        slept_or_left && (events.get(Event::NotifiedSpinning) > 0 || !can_spin)
    };
    let outcome = {
        let (all, rivalry) = (Arc::clone(&relay), orders.duration / RIVALRY);
        let level = context.preemption;
        crew::run(
            &orders,
            move |worker| {
                // On the pretended machine only.
                pretend::hold_up(Injector::inside(level, worker.random.branch()));
                // The rival not where the giver looks at the clock all the time.
                if let (2, Some(&cpu)) = (worker.index(), cpus.get(1)) {
                    pin_to(cpu);
                }
                match worker.index() {
                    0 => all.give(worker, rivalry),
                    waiter => all.wait(worker, waiter - 1),
                }
            },
            // On a busy machine the two seldom run at the same time: few rounds fit into the time.
            |_| reached() && relay.rounds.load(Relaxed) >= ENOUGH,
        )
    };
    let [rounds, timeouts, hasty, stolen] =
        [&relay.rounds, &relay.timeouts, &relay.hasty, &relay.stolen].map(|n| n.load(Relaxed));
    let contract = match hasty {
        0 => Ok("nobody gave up before its time".into()),
        _ => Err(format!("{hasty} of {timeouts} gave up before their time")),
    };
    let detail = format!(
        "{rounds} rounds, {timeouts} timeouts, {stolen} tokens given back, {}",
        events.list(&[Event::Notified, Event::NotifiedSpinning, Event::Park]),
    );
    let extra = relay.sections.load(Relaxed);
    let extra = extra.saturating_sub(outcome.total());
    Findings::new(outcome, &relay.state, extra)
        .with(Property::Contract, contract)
        .with_reach(reached(), detail)
}

impl Relay {
    // ---- the giver -------------------------------------------------------------------------------------------

    fn give(&self, worker: &mut Worker, rivalry: Duration) {
        let start = Instant::now();
        let mut rival = true;
        while worker.running() {
            if rival && start.elapsed() >= rivalry {
                self.called[RIVAL].store(OVER, Release);
                rival = false;
            }
            let with_rival = rival && !worker.random.one_in(4);
            self.give_once(worker, with_rival);
        }
        (self.called.iter()).for_each(|called| called.store(OVER, Release));
    }

    /// A round: calls who takes part, gives a token when the moment has come, and waits until everybody is done.
    fn give_once(&self, worker: &mut Worker, with_rival: bool) {
        let round = self.rounds.load(Relaxed) + 1;
        let turns: &[u64] = if with_rival { &RIVAL_TURNS } else { &TURNS };
        let turn = match worker.random.one_in(SELDOM) {
            true => LAST_TURN,
            false => turns[worker.random.below(turns.len() as u64) as usize],
        };
        let timed = with_rival || worker.random.one_in(2);
        let limit = if timed { turn } else { 0 };
        let (hurried, early) = match with_rival {
            true => (RIVAL, EARLY_FOR_RIVAL),
            false => (TAKER, EARLY),
        };
        self.limits[TAKER].store(0, Relaxed);
        self.limits[hurried].store(limit, Relaxed);
        let players = if with_rival { 2 } else { 1 };
        // Whoever is first in line differs.
        for player in (0..players).map(|n| (n as u64 + round) as usize % players) {
            self.called[player].store(round, Release);
            await_round(&self.begun[player], round);
        }
        let give_at = self.begun_at[hurried].load(Relaxed) + turn - early.min(turn)
            + worker.random.below(early + LATE);
        while self.now() < give_at {
            std::hint::spin_loop();
        }
        let (inside, all) = (worker.random.one_in(2), worker.random.one_in(8));
        let notify = || match all {
            true => self.monitor.notify_all(0),
            false => self.monitor.notify_one(0),
        };
        worker.with_lock(self.monitor.lock(), super::blocking, |worker| {
            self.section(worker.name());
            self.token.store(1, Relaxed);
            if inside {
                notify();
            }
        });
        if !inside {
            notify();
        }
        (0..players).for_each(|player| await_round(&self.ended[player], round));
        self.rounds.store(round, Relaxed);
    }

    // ---- those who wait --------------------------------------------------------------------------------------

    fn wait(&self, worker: &mut Worker, player: usize) {
        let mut round = 0;
        loop {
            round = await_later(&self.called[player], round);
            if round == OVER {
                return;
            }
            let limit = self.limits[player].load(Relaxed);
            self.begun_at[player].store(self.now(), Relaxed);
            self.begun[player].store(round, Release);
            let taken = self.take(worker, limit);
            if player == TAKER && !taken {
                self.take(worker, 0);
            } else if player == RIVAL && taken {
                self.stolen.fetch_add(1, Relaxed);
                self.give_back(worker);
            }
            self.ended[player].store(round, Release);
        }
    }

    /// Takes the token, unless the time is up before. Then nobody has looked again.
    fn take(&self, worker: &mut Worker, limit: u64) -> bool {
        let (name, clock) = (worker.name(), worker.random.below(3));
        let span = Duration::from_nanos(limit);
        let (moment, time) = (Instant::now() + span, SystemTime::now() + span);
        let mut taken = false;
        let acquire = |lock: &dyn TestLock| {
            lock.lock();
            while self.token.load(Relaxed) == 0 {
                let limit = match clock {
                    _ if limit == 0 => Limit::Never,
                    0 => Limit::For(moment.saturating_duration_since(Instant::now())),
                    1 => Limit::Until(moment),
                    _ => Limit::System(time),
                };
                // SAFETY: invariant 1.
                if !unsafe { self.monitor.wait(0, limit) } {
                    // The time of day may be set back, which the other clock tells.
                    let lasts = Instant::now() < moment && (clock < 2 || SystemTime::now() < time);
                    self.timeouts.fetch_add(1, Relaxed);
                    self.hasty.fetch_add(u64::from(lasts), Relaxed);
                    self.section(name);
                    return true;
                }
                self.section(name);
            }
            taken = true;
            self.token.store(0, Relaxed);
            self.section(name);
            true
        };
        worker.with_lock(self.monitor.lock(), acquire, |_| ());
        taken
    }

    fn give_back(&self, worker: &mut Worker) {
        worker.with_lock(self.monitor.lock(), super::blocking, |worker| {
            self.section(worker.name());
            self.token.store(1, Relaxed);
        });
        self.monitor.notify_one(0);
    }

    fn section(&self, name: u32) {
        self.sections.fetch_add(1, Relaxed);
        self.state.section(name, || ());
    }

    fn now(&self) -> u64 {
        self.epoch.elapsed().as_nanos() as u64
    }
}

fn await_round(reached: &AtomicU64, round: u64) {
    await_later(reached, round - 1);
}

/// Waits until `word` is more than `round`, without any lock.
fn await_later(word: &AtomicU64, round: u64) -> u64 {
    let mut looks = 0;
    loop {
        let seen = word.load(Acquire);
        if seen > round {
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
