//! What a machine is made of: its shape, and what everything on it costs.
//!
//! A machine is a text file. Every number stands beside its origin: published with its source,
//! fitted with what it was fitted on, measured, or assumed. [`Machine::measure`] makes one of the
//! host. The format is described in `docs/guide/machines.md`.

mod costs;
mod entry;
mod error;
mod file;
mod parameter;
mod pingpong;
mod shape;
mod text;
mod this;
mod write;

pub use costs::{Costs, DISTANCES, Distance};
pub use entry::{MachineEntry, ParameterEntry};
pub use error::MachineError;
pub use parameter::{Origin, Parameter};
pub use shape::{CpuId, Shape};

use std::fs::File;
use std::io::{ErrorKind, Read};

/// A machine: its shape, and the costs on it in cycles of its clock.
#[derive(Clone, Debug)]
pub struct Machine {
    /// The file's `name`.
    pub name: String,
    /// One line about the machine.
    pub about: String,
    /// Sockets, last-level caches, cores, hardware threads and the distances between them.
    pub shape: Shape,
    /// What everything costs.
    pub costs: Costs,
    /// Every number of the file with its origin, in the order of the file.
    pub parameters: Vec<Parameter>,
}

impl Machine {
    /// The name of the host.
    pub const THIS: &'static str = "this";

    /// The most bytes that a machine file may have.
    pub const MAX_FILE: u64 = 1 << 20;

    /// The host: its shape is read, its latencies are measured, which takes up to two seconds.
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

    /// The machine as a file that [`parse`](Self::parse) reads: for keeping, comparing and editing.
    ///
    /// Costs that the program has changed since the machine was loaded are written as they are now,
    /// as assumed.
    pub fn to_toml(&self) -> String {
        write::machine(self)
    }

    /// Makes the number that is called `name` in machine files `factor` times as large, if there is
    /// such a number. A percentage stays at 100 or above.
    pub fn scale(&mut self, name: &str, factor: f64) {
        let least = if Costs::is_percentage(name) { 100 } else { 0 };
        if let Some(cost) = self.costs.named(name) {
            *cost = ((*cost as f64 * factor).round() as u64).max(least);
        }
    }

    /// The same machine with everything between sockets taking `factor` times as long: for bands
    /// over plausible latencies.
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

fn read(path: &str, known: &[&str]) -> Result<String, MachineError> {
    let wrong = |problem: String| MachineError::new(path, problem);
    let failed = |e: std::io::Error| match e.kind() {
        ErrorKind::NotFound => MachineError::unknown(path, known),
        ErrorKind::IsADirectory => wrong("a directory, not a machine file".into()),
        _ => wrong(e.to_string()),
    };
    let mut bytes = Vec::new();
    // A byte more than allowed tells whether there is more; files such as /dev/zero have no size.
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
