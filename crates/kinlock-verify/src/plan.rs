//! Which scenarios run against a lock, with how many threads, and for how long each.

use crate::crew::Orders;
use crate::injector::Preemption;
use crate::locks::Specimen;
use crate::report::Report;
use crate::scenarios::{self, Context, Scenario};
use crate::steps::{self, Share, Step};
use std::time::Duration;

pub use crate::steps::PATIENCE;

/// The parameters of a run.
#[derive(Clone, Debug)]
pub struct Settings {
    /// For one lock, all scenarios together. A scenario that needs a minimum may take longer.
    pub time: Duration,
    /// Thread counts. The first is used where a scenario does not go through all of them.
    pub threads: Vec<usize>,
    /// Numbers of locality domains to pretend.
    pub domains: Vec<usize>,
    /// How often threads are interrupted.
    pub preemption: Preemption,
    /// After this time a wait counts as endless.
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

/// Tortures a lock. `progress` is told each step's name before it starts.
///
/// After a step that leaves threads hanging no further step is run. A lock that is broken on
/// purpose is done after the first step in which the check meant for it catches it, or after all
/// steps [`PATIENCE`] times.
pub fn run(specimen: Specimen, settings: &Settings, progress: impl FnMut(&str)) -> Report {
    let whole = Share {
        time: settings.time,
        seed: settings.seed,
    };
    let steps = steps(specimen, settings);
    steps::run(&specimen, whole, &steps, progress, |how, share| {
        (how.scenario.run)(&Context {
            specimen,
            orders: Orders {
                threads: how.threads,
                duration: share.time,
                hang: settings.hang,
                longest_wait: settings.hang,
                pinned: false,
                seed: share.seed,
            },
            preemption: settings.preemption,
            domains: how.domains,
        })
    })
}

struct How {
    scenario: &'static Scenario,
    threads: usize,
    domains: usize,
}

fn steps(specimen: Specimen, settings: &Settings) -> Vec<Step<How>> {
    let few = settings.threads[0];
    let chosen = scenarios::ALL
        .iter()
        .filter(|scenario| settings.scenarios.contains(&scenario.name))
        .filter(|scenario| scenario.suits(&specimen));
    let mut steps = Vec::new();
    for scenario in chosen {
        let mut add = |suffix: Option<usize>, threads, domains| {
            steps.push(Step {
                label: match suffix {
                    Some(number) => format!("{}-{number}", scenario.name),
                    None => scenario.name.to_owned(),
                },
                weight: scenario.weight,
                what: How {
                    scenario,
                    threads,
                    domains,
                },
            });
        };
        match scenario.name {
            scenarios::PREEMPTION => (settings.threads.iter()).for_each(|&n| add(Some(n), n, 1)),
            scenarios::DOMAINS => (settings.domains.iter()).for_each(|&n| add(Some(n), few, n)),
            scenarios::TOPOLOGY => {
                let domains = kinlock_core::topology::domain_count();
                add(Some(domains), few, domains);
            }
            _ => add(None, few, 1),
        }
    }
    steps
}
