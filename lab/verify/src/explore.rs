//! Random schedules: the library's algorithms on the simulated machine, disturbed wherever the
//! contracts allow it.
//!
//! A schedule is drawn from a seed: machine, threads, knobs, preemptions before any memory access,
//! interrupts, spurious wake-ups. A failing schedule is shrunk to the few disruptions that it needs
//! to fail, and named by a [`Replay`].
//!
//! Each kind of thing that is explored is a [`Subject`]: [`locks`] with mutexes and condition
//! variables, [`ids`], [`invalidation`]. For locks:
//!
//! | property | what is demanded |
//! | --- | --- |
//! | exclusion | two threads never touch the data behind the lock at the same time |
//! | completion | every thread comes to an end |
//! | progress | in the scenario `order`: no later thread comes first (see below) |
//! | contract | no wait ends early; in the end the lock's word is zero and no slot is in use |
//! | reach | the schedules together reached the situations that they are meant to reach |
//!
//! In the scenario `order` no thread steals the lock. With a NUMA-aware lock a bounded number of
//! later local waiters may come first.
//!
//! The modules [`ids`] and [`invalidation`] have such tables, too.
//!
//! Two kinds of defects cannot be found here: wrong memory orderings, because all accesses are
//! sequentially consistent (`RelaxedUnlock` passes here, and loom catches it), and waits that
//! exceed a bound in time.

mod draw;
mod hunt;
pub mod ids;
pub mod invalidation;
pub mod locks;
mod oracle;
mod playing;
mod replay;
mod scenarios;
pub mod shrink;
mod trace;
mod violation;

pub use replay::Replay;

use crate::plan::judge_catch;
use crate::report::{Check, Property, Report};
use crate::specimen::Named;
use kinlock_sim::{Played, Spot};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A kind of things that can be explored: some are sound, and some are broken on purpose.
pub trait Subject: Named + fmt::Debug + Send + Sync {
    /// The ways in which this subject is used, at least one. Schedules go through them in order.
    fn scenarios(&self) -> Vec<&'static str> {
        vec!["mixed"]
    }

    /// Plays one schedule.
    fn play(schedule: &Replay<Self>, trace: bool) -> Outcome;

    /// Whether many schedules, none of which has failed, have together reached the situations that
    /// they are meant to reach; and a text with the numbers.
    fn reached(&self, tally: &Tally) -> (bool, String);
}

/// What is counted in a schedule and added up over many; each kind of subject has its own numbers.
#[derive(Clone, Debug, Default)]
pub struct Tally(Vec<u64>);

impl Tally {
    /// Adds the numbers of `other`.
    fn merge(&mut self, other: &Self) {
        self.0.resize(self.0.len().max(other.0.len()), 0);
        for (sum, n) in self.0.iter_mut().zip(&other.0) {
            *sum += n;
        }
    }

    /// The `N` numbers; all 0 if nothing has been counted.
    fn numbers<const N: usize>(&self) -> [u64; N] {
        std::array::from_fn(|i| self.0.get(i).copied().unwrap_or(0))
    }
}

/// How a schedule went.
#[derive(Debug)]
pub struct Outcome {
    /// `None` if the schedule ended in a panic.
    pub played: Option<Played>,
    /// The clock of the schedule's machine, for times in traces.
    pub clock_mhz: u64,
    /// What was counted.
    pub tally: Tally,
    /// The property that the schedule violates, and how.
    pub failure: Option<(Property, String)>,
}

/// The parameters of an exploration.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The number of schedules for each subject. The exploration of a broken subject ends when the
    /// subject is caught, or after [`PATIENCE`] times this number.
    pub schedules: u64,
    /// The seed of the first schedule. Each further schedule adds one to the seed.
    pub seed: u64,
    /// The number of threads in every schedule. `None`: each schedule draws a small number.
    pub threads: Option<usize>,
    /// The number of schedules to play at the same time, each on a host thread.
    pub host_threads: usize,
}

/// The most threads a schedule may have.
pub const MAX_THREADS: usize = 64;

/// From this number on, the schedules together have to reach the situations that they are meant to
/// reach.
pub const ENOUGH_TO_REACH: u64 = 2000;

/// How many times the number of schedules asked for may be played until a broken subject is caught.
/// Only rare schedules catch some defects, and every change of the library changes which ones.
pub const PATIENCE: u64 = 10;

/// A failure of one subject.
#[derive(Clone, Debug)]
pub struct Failure<S> {
    /// What is violated.
    pub property: Property,
    /// What went wrong.
    pub detail: String,
    /// The number of the schedule. The first one has number 1.
    pub number: u64,
    /// The schedule as it was drawn.
    pub drawn: Replay<S>,
    /// The drawn schedule with the fewest disruptions that were found to be enough.
    pub shrunk: Replay<S>,
    /// How many disruptions the drawn schedule has.
    pub disruptions: usize,
}

/// The outcome for one subject.
#[derive(Clone, Debug)]
pub struct Explored<S> {
    /// The checks.
    pub report: Report,
    /// The failure that the checks are about.
    pub failure: Option<Failure<S>>,
    /// Schedules played.
    pub schedules: u64,
    /// Memory accesses in them.
    pub accesses: u64,
}

/// Explores a subject. `progress` is told now and then how many schedules have been played.
pub fn explore<S: Subject>(
    subject: &S,
    settings: &Settings,
    progress: impl FnMut(u64),
) -> Explored<S> {
    let name = subject.name();
    let (totals, failures) = hunt::hunt(subject, settings, progress);
    let meant = |&&(_, property): &&(u64, Property)| Some(property) == subject.defect();
    let found = failures.iter().find(meant).or(failures.first());
    let failure = found.map(|&(number, _)| shrink_failure(subject, settings, number));
    let mut report = Report::new();
    let check = |scenario: &str, property, passed, detail| {
        Check::new(&format!("{name}/{scenario}"), property, passed, detail)
    };
    const TOGETHER: &str = "schedules";
    report.push(match &failure {
        Some(f) => check(f.drawn.scenario, f.property, false, f.to_string()),
        None => check(TOGETHER, Property::Exclusion, true, totals.to_string()),
    });
    if let Some(meant) = subject.defect() {
        let mut check = judge_catch(name, meant, &report.checks);
        if let Some(f) = failure.as_ref().filter(|_| check.passed) {
            check.detail += &format!(" after {} schedules", f.number);
        }
        report.push(check);
    } else if failure.is_none() && totals.schedules >= ENOUGH_TO_REACH {
        let (reached, detail) = subject.reached(&totals.tally);
        report.push(check(TOGETHER, Property::Reach, reached, detail));
    }
    Explored {
        report,
        failure,
        schedules: totals.schedules,
        accesses: totals.accesses,
    }
}

impl<S: Subject> fmt::Display for Failure<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (shrunk, disruptions) = (&self.shrunk, self.disruptions);
        write!(
            f,
            "schedule {}: {}; replay {shrunk} ({} of {disruptions} disruptions)",
            self.number,
            self.detail,
            shrunk.only.as_ref().map_or(disruptions, Vec::len),
        )
    }
}

/// Plays one schedule again. `Err`: the property that it violates, and how.
///
/// # Errors
///
/// If the schedule fails.
pub fn replay<S: Subject>(replay: &Replay<S>) -> Result<(), (Property, String)> {
    play(replay, false).failure.map_or(Ok(()), Err)
}

/// The events of a schedule, one per line.
pub fn trace<S: Subject>(replay: &Replay<S>) -> Vec<String> {
    let outcome = play(replay, true);
    let notes = outcome.played.map_or_else(Vec::new, |played| played.trace);
    let mut lines = trace::lines(&notes, outcome.clock_mhz);
    let failure = outcome.failure;
    lines.extend(failure.map(|(property, detail)| format!("{}: {detail}", property.name())));
    lines
}

/// Parses a number of threads.
pub(crate) fn threads(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|n| (2..=MAX_THREADS).contains(n));
    number.ok_or_else(|| format!("a number of threads has to be 2 to {MAX_THREADS}, not {text}"))
}

fn drawn<S: Subject>(subject: &S, settings: &Settings, number: u64) -> Replay<S> {
    let scenarios = subject.scenarios();
    Replay {
        subject: *subject,
        scenario: scenarios[(number % scenarios.len() as u64) as usize],
        threads: settings.threads,
        seed: settings.seed.wrapping_add(number),
        only: None,
    }
}

fn shrink_failure<S: Subject>(subject: &S, settings: &Settings, number: u64) -> Failure<S> {
    let drawn = drawn(subject, settings, number);
    let outcome = play(&drawn, false);
    let failure = outcome.failure;
    let (property, mut detail) = failure.expect("the same seed gives the same schedule");
    let disruptions = outcome.played.map_or_else(Vec::new, |p| p.disruptions);
    let all: Vec<Spot> = disruptions.iter().map(|d| d.spot).collect();
    let with = |only: &[Spot]| Replay {
        only: Some(only.to_vec()),
        ..drawn.clone()
    };
    // The shrunk schedule has to violate the same property: another one may mean another defect.
    let fails = |only: &[Spot]| {
        let failure = play(&with(only), false).failure;
        failure.is_some_and(|(p, _)| p == property)
    };
    let mut few = shrink::shrink(all.clone(), fails);
    few.sort_unstable();
    let mut shrunk = with(&few);
    match play(&shrunk, false).failure {
        Some((_, shorter)) => detail = shorter,
        // A schedule that panics yields no list of disruptions.
        None => shrunk = drawn.clone(),
    }
    Failure {
        property,
        detail,
        number: number + 1,
        drawn,
        shrunk,
        disruptions: all.len(),
    }
}

/// Plays one schedule, which may panic.
fn play<S: Subject>(replay: &Replay<S>, trace: bool) -> Outcome {
    let outcome = catch_unwind(AssertUnwindSafe(|| S::play(replay, trace)));
    outcome.unwrap_or_else(|_| Outcome {
        played: None,
        clock_mhz: 1000,
        tally: Tally::default(),
        failure: Some((Property::Contract, format!("the {} panicked", S::KIND))),
    })
}
