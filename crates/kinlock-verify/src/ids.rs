//! Torture of concurrency IDs: leases, and restartable sequences, disturbed just where it hurts.
//!
//! A **specimen** is a way to get IDs: restartable sequences, leases under one of the policies, or one of these broken on purpose. Each is put through scenarios:
//!
//! | scenario | what it does | what must hold |
//! | --- | --- | --- |
//! | `leases` | threads take and give back IDs, several at a time, and signal handlers do too | one holder per ID; IDs below the bound; none is lost |
//! | `sequences` | counters, stacks and pools with delays inside their operations | no addition is lost, nothing is had twice or never |
//! | `churn` | threads come and go, some with leases that they forget | the same; nobody stays a member |
//! | `sparse` | all threads on one CPU, that with the highest number | the same |
//! | `fork` | children, while other threads hold IDs | the child has its own IDs and nobody else's |
//!
//! Meanwhile a [`storm`] sends signals and moves threads between CPUs.

mod scenarios;
mod source;
mod storm;

use crate::injector::Preemption;
use crate::plan::{is_caught, judge_catch, rounds, step_name};
use crate::report::{Check, PerThread, Property, Report};
use kinlock_ids::{Backend, Policy};
use std::time::Duration;

pub use scenarios::ALL as SCENARIOS;
use source::Broken;

/// A way to get IDs.
#[derive(Clone, Copy, Debug)]
pub struct Specimen {
    /// Its name on the command line and in reports.
    pub name: &'static str,
    /// How IDs are held.
    pub backend: Backend,
    /// Who gets which, with leases.
    pub policy: Policy,
    /// What is broken, and what that violates.
    defect: Option<(Broken, Property)>,
}

const fn leased(name: &'static str, policy: Policy) -> Specimen {
    Specimen {
        name,
        backend: Backend::Lease,
        policy,
        defect: None,
    }
}

const fn broken(name: &'static str, backend: Backend, broken: Broken, meant: Property) -> Specimen {
    Specimen {
        name,
        backend,
        policy: Policy::RecentFirst,
        defect: Some((broken, meant)),
    }
}

/// All specimens.
pub const ALL: &[Specimen] = &[
    Specimen {
        name: "rseq",
        backend: Backend::Restartable,
        policy: Policy::RecentFirst,
        defect: None,
    },
    leased("lease-recent-first", Policy::RecentFirst),
    leased("lease-per-cpu", Policy::PerCpu),
    leased("lease-lowest-free", Policy::LowestFree),
    leased("lease-task-owned", Policy::TaskOwned),
    broken(
        "busted-restart",
        Backend::Restartable,
        Broken::NoRestart,
        Property::Exclusion,
    ),
    broken(
        "busted-shared",
        Backend::Lease,
        Broken::Shared,
        Property::Exclusion,
    ),
    broken(
        "busted-leaked",
        Backend::Lease,
        Broken::Leaked,
        Property::Completion,
    ),
    broken(
        "busted-bound",
        Backend::Lease,
        Broken::AboveBound,
        Property::Contract,
    ),
];

/// The name that stands for all that are broken on purpose.
pub const BUSTED: &str = "busted";

impl Specimen {
    /// Whether it is broken on purpose.
    pub fn is_broken(&self) -> bool {
        self.defect.is_some()
    }
}

/// The specimens meant by `name`: one, or all broken ones. Empty if there is none.
pub fn by_name(name: &str) -> Vec<Specimen> {
    let wanted = |s: &&Specimen| s.name == name || name == BUSTED && s.is_broken();
    ALL.iter().filter(wanted).copied().collect()
}

/// What is wanted of a run.
#[derive(Clone, Debug)]
pub struct Settings {
    /// For one specimen, all scenarios together.
    pub time: Duration,
    /// How many threads.
    pub threads: usize,
    /// How often threads are interrupted, besides the storm.
    pub preemption: Preemption,
    /// Decides everything random.
    pub seed: u64,
    /// The names of the scenarios to run.
    pub scenarios: Vec<String>,
}

/// Tortures a specimen. `progress` is told each step's name before it starts.
///
/// One that is broken on purpose is given up after the first scenario in which the check meant for it catches it, or after all scenarios [`PATIENCE`](crate::plan::PATIENCE) times.
pub fn run(specimen: Specimen, settings: &Settings, mut progress: impl FnMut(&str)) -> Report {
    let mut report = Report::new();
    let chosen = SCENARIOS
        .iter()
        .filter(|scenario| (scenario.fits)(&specimen))
        .filter(|scenario| settings.scenarios.iter().any(|name| name == scenario.name));
    let chosen: Vec<_> = chosen.collect();
    let weights: u32 = chosen.iter().map(|scenario| scenario.weight).sum();
    let defect = specimen.defect.map(|(_, meant)| meant);
    'all: for round in 0..rounds(defect) {
        for (number, scenario) in chosen.iter().enumerate() {
            let step = step_name(specimen.name, scenario.name, round);
            progress(&step);
            let number = round * chosen.len() as u64 + number as u64;
            let findings = (scenario.run)(&scenarios::Context {
                specimen,
                time: settings.time * scenario.weight / weights,
                threads: settings.threads,
                preemption: settings.preemption,
                seed: settings.seed.wrapping_add(number),
            });
            report.per_thread = report.per_thread.merge(PerThread::of(&findings.operations));
            for (property, verdict) in findings.verdicts {
                report.push(Check {
                    name: format!("{step}/{}", property.name()),
                    property,
                    passed: verdict.is_ok(),
                    detail: verdict.unwrap_or_else(|what| what),
                });
            }
            if is_caught(defect, &report) {
                break 'all;
            }
        }
    }
    if let Some(meant) = defect {
        report.push(judge_catch(specimen.name, meant, &report.checks));
    }
    report
}
