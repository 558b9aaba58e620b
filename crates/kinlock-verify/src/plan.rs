//! Which scenarios run against a lock, with how many threads, and for how long each.

use crate::crew::Orders;
use crate::injector::Preemption;
use crate::locks::Specimen;
use crate::report::{Check, PerThread, Property, Report};
use crate::scenarios::{self, Context, Findings, Scenario};
use std::time::Duration;

/// What is wanted of a run.
#[derive(Clone, Debug)]
pub struct Settings {
    /// For one lock, all scenarios together. A scenario that needs a minimum to mean anything may take longer.
    pub time: Duration,
    /// Thread counts. The first is used where a scenario does not go through all of them.
    pub threads: Vec<usize>,
    /// Numbers of locality domains to pretend.
    pub domains: Vec<usize>,
    /// How often threads are interrupted.
    pub preemption: Preemption,
    /// After this time a wait is taken to be endless.
    pub hang: Duration,
    /// Decides everything random.
    pub seed: u64,
    /// The names of the scenarios to run.
    pub scenarios: Vec<&'static str>,
}

/// The scenarios that run by default: all that do not need a prepared environment.
pub fn default_scenarios() -> Vec<&'static str> {
    let named = scenarios::ALL.iter().map(|scenario| scenario.name);
    named.filter(|&name| name != scenarios::TOPOLOGY).collect()
}

/// How often a specimen that is broken on purpose goes through everything before it has got away. What catches it may need threads to meet in a certain way, and a busy machine may not let
/// them for a while.
pub const PATIENCE: u64 = 10;

/// Tortures a lock. `progress` is told each step's name before it starts.
///
/// After a step that leaves threads hanging no further step is run, since those threads would disturb it. A lock that
/// is broken on purpose is given up after the first step in which the check meant for it catches it, or after all steps [`PATIENCE`] times.
pub fn run(specimen: Specimen, settings: &Settings, mut progress: impl FnMut(&str)) -> Report {
    let mut report = Report::new();
    let steps = steps(specimen, settings);
    let weights: u32 = steps.iter().map(|step| step.weight).sum();
    'all: for round in 0..rounds(specimen.defect) {
        for (number, step) in steps.iter().enumerate() {
            let name = step_name(specimen.name, &step.label, round);
            progress(&name);
            let number = round * steps.len() as u64 + number as u64;
            let findings = (step.scenario.run)(&Context {
                specimen,
                orders: Orders {
                    threads: step.threads,
                    duration: settings.time * step.weight / weights,
                    hang: settings.hang,
                    longest_wait: settings.hang,
                    pinned: false,
                    seed: settings.seed.wrapping_add(number),
                },
                preemption: settings.preemption,
                domains: step.domains,
            });
            let stuck = findings.left_threads;
            report.merge(judge(&name, findings));
            if stuck || is_caught(specimen.defect, &report) {
                break 'all;
            }
        }
    }
    if let Some(meant) = specimen.defect {
        report.push(judge_catch(specimen.name, meant, &report.checks));
    }
    report
}

/// How often everything is gone through at most, for a specimen whose defect violates `defect`.
pub(crate) fn rounds(defect: Option<Property>) -> u64 {
    defect.map_or(1, |_| PATIENCE)
}

/// Unique within a report.
pub(crate) fn step_name(specimen: &str, label: &str, round: u64) -> String {
    match round {
        0 => format!("{specimen}/{label}"),
        _ => format!("{specimen}/{label}#{}", round + 1),
    }
}

/// Whether the check meant for this defect has failed.
pub(crate) fn is_caught(defect: Option<Property>, report: &Report) -> bool {
    let mut checks = report.checks.iter();
    defect.is_some_and(|meant| checks.any(|check| check.property == meant && !check.passed))
}

pub(crate) fn judge_catch(lock: &str, meant: Property, checks: &[Check]) -> Check {
    let mut failed = checks.iter().filter(|check| !check.passed);
    let by = failed.clone().find(|check| check.property == meant);
    Check {
        name: format!("{lock}/{}", Property::Catch.name()),
        property: Property::Catch,
        passed: by.is_some(),
        detail: match (by, failed.next()) {
            (Some(by), _) => format!("caught by {}", by.name),
            (None, None) => format!("NOT CAUGHT: no check failed, least of all {}", meant.name()),
            (None, Some(other)) => {
                format!(
                    "NOT CAUGHT by {}, the property it violates, but by {}",
                    meant.name(),
                    other.name
                )
            }
        },
    }
}

struct Step {
    scenario: &'static Scenario,
    label: String,
    threads: usize,
    domains: usize,
    /// Its share of the time.
    weight: u32,
}

fn steps(specimen: Specimen, settings: &Settings) -> Vec<Step> {
    let few = settings.threads[0];
    let mut steps = Vec::new();
    for scenario in scenarios::ALL
        .iter()
        .filter(|s| settings.scenarios.contains(&s.name) && specimen.suits(s))
    {
        let mut add = |label: String, threads, domains| {
            steps.push(Step {
                scenario,
                label,
                threads,
                domains,
                weight: scenario.weight,
            });
        };
        match scenario.name {
            scenarios::PREEMPTION => settings
                .threads
                .iter()
                .for_each(|&threads| add(format!("{}-{threads}", scenario.name), threads, 1)),
            scenarios::DOMAINS => settings
                .domains
                .iter()
                .for_each(|&domains| add(format!("{}-{domains}", scenario.name), few, domains)),
            scenarios::TOPOLOGY => {
                let domains = kinlock_core::topology::domain_count();
                add(format!("{}-{domains}", scenario.name), few, domains);
            }
            name => add(name.to_owned(), few, 1),
        }
    }
    steps
}

fn judge(step: &str, findings: Findings) -> Report {
    let mut report = Report::new();
    report.per_thread = PerThread::of(&findings.acquisitions);
    for (property, verdict) in findings.verdicts {
        let passed = verdict.is_ok();
        report.push(Check {
            name: format!("{step}/{}", property.name()),
            property,
            passed,
            detail: verdict.unwrap_or_else(|what| what),
        });
    }
    report
}
