//! The choice of a backend.

#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)))]
use crate::raw::WidePair;
use core::fmt;
use core::str::FromStr;

/// How a domain keeps track of its open sections. All backends keep the same contract; their costs
/// differ.
///
/// | | begin and end | `passed`, `wait` | take it |
/// | --- | --- | --- | --- |
/// | `Locked` | two critical sections of our mutex | one load | by default |
/// | `Slots` | two read-modify-writes, one of them shared | scans slots | many CPUs, rare waits |
/// | `Packed` | three shared read-modify-writes | one load | many CPUs, frequent `passed` |
/// | `Wide` | the same with sixteen bytes | one load | 2^50 generations are too few |
///
/// Begin and end are O(1) with `Locked` and `Slots`. With `Packed` and `Wide` they walk the list:
/// O(open sections). A check or wait with `Slots` reads the slots of all threads that have begun
/// sections. `Locked` is the fastest of the four on two CPUs that begin at the same time.
///
/// A thread that is preempted within begin or end holds all others up with `Locked`; they sleep.
/// With `Packed` and `Wide` its mark is a lock bit: it holds up beginners and its neighbours, which
/// pause, yield, and sleep for a while. With `Slots` it holds no one up.
///
/// `Wide` needs a CPU with an exchange of sixteen bytes (`cx16` on x86-64; every aarch64 has one).
/// Without it the domain is [refused](Unsupported): there is no silent fallback to another backend.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Backend {
    /// A list whose elements have a lock bit each, in pairs of eight bytes.
    Packed,
    /// The same in pairs of sixteen bytes.
    Wide,
    /// A list under a mutex.
    #[default]
    Locked,
    /// A slot for each thread.
    Slots,
}

impl Backend {
    /// All backends.
    pub const ALL: [Backend; 4] = [
        Backend::Packed,
        Backend::Wide,
        Backend::Locked,
        Backend::Slots,
    ];

    /// The name on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Backend::Packed => "packed",
            Backend::Wide => "wide",
            Backend::Locked => "locked",
            Backend::Slots => "slots",
        }
    }

    /// Whether this CPU supports the backend. Only `Wide` has a requirement: an exchange of sixteen
    /// bytes.
    pub fn is_supported(self) -> bool {
        match self {
            #[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)))]
            Backend::Wide => WidePair::is_supported(),
            #[cfg(not(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri))))]
            Backend::Wide => false,
            _ => true,
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

/// The CPU cannot do what the backend needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unsupported(
    /// The backend.
    pub Backend,
);

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "this CPU cannot exchange sixteen bytes, which the backend {} needs",
            self.0
        )
    }
}

impl core::error::Error for Unsupported {}

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
