//! What a report says about what ran.

use kinlock_measure::machine::MachineEntry;
use serde::Serialize;

use crate::simulation::provenance::{LockEntry, WorkloadEntry};
use crate::simulation::sampling::Variant;

/// All that a report says about what ran. It is the same with other host threads.
#[derive(Debug, Serialize)]
pub struct Setup {
    /// `simulated`.
    pub kind: String,
    pub version: String,
    /// Commit that it was built from, if it was built in a checkout.
    pub commit: Option<String>,
    /// A command that gives these results, with nothing left to defaults.
    pub command: Vec<String>,
    pub machine: MachineEntry,
    pub parameters: Parameters,
    pub seeds: Vec<u64>,
}

#[derive(Debug, Serialize)]
pub struct Parameters {
    /// Simulated seconds per run, after the warm-up.
    pub seconds: f64,
    pub variants: Vec<Variant>,
    /// The lock that the others are compared with.
    pub baseline: String,
    pub threads: Vec<usize>,
    /// How many of the machine's CPUs may be used, if not all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<usize>,
    pub numa: String,
    /// What `numa` came to on this machine.
    pub reorder: bool,
    pub local_limit: String,
    pub domain: String,
    /// Locality domains of the machine.
    pub domains: usize,
    pub locks: Vec<LockEntry>,
    /// The workloads and their constants.
    pub workloads: Vec<WorkloadEntry>,
}

impl Setup {
    /// How many simulations there are.
    pub fn simulations(&self) -> usize {
        self.cells().count() * self.parameters.locks.len() * self.parameters.variants.len()
    }

    /// Workloads and numbers of threads, in order.
    pub fn cells(&self) -> impl Iterator<Item = (&str, usize)> {
        let parameters = &self.parameters;
        let workloads = parameters.workloads.iter();
        workloads.flat_map(|workload| {
            let name = workload.name.as_str();
            parameters.threads.iter().map(move |&n| (name, n))
        })
    }
}
