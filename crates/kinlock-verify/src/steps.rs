//! A torture run: one step after the other, each with its share of the time.

use crate::report::{Check, Findings, Property, Report};
use crate::specimen::Named;
use std::time::Duration;

/// How many rounds a specimen that is broken on purpose gets before it counts as not caught. Some
/// defects need threads to meet in a certain way, which a busy machine may prevent for a while.
pub const PATIENCE: u64 = 10;

/// A scenario with its parameters, `T`.
pub(crate) struct Step<T> {
    /// Unique among the steps.
    pub label: String,
    /// Its share of the time, relative to the others'.
    pub weight: u32,
    pub what: T,
}

/// What a step may use.
pub(crate) struct Share {
    pub time: Duration,
    pub seed: u64,
}

/// Plays all steps within `whole`. `progress` is told each step's name before it starts.
///
/// After a step that leaves threads hanging no further step is run, since those threads would
/// disturb it. A specimen that is broken on purpose is done after the first step in which the check
/// meant for it catches it, or after all steps [`PATIENCE`] times.
pub(crate) fn run<S: Named, T>(
    specimen: &S,
    whole: Share,
    steps: &[Step<T>],
    mut progress: impl FnMut(&str),
    play: impl Fn(&T, Share) -> Findings,
) -> Report {
    let mut report = Report::new();
    let weights: u32 = steps.iter().map(|step| step.weight).sum();
    let rounds = specimen.defect().map_or(1, |_| PATIENCE);
    let mut seed = whole.seed;
    'all: for round in 0..rounds {
        for step in steps {
            let name = step_name(specimen.name(), &step.label, round);
            progress(&name);
            let time = whole.time * step.weight / weights;
            let findings = play(&step.what, Share { time, seed });
            seed = seed.wrapping_add(1);
            let stuck = findings.left_threads;
            report.merge(findings.report(&name));
            if stuck || is_caught(specimen.defect(), &report) {
                break 'all;
            }
        }
    }
    if let Some(meant) = specimen.defect() {
        report.push(judge_catch(specimen.name(), meant, &report.checks));
    }
    report
}

/// Whether the check meant for `meant`, which is broken on purpose, has caught it, and which did.
pub(crate) fn judge_catch(specimen: &str, meant: Property, checks: &[Check]) -> Check {
    let mut failed = checks.iter().filter(|check| !check.passed);
    let by = failed.clone().find(|check| check.property == meant);
    let meant = meant.name();
    Check {
        name: format!("{specimen}/{}", Property::Catch.name()),
        property: Property::Catch,
        passed: by.is_some(),
        detail: match (by, failed.next()) {
            (Some(by), _) => format!("caught by {}", by.name),
            (None, None) => format!("NOT CAUGHT: no check failed, least of all {meant}"),
            (None, Some(other)) => format!(
                "NOT CAUGHT by {meant}, the property it violates, but by {}",
                other.name
            ),
        },
    }
}

/// Unique within a report.
fn step_name(specimen: &str, label: &str, round: u64) -> String {
    match round {
        0 => format!("{specimen}/{label}"),
        _ => format!("{specimen}/{label}#{}", round + 1),
    }
}

/// Whether the check meant for this defect has failed.
fn is_caught(defect: Option<Property>, report: &Report) -> bool {
    let mut checks = report.checks.iter();
    defect.is_some_and(|meant| checks.any(|check| check.property == meant && !check.passed))
}
