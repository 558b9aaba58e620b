//! Ways to ill-treat IDs.

mod fork;
mod leases;
mod sequences;

use super::{Specimen, source};
use crate::injector::Preemption;
use crate::report::Property;
use kinlock_ids::Backend;
use std::time::Duration;

/// A way to ill-treat IDs.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// Its name on the command line and in reports.
    pub name: &'static str,
    /// Its share of the time, relative to the others'.
    pub(super) weight: u32,
    /// Whether it makes sense for a specimen.
    pub(super) fits: fn(&Specimen) -> bool,
    pub(super) run: fn(&Context) -> Findings,
}

/// All scenarios, in the order in which they run.
pub const ALL: &[Scenario] = &[
    Scenario {
        name: "leases",
        weight: 4,
        fits: has_leases,
        run: leases::run,
    },
    Scenario {
        name: "sequences",
        weight: 6,
        fits: works_on_its_own_domain,
        run: sequences::run,
    },
    Scenario {
        name: "churn",
        weight: 3,
        fits: works_on_its_own_domain,
        run: sequences::churn,
    },
    Scenario {
        name: "sparse",
        weight: 2,
        fits: works_on_its_own_domain,
        run: sequences::sparse,
    },
    Scenario {
        name: "fork",
        weight: 2,
        fits: works_on_its_own_domain,
        run: fork::run,
    },
];

fn has_leases(specimen: &Specimen) -> bool {
    specimen.backend == Backend::Lease
}

/// Not one whose allocator is broken: structures have domains, and these have none that is.
fn works_on_its_own_domain(specimen: &Specimen) -> bool {
    let broken = specimen.defect.map(|(broken, _)| broken);
    matches!(broken, None | Some(source::Broken::NoRestart))
}

/// What a scenario works with.
#[derive(Clone, Debug)]
pub(super) struct Context {
    pub specimen: Specimen,
    pub time: Duration,
    pub threads: usize,
    pub preemption: Preemption,
    pub seed: u64,
}

/// What a scenario found out.
#[derive(Debug, Default)]
pub(super) struct Findings {
    /// By property, with details in either case.
    pub verdicts: Vec<(Property, Result<String, String>)>,
    /// Of each thread that lived as long as the scenario.
    pub operations: Vec<u64>,
}

impl Findings {
    fn judge(&mut self, property: Property, holds: bool, detail: String) {
        let verdict = if holds { Ok(detail) } else { Err(detail) };
        self.verdicts.push((property, verdict));
    }
}
