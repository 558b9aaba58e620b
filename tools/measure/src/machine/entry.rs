//! A machine as reports have it.

use super::Machine;
use serde::Serialize;

/// A machine with the origin of each of its numbers. Field names are a contract: add, don't
/// rename.
#[derive(Debug, Serialize)]
pub struct MachineEntry {
    /// What it is called.
    pub name: String,
    /// One line about it.
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
#[derive(Debug, Serialize)]
pub struct ParameterEntry {
    /// Its name in the file.
    pub name: String,
    /// Its value with the unit.
    pub value: String,
    /// Published, fitted, measured or assumed.
    pub origin: String,
    /// The source, what it was fitted on, or why it is assumed.
    pub source: String,
}

impl MachineEntry {
    /// Of this machine.
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
