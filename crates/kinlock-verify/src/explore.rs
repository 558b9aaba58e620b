//! Random schedules: the library's locks on the simulated machine, disturbed wherever the contracts allow it.
//!
//! A schedule is drawn from a seed: machine, threads, knobs, preemptions before any memory access, interrupts, spurious
//! wake-ups. A failing one is shrunk to the few disruptions that it needs, and named by a [`Replay`].
//!
//! | property | what is demanded |
//! | --- | --- |
//! | exclusion | the data behind the lock is never touched by two threads at a time |
//! | completion | every thread comes to an end |
//! | progress | in the scenario `order`, which switches stealing off: nobody who arrived later comes first, but for kin under a NUMA-aware lock, and those up to a bound |
//! | contract | nobody gives up early; afterwards the lock's word is zero and no waiter slot is in use |
//! | reach | the schedules together got where they mean to go |
//!
//! What cannot be seen here: memory ordering, because values are sequentially consistent (`Fault::RelaxedUnlock` and the mutex's pass; the
//! model checker finds them), and bounds in time.

mod draw;
pub mod ids;
pub mod locks;
mod oracle;
mod replay;
pub mod scenarios;
pub mod sections;
mod shrink;
mod trace;

pub use locks::Specimen;
pub use replay::Replay;

use crate::plan::judge_catch;
use crate::report::{Check, Property, Report};
use kinlock::events::Event;
use kinlock_sim::{Disruption, Played, Spot};
use scenarios::{Scenario, Shared};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// What is wanted of an exploration.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Schedules for each lock at most; a broken one is done when it is caught.
    pub schedules: u64,
    /// The seed of the first schedule; the next one has the next.
    pub seed: u64,
    /// Threads of every schedule; `None`: 2 to 8, by lot.
    pub threads: Option<usize>,
    /// Schedules to play at a time, on host threads of their own.
    pub host_threads: usize,
}

/// The most threads a schedule may have.
pub const MAX_THREADS: usize = 64;

/// With so many schedules or more, those together have to reach what they are there for.
pub const ENOUGH_TO_REACH: u64 = 2000;

/// A schedule that failed.
#[derive(Clone, Debug)]
pub struct Failure {
    /// What it violates.
    pub property: Property,
    /// What went wrong.
    pub detail: String,
    /// The schedule as it was drawn.
    pub drawn: Replay,
    /// The same with the fewest disruptions that were found to be enough.
    pub shrunk: Replay,
    /// How many disruptions it had before.
    pub disruptions: usize,
    /// Which schedule it was, from 1 on.
    pub number: u64,
}

/// The outcome for one lock.
#[derive(Clone, Debug)]
pub struct Explored {
    /// The checks.
    pub report: Report,
    /// The failure that the checks speak of.
    pub failure: Option<Failure>,
    /// Schedules played.
    pub schedules: u64,
    /// Memory accesses in them.
    pub accesses: u64,
}

/// Explores a lock. `progress` is told now and then how many schedules have been played.
pub fn explore(lock: &Specimen, settings: &Settings, progress: impl FnMut(u64)) -> Explored {
    let hunt = hunt(lock, settings, progress);
    let totals = hunt.totals;
    let found = lock
        .defect
        .and_then(|meant| {
            hunt.failures
                .iter()
                .find(|(_, property)| *property == meant)
        })
        .or(hunt.failures.first());
    let failure = found.map(|&(number, _)| shrink_failure(lock, settings, number));
    let mut report = Report::new();
    report.push(match &failure {
        Some(f) => Check {
            name: format!("{}/{}/{}", lock.name, f.drawn.scenario, f.property.name()),
            property: f.property,
            passed: false,
            detail: format!(
                "schedule {}: {}; replay {} ({} of {} disruptions)",
                f.number,
                f.detail,
                f.shrunk,
                f.shrunk.only.as_ref().map_or(f.disruptions, Vec::len),
                f.disruptions
            ),
        },
        None => Check {
            name: format!("{}/schedules/{}", lock.name, Property::Exclusion.name()),
            property: Property::Exclusion,
            passed: true,
            detail: totals.to_string(),
        },
    });
    if let Some(meant) = lock.defect {
        let mut check = judge_catch(lock.name, meant, &report.checks);
        if let Some(f) = failure.as_ref().filter(|_| check.passed) {
            check.detail += &format!(" after {} schedules", f.number);
        }
        report.push(check);
    } else if failure.is_none() && totals.schedules >= ENOUGH_TO_REACH {
        report.push(totals.judge_reach(lock));
    }
    Explored {
        report,
        failure,
        schedules: totals.schedules,
        accesses: totals.accesses,
    }
}

/// Plays one schedule again. `Err`: what it violates, and how.
///
/// # Errors
///
/// If the schedule fails.
pub fn replay(replay: &Replay) -> Result<(), (Property, String)> {
    match play(replay, false).1 {
        None => Ok(()),
        Some(failure) => Err(failure),
    }
}

/// What happens in a schedule, one line for each event.
pub fn trace(replay: &Replay) -> Vec<String> {
    let (played, failure) = play(replay, true);
    let clock_mhz = plan(replay).schedule.machine.costs.clock_mhz;
    let mut lines: Vec<String> =
        trace::lines(&played.map_or_else(Vec::new, |p| p.trace), clock_mhz);
    lines.extend(failure.map(|(property, detail)| format!("{}: {detail}", property.name())));
    lines
}

/// A number of threads.
pub(crate) fn threads(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|n| (2..=MAX_THREADS).contains(n));
    number.ok_or_else(|| format!("a number of threads has to be 2 to {MAX_THREADS}, not {text}"))
}

/// What a hunt through many schedules brought home.
struct Hunt {
    totals: Totals,
    /// The number of the first schedule that violates each property that was violated, in order of that number.
    failures: Vec<(u64, Property)>,
}

/// Plays schedules until the failure that is looked for is found: the first of all, or that of a broken lock's defect.
fn hunt(lock: &Specimen, settings: &Settings, mut progress: impl FnMut(u64)) -> Hunt {
    let next = AtomicU64::new(0);
    // No later schedule is of interest. What is found first does not depend on the host's threads.
    let last = AtomicU64::new(settings.schedules);
    let played = AtomicU64::new(0);
    let failures = Mutex::new(Vec::<(u64, Property)>::new());
    let totals = Mutex::new(Totals::default());
    let work = || {
        let mut own = Totals::default();
        loop {
            let n = next.fetch_add(1, Relaxed);
            if n >= last.load(Relaxed) {
                break;
            }
            let (outcome, failure) = play(&drawn(lock, settings, n), false);
            own.add(outcome.as_ref());
            played.fetch_add(1, Relaxed);
            if let Some((property, _)) = failure {
                if lock.defect.is_none_or(|meant| meant == property) {
                    last.fetch_min(n, Relaxed);
                }
                failures.lock().expect("nobody panics").push((n, property));
            }
        }
        totals.lock().expect("nobody panics").merge(&own);
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..settings.host_threads.max(1))
            .map(|_| scope.spawn(work))
            .collect();
        while !workers.iter().all(|worker| worker.is_finished()) {
            std::thread::sleep(Duration::from_millis(20));
            progress(played.load(Relaxed));
        }
    });
    let mut failures = failures.into_inner().expect("nobody panics");
    failures.sort_by_key(|&(n, _)| n);
    Hunt {
        totals: totals.into_inner().expect("nobody panics"),
        failures,
    }
}

fn drawn(lock: &Specimen, settings: &Settings, number: u64) -> Replay {
    let fits =
        |scenario: &&Scenario| scenario.meets == lock.meets && (lock.in_order || !scenario.ordered);
    let count = scenarios::ALL.iter().filter(fits).count() as u64;
    let mut fitting = scenarios::ALL.iter().filter(fits);
    Replay {
        lock: lock.name,
        scenario: fitting
            .nth((number % count) as usize)
            .expect("some scenario fits every lock")
            .name,
        threads: settings.threads,
        seed: settings.seed.wrapping_add(number),
        only: None,
    }
}

fn shrink_failure(lock: &Specimen, settings: &Settings, number: u64) -> Failure {
    let drawn = drawn(lock, settings, number);
    let (played, failure) = play(&drawn, false);
    let (property, mut detail) = failure.expect("the same seed gives the same schedule");
    let all: Vec<Spot> = played.map_or_else(Vec::new, |p| spots(&p.disruptions));
    let with = |only: &[Spot]| Replay {
        only: Some(only.to_vec()),
        ..drawn.clone()
    };
    // The same kind of failure: another one may be another defect.
    let fails = |only: &[Spot]| {
        play(&with(only), false)
            .1
            .is_some_and(|(p, _)| p == property)
    };
    let (mut few, _) = shrink::shrink(all.clone(), fails);
    few.sort_unstable();
    let mut shrunk = with(&few);
    match play(&shrunk, false).1 {
        Some((_, shorter)) => detail = shorter,
        // A panic's schedule has no list of disruptions.
        None => shrunk = drawn.clone(),
    }
    Failure {
        property,
        detail,
        drawn,
        shrunk,
        disruptions: all.len(),
        number: number + 1,
    }
}

fn spots(disruptions: &[Disruption]) -> Vec<Spot> {
    disruptions.iter().map(|d| d.spot).collect()
}

fn plan(replay: &Replay) -> draw::Plan {
    let (lock, scenario) = (lock_of(replay), scenario_of(replay));
    let mut plan = draw::plan(&lock, scenario, replay.threads, replay.seed);
    plan.schedule.disturbance.only = replay.only.clone();
    plan
}

fn lock_of(replay: &Replay) -> Specimen {
    let known = locks::ALL.iter().find(|lock| lock.name == replay.lock);
    *known.expect("a replay names a lock")
}

fn scenario_of(replay: &Replay) -> &'static Scenario {
    let known = scenarios::ALL.iter().find(|s| s.name == replay.scenario);
    known.expect("a replay names a scenario")
}

/// Plays one schedule. `None`: it ended in a panic.
fn play(replay: &Replay, trace: bool) -> (Option<Played>, Option<(Property, String)>) {
    let (lock, scenario) = (lock_of(replay), scenario_of(replay));
    let mut plan = plan(replay);
    plan.schedule.trace = trace;
    plan.knobs.set();
    let played = catch_unwind(AssertUnwindSafe(|| {
        plan.schedule.play(
            || Shared::new(&lock, scenario, &plan),
            Shared::body,
            Shared::handler,
            Shared::judge,
        )
    }));
    match played {
        Ok((played, failure)) => (Some(played), failure),
        Err(_) => (
            None,
            Some((Property::Contract, "the lock panicked".to_owned())),
        ),
    }
}

/// What happened in many schedules.
#[derive(Clone, Default)]
struct Totals {
    schedules: u64,
    accesses: u64,
    disruptions: u64,
    counted: [u64; Event::ALL.len()],
}

impl Totals {
    fn add(&mut self, played: Option<&Played>) {
        self.schedules += 1;
        let Some(played) = played else {
            return;
        };
        self.accesses += played.accesses;
        self.disruptions += played.disruptions.len() as u64;
        for (sum, n) in self.counted.iter_mut().zip(played.counted) {
            *sum += n;
        }
    }

    fn merge(&mut self, other: &Totals) {
        self.schedules += other.schedules;
        self.accesses += other.accesses;
        self.disruptions += other.disruptions;
        for (sum, n) in self.counted.iter_mut().zip(other.counted) {
            *sum += n;
        }
    }

    fn judge_reach(&self, lock: &Specimen) -> Check {
        let wanted = lock.reach;
        let missed: Vec<_> = wanted
            .iter()
            .filter(|&&e| self.counted[e as usize] == 0)
            .collect();
        let list: Vec<String> = wanted
            .iter()
            .map(|&e| format!("{} {}", self.counted[e as usize], e.name()))
            .collect();
        Check {
            name: format!("{}/schedules/{}", lock.name, Property::Reach.name()),
            property: Property::Reach,
            passed: missed.is_empty(),
            detail: list.join(", "),
        }
    }
}

impl std::fmt::Display for Totals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} schedules, {} accesses, {} disruptions: none failed",
            self.schedules, self.accesses, self.disruptions
        )
    }
}
