//! A number of a machine and where it comes from.

use serde::Deserialize;
use std::fmt;

/// A number of a machine file.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameter {
    /// Its name in the file.
    pub name: &'static str,
    /// Its value as the file has it, with the unit.
    pub value: String,
    /// Where it comes from.
    pub origin: Origin,
    /// The source, what it was fitted on, or why it is assumed.
    pub source: String,
}

/// Where a number comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// Measured and published by others.
    Published,
    /// Fitted: the source says on what.
    Fitted,
    /// Measured on this very machine.
    Measured,
    /// Plausible, from machines of the same kind.
    Assumed,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Origin::Published => "published",
            Origin::Fitted => "fitted",
            Origin::Measured => "measured",
            Origin::Assumed => "assumed",
        })
    }
}
