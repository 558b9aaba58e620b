//! Ways to ill-treat IDs.

mod fork;
mod leases;
mod sequences;

use super::Specimen;
use super::source::Broken;
use crate::report::Findings;
use kinlock_ids::Backend;

/// A way to ill-treat IDs.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// Its name on the command line and in reports.
    pub name: &'static str,
    /// Its share of the time, relative to the shares of the other scenarios.
    pub(super) weight: u32,
    /// Whether it makes sense for a specimen.
    pub(super) fits: fn(&Specimen) -> bool,
    pub(super) run: fn(&Context) -> Findings,
}

/// All scenarios, in the order in which they run.
pub const ALL: &[Scenario] = &[
    scenario("leases", 4, has_leases, leases::run),
    scenario("sequences", 6, has_domain, sequences::run),
    scenario("churn", 3, has_domain, sequences::churn),
    scenario("sparse", 2, has_domain, sequences::sparse),
    scenario("fork", 2, has_domain, fork::run),
];

const fn scenario(
    name: &'static str,
    weight: u32,
    fits: fn(&Specimen) -> bool,
    run: fn(&Context) -> Findings,
) -> Scenario {
    Scenario {
        name,
        weight,
        fits,
        run,
    }
}

fn has_leases(specimen: &Specimen) -> bool {
    specimen.backend == Backend::Lease
}

/// Structures need a domain, and a broken allocator is in none.
fn has_domain(specimen: &Specimen) -> bool {
    matches!(specimen.broken, None | Some(Broken::NoRestart))
}

/// What a scenario works with.
pub(super) type Context = crate::plan::Context<Specimen>;
