//! The workload of a simulation, with the origin of each number.

use kinlock_measure::machine::Parameter;
use kinlock_sim::{Placement, workloads};
use serde::Serialize;

#[derive(Debug, Serialize)]
pub struct WorkloadEntry {
    pub name: &'static str,
    pub about: &'static str,
    /// Where its threads run.
    placement: &'static str,
    pub parameters: Vec<Parameter>,
    /// The locks of a recorded program; none for other workloads.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub program_locks: Vec<String>,
    /// How often its threads took these locks per second when the program was recorded; none for
    /// other workloads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recorded_per_second: Option<f64>,
}

impl WorkloadEntry {
    /// The entry of a workload whose threads run where `placement` says, or else as in the
    /// measurement.
    pub fn new(kind: &workloads::Kind, placement: Option<Placement>) -> Self {
        let parameters = kind.parameters.iter().map(|constant| Parameter {
            name: constant.name,
            value: format!("{} ns", constant.ns),
            origin: constant.origin,
            source: constant.source.to_owned(),
        });
        Self {
            name: kind.name,
            about: kind.about,
            placement: placement.unwrap_or(kind.placement).name(),
            parameters: parameters.collect(),
            program_locks: kind
                .replay()
                .map_or(Vec::new(), |replay| replay.names().to_vec()),
            recorded_per_second: kind.replay().map(|replay| replay.recorded_per_second()),
        }
    }
}
