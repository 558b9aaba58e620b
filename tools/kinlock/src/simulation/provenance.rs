//! What a simulation rests on: machines, locks and workloads, with the origin of each number.

use kinlock_sim::{Machine, Placement, locks, workloads};
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MachineEntry {
    pub name: String,
    pub about: String,
    /// Cycles per microsecond.
    clock_mhz: u64,
    /// Hardware threads.
    cpus: usize,
    /// Sockets; each is one NUMA node.
    sockets: usize,
    caches_per_socket: usize,
    cores_per_cache: usize,
    threads_per_core: usize,
    /// Every number of the machine's file.
    pub parameters: Vec<ParameterEntry>,
}

/// A number and where it comes from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ParameterEntry {
    pub name: String,
    /// Its value with the unit.
    pub value: String,
    /// Published, fitted, measured or assumed.
    pub origin: String,
    /// The source, what it was fitted on, or why it is assumed.
    pub source: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkloadEntry {
    pub name: String,
    pub about: String,
    /// Where its threads run.
    placement: String,
    pub parameters: Vec<ParameterEntry>,
    /// The locks of a recorded program; none for other workloads.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub program_locks: Vec<String>,
    /// How often its threads took these per second when it was recorded; none for other workloads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recorded_per_second: Option<f64>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LockEntry {
    pub name: String,
    about: String,
}

impl MachineEntry {
    pub fn new(machine: &Machine) -> Self {
        let shape = &machine.shape;
        let parameters = machine.parameters.iter().map(|parameter| ParameterEntry {
            name: parameter.name.to_owned(),
            value: parameter.value.clone(),
            origin: parameter.origin.to_string(),
            source: parameter.source.clone(),
        });
        Self {
            name: machine.name.clone(),
            about: machine.about.clone(),
            clock_mhz: machine.costs.clock_mhz,
            cpus: shape.cpus(),
            sockets: shape.sockets,
            caches_per_socket: shape.caches_per_socket,
            cores_per_cache: shape.cores_per_cache,
            threads_per_core: shape.threads_per_core,
            parameters: parameters.collect(),
        }
    }
}

impl WorkloadEntry {
    /// Of a workload whose threads run where `placement` says, else where it was measured.
    pub fn new(kind: &workloads::Kind, placement: Option<Placement>) -> Self {
        let parameters = kind.parameters.iter().map(|constant| ParameterEntry {
            name: constant.name.to_owned(),
            value: format!("{} ns", constant.ns),
            origin: constant.origin.to_owned(),
            source: constant.source.to_owned(),
        });
        Self {
            name: kind.name.to_owned(),
            about: kind.about.to_owned(),
            placement: placement.unwrap_or(kind.placement).name().to_owned(),
            parameters: parameters.collect(),
            program_locks: kind
                .replay()
                .map_or(Vec::new(), |replay| replay.names().to_vec()),
            recorded_per_second: kind.replay().map(|replay| replay.recorded_per_second()),
        }
    }
}

impl LockEntry {
    pub fn new(kind: &locks::Kind) -> Self {
        Self {
            name: kind.name.to_owned(),
            about: kind.about.to_owned(),
        }
    }
}
