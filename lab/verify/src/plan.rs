//! A torture run: a sequence of steps, each with its share of the time.

use crate::crew::Orders;
use crate::injector::Preemption;
use crate::report::{Check, Findings, Property, Report};
use crate::specimen::Named;
use std::time::Duration;

/// How many rounds a specimen that is broken on purpose gets before it counts as not caught. Some
/// defects need threads to meet in a certain way, which a busy machine may prevent for a while.
pub const PATIENCE: u64 = 10;

/// The parameters of a run.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The time for all scenarios of one specimen together. A scenario that needs a minimum may
    /// take longer.
    pub time: Duration,
    /// The thread counts. Scenarios that do not go through all of them use the first.
    pub threads: Vec<usize>,
    /// Numbers of locality domains to pretend, for locks.
    pub domains: Vec<usize>,
    /// How often threads are interrupted.
    pub preemption: Preemption,
    /// After this time a wait counts as endless.
    pub hang: Duration,
    /// The seed of all random choices.
    pub seed: u64,
    /// The names of the scenarios to run.
    pub scenarios: Vec<&'static str>,
}

/// Something that can be tortured.
pub trait Tortured: Named {
    /// Tortures the specimen. `progress` is told each step's name before the step starts.
    ///
    /// After a step that leaves threads hanging no further step is run, because those threads would
    /// disturb it. The torture of a specimen that is broken on purpose ends with the first step in
    /// which a check [shows](Property::shows) the defect, or after all steps have run [`PATIENCE`]
    /// times.
    fn torture(self, settings: &Settings, progress: &mut dyn FnMut(&str)) -> Report;
}

/// A way to ill-treat what is tortured.
#[derive(Debug)]
pub struct Scenario<S: 'static> {
    /// Its name on the command line and in reports.
    pub name: &'static str,
    /// Its share of the time, relative to the shares of the other scenarios.
    pub(crate) weight: u32,
    /// Whether the scenario makes sense for a specimen.
    pub fits: fn(&S) -> bool,
    pub(crate) run: fn(&Context<S>) -> Findings,
}

pub(crate) const fn scenario<S>(
    name: &'static str,
    weight: u32,
    fits: fn(&S) -> bool,
    run: fn(&Context<S>) -> Findings,
) -> Scenario<S> {
    Scenario {
        name,
        weight,
        fits,
        run,
    }
}

/// A scenario with its parameters.
pub(crate) struct Step<S> {
    /// The step's name, unique among the steps.
    pub label: String,
    /// Its share of the time, relative to the shares of the other steps.
    pub weight: u32,
    pub threads: usize,
    pub run: fn(&Context<S>) -> Findings,
}

/// What a scenario works with.
#[derive(Clone, Debug)]
pub(crate) struct Context<S> {
    pub specimen: S,
    pub orders: Orders,
    pub preemption: Preemption,
}

/// Runs all steps, as [`Tortured::torture`] says.
pub(crate) fn run<S: Named>(
    specimen: S,
    settings: &Settings,
    steps: &[Step<S>],
    progress: &mut dyn FnMut(&str),
) -> Report {
    let mut report = Report::new();
    let weights: u32 = steps.iter().map(|step| step.weight).sum();
    let catch = |report: &Report| {
        let meant = specimen.defect()?;
        Some(judge_catch(specimen.name(), meant, &report.checks))
    };
    let rounds = specimen.defect().map_or(1, |_| PATIENCE);
    let mut seed = settings.seed;
    'all: for round in 0..rounds {
        for step in steps {
            let name = step_name(specimen.name(), &step.label, round);
            progress(&name);
            let orders = Orders {
                threads: step.threads,
                duration: settings.time * step.weight / weights,
                hang: settings.hang,
                longest_wait: settings.hang,
                pinned: false,
                seed,
            };
            let findings = (step.run)(&Context {
                specimen,
                orders,
                preemption: settings.preemption,
            });
            seed = seed.wrapping_add(1);
            let stuck = findings.left_threads;
            report.merge(findings.report(&name));
            if stuck || catch(&report).is_some_and(|catch| catch.passed) {
                break 'all;
            }
        }
    }
    if let Some(catch) = catch(&report) {
        report.push(catch);
    }
    report
}

/// Judges whether a check has shown the defect, which is meant to violate `meant`, and names it.
pub(crate) fn judge_catch(specimen: &str, meant: Property, checks: &[Check]) -> Check {
    let mut failed = checks.iter().filter(|check| !check.passed);
    let by = failed.clone().find(|check| check.property.shows(meant));
    let meant = meant.name();
    let detail = match (by, failed.next()) {
        (Some(by), _) => format!("caught by {}", by.name),
        (None, None) => format!("NOT CAUGHT: no check failed, least of all {meant}"),
        (None, Some(other)) => format!(
            "NOT CAUGHT by {meant}, the property it violates, but by {}",
            other.name
        ),
    };
    Check::new(specimen, Property::Catch, by.is_some(), detail)
}

/// The name of a step, unique within a report.
fn step_name(specimen: &str, label: &str, round: u64) -> String {
    match round {
        0 => format!("{specimen}/{label}"),
        _ => format!("{specimen}/{label}#{}", round + 1),
    }
}
