//! The choice of a backend.

use core::fmt;
use core::str::FromStr;

/// How a domain keeps track of its open sections. Both backends keep the same contract; their costs
/// differ.
///
/// | | begin and end | `passed`, `wait` | take it |
/// | --- | --- | --- | --- |
/// | `Locked` | two critical sections of our mutex | one load | by default |
/// | `Slots` | two read-modify-writes, one of them shared | scans slots | see below |
///
/// Begin and end are O(1). A check or wait with `Slots` reads the slots of all threads that have
/// begun sections, if the answer is not known yet.
///
/// A thread that is preempted within begin or end holds all others up with `Locked`; they sleep.
/// With `Slots` it holds no one up. Take `Slots` if there are more threads than CPUs on many CPUs,
/// and waits are rare or sections long.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Backend {
    /// A list under a mutex.
    #[default]
    Locked,
    /// A slot for each thread.
    Slots,
}

impl Backend {
    /// All backends.
    pub const ALL: [Backend; 2] = [Backend::Locked, Backend::Slots];

    /// The name on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Backend::Locked => "locked",
            Backend::Slots => "slots",
        }
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Backend {
    type Err = UnknownBackend;

    fn from_str(name: &str) -> Result<Self, UnknownBackend> {
        let mut all = Backend::ALL.into_iter();
        all.find(|backend| backend.name() == name)
            .ok_or(UnknownBackend)
    }
}

/// There is no backend of that name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UnknownBackend;

impl fmt::Display for UnknownBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("known backends: ")?;
        for (i, backend) in Backend::ALL.iter().enumerate() {
            write!(f, "{}{backend}", if i == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

impl core::error::Error for UnknownBackend {}
