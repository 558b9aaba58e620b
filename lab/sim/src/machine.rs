//! The machines that can be simulated.
//!
//! A machine is a text file (see `machines/` in this crate). It has an origin for every number:
//! published, with the source; fitted, with what it was fitted to; measured; or assumed. [`load`]
//! takes the name of a machine that comes with the crate, a path, or `this` for the host.
//! `docs/guide/machines.md` describes the format.

#[cfg(test)]
mod tests;

pub use kinlock_measure::machine::{
    Costs, CpuId, DISTANCES, Distance, Machine, MachineError, Origin, Parameter, Shape,
};

macro_rules! built_in {
    ($($name:literal)*) => {
        /// The machines that come with the crate: name and text.
        pub const BUILT_IN: &[(&str, &str)] = &[
            $(($name, include_str!(concat!("../machines/", $name, ".toml"))),)*
        ];
    };
}

built_in! { "haswell-ex-4s" "westmere-ex-8s" "ivybridge-2s" "epyc-9654-2s" "graviton4-2s" "laptop" }

/// The names that [`load`] knows: those of the machines that come with the crate, and
/// [`Machine::THIS`].
pub fn names() -> impl Iterator<Item = &'static str> {
    let built_in = BUILT_IN.iter().map(|(name, _)| *name);
    built_in.chain([Machine::THIS])
}

/// The machine called `name`, or described by the file at that path.
///
/// # Errors
///
/// If there is no such machine or file, or the file is wrong: one line that names file, line and
/// field. For [`Machine::THIS`]: as [`Machine::measure`].
pub fn load(name: &str) -> Result<Machine, MachineError> {
    if name == Machine::THIS {
        return Machine::measure();
    }
    match BUILT_IN.iter().find(|(known, _)| *known == name) {
        Some((_, text)) => Machine::parse(name, text),
        None => Machine::read(name, &names().collect::<Vec<_>>()),
    }
}
