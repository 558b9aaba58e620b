//! Ways to ill-treat IDs.

mod fork;
mod leases;
mod sequences;

use super::Specimen;
use super::source::Broken;
use crate::plan::{Scenario, scenario};
use kinlock_ids::Backend;

/// All scenarios, in the order in which they run.
pub const ALL: &[Scenario<Specimen>] = &[
    scenario("leases", 4, has_leases, leases::run),
    scenario("sequences", 6, has_domain, sequences::run),
    scenario("churn", 3, has_domain, sequences::churn),
    scenario("sparse", 2, has_domain, sequences::sparse),
    scenario("fork", 2, has_domain, fork::run),
];

fn has_leases(specimen: &Specimen) -> bool {
    specimen.backend == Backend::Lease
}

/// Structures need a domain, and a broken allocator has none.
fn has_domain(specimen: &Specimen) -> bool {
    matches!(specimen.broken, None | Some(Broken::NoRestart))
}

/// What a scenario works with.
pub(super) type Context = crate::plan::Context<Specimen>;
