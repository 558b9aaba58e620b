//! A machine: its shape, and the costs of operations on it.
//!
//! A machine is a text file. It has an origin for every number: published, with the source; fitted,
//! with what it was fitted to; measured; or assumed. [`Machine::measure`] makes a machine of the
//! host. `docs/guide/machines.md` describes the format.

mod costs;
mod file;
mod pingpong;
mod shape;
mod this;

pub use costs::{Costs, DISTANCES, Distance};
pub use pingpong::clock_ns;
pub use shape::{CpuId, Shape};

use std::fmt;
use std::fs::File;
use std::io::{ErrorKind, Read};

use serde::{Deserialize, Serialize};

/// A machine: its shape, and the costs on it in cycles of its clock.
#[derive(Clone, Debug)]
pub struct Machine {
    pub name: String,
    /// One line about the machine.
    pub about: String,
    /// Sockets, last-level caches, cores, hardware threads and the distances between them.
    pub shape: Shape,
    pub costs: Costs,
    /// Every number of the file with its origin, in the order of the file.
    pub parameters: Vec<Parameter>,
}

impl Machine {
    pub const THIS: &'static str = "this";

    /// The most bytes that a machine file may have.
    pub const MAX_FILE: u64 = 1 << 20;

    /// The host. Its shape is read, and its latencies are measured, which takes up to two seconds.
    ///
    /// # Errors
    ///
    /// If the process may use one CPU only, if threads cannot be pinned, or if the host has more
    /// cores or caches than [`Shape`] allows.
    pub fn measure() -> Result<Machine, MachineError> {
        this::measure()
    }

    /// The machine described by the file at `path`. `known` are the names of machines that could
    /// have been meant, for the error if there is no such file.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, or is wrong: one line that names file, line and field.
    pub fn read(path: &str, known: &[&str]) -> Result<Machine, MachineError> {
        Self::parse(path, &read(path, known)?)
    }

    /// Reads a machine from `text`; `origin` names it in errors.
    ///
    /// # Errors
    ///
    /// If the text is wrong: one line that names file, line and field.
    pub fn parse(origin: &str, text: &str) -> Result<Machine, MachineError> {
        file::parse(origin, text)
    }

    /// The machine as a file that [`parse`](Self::parse) reads, with the numbers from which it was
    /// made.
    pub fn to_toml(&self) -> String {
        let number = |name| self.parameters.iter().find(|p| p.name == name).cloned();
        let Machine {
            name,
            about,
            costs,
            shape,
            ..
        } = self;
        file::text(name, about, costs.clock_mhz, shape, number)
    }

    /// Multiplies the number that is called `name` in machine files by `factor`, if there is such a
    /// number. A percentage stays at 100 or above.
    pub fn scale(&mut self, name: &str, factor: f64) {
        let least = if Costs::is_percentage(name) { 100 } else { 0 };
        if let Some(cost) = self.costs.named(name) {
            *cost = ((*cost as f64 * factor).round() as u64).max(least);
        }
    }

    /// The same machine with all latencies between sockets multiplied by `factor`, for bands over
    /// plausible latencies.
    #[must_use]
    pub fn with_remote_latency(mut self, factor: f64) -> Machine {
        let scale = |c: &mut u64| *c = (*c as f64 * factor).round() as u64;
        let costs = &mut self.costs;
        for table in [
            &mut costs.modified,
            &mut costs.shared,
            &mut costs.invalidate,
        ] {
            table[2..].iter_mut().for_each(scale);
        }
        scale(&mut costs.memory[1]);
        scale(&mut costs.modified_homed_at_reader);
        scale(&mut costs.third_party_home);
        self
    }
}

/// A number of a machine file, or of a workload.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Parameter {
    /// Its name in the file.
    pub name: &'static str,
    /// Its value as the file has it, with the unit.
    pub value: String,
    /// Where it comes from.
    pub origin: Origin,
    /// The source, what it was fitted to, or why it is assumed.
    pub source: String,
}

/// Where a number comes from, the firmest origin first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// Measured and published by others.
    Published,
    /// Measured on this very machine.
    Measured,
    /// Fitted; the source says to what.
    Fitted,
    /// Plausible, from machines of the same kind.
    Assumed,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Origin::Published => "published",
            Origin::Measured => "measured",
            Origin::Fitted => "fitted",
            Origin::Assumed => "assumed",
        })
    }
}

/// A machine as reports have it. Field names are a contract: add, don't rename.
#[derive(Debug, Serialize)]
pub struct MachineEntry {
    pub name: String,
    /// One line about it.
    pub about: String,
    clock_mhz: u64,
    cpus: usize,
    sockets: usize,
    caches_per_socket: usize,
    cores_per_cache: usize,
    threads_per_core: usize,
    /// Every number of the machine's file.
    pub parameters: Vec<Parameter>,
}

impl MachineEntry {
    pub fn new(machine: &Machine) -> Self {
        let shape = &machine.shape;
        Self {
            name: machine.name.clone(),
            about: machine.about.clone(),
            clock_mhz: machine.costs.clock_mhz,
            cpus: shape.cpus(),
            sockets: shape.sockets,
            caches_per_socket: shape.caches_per_socket,
            cores_per_cache: shape.cores_per_cache,
            threads_per_core: shape.threads_per_core,
            parameters: machine.parameters.clone(),
        }
    }
}

/// A machine file is wrong or missing, or the host cannot be measured. The message is one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineError(String);

impl fmt::Display for MachineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for MachineError {}

impl MachineError {
    /// `subject` is a file or the name of a machine. Control characters in either text become
    /// blanks.
    fn new(subject: &str, problem: impl fmt::Display) -> Self {
        Self::one_line(&format!("{subject}: {problem}"))
    }

    fn one_line(text: &str) -> Self {
        MachineError(text.replace(char::is_control, " "))
    }
}

fn read(path: &str, known: &[&str]) -> Result<String, MachineError> {
    let wrong = |problem: String| MachineError::new(path, problem);
    let failed = |e: std::io::Error| match e.kind() {
        ErrorKind::NotFound => MachineError::one_line(&format!(
            "there is no machine `{path}`, nor such a file; known are {}",
            known.join(", ")
        )),
        ErrorKind::IsADirectory => wrong("a directory, not a machine file".into()),
        _ => wrong(e.to_string()),
    };
    let mut bytes = Vec::new();
    // One byte more than allowed is read, to find out whether the file is too long: files such as
    // /dev/zero have no size.
    let mut file = File::open(path)
        .map_err(failed)?
        .take(Machine::MAX_FILE + 1);
    file.read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > Machine::MAX_FILE {
        return Err(wrong(format!(
            "not a machine file: it has more than {} bytes",
            Machine::MAX_FILE
        )));
    }
    String::from_utf8(bytes).map_err(|_| wrong("not a machine file: it is not UTF-8 text".into()))
}
