//! Why something cannot be made or entered.

use super::area::Unavailable;
use crate::raw::MAX_IDS;
use core::fmt;

/// Why a domain, or a structure in one, cannot be made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum BuildError {
    /// Restartable sequences were asked for and are not available.
    Unavailable(Unavailable),
    /// A number of IDs was asked for together with restartable sequences, where the kernel decides
    /// their number.
    KernelDecides,
    /// This number of IDs is out of range.
    MaxIds(u32),
    /// There is no memory for the domain's state, or no address space for the IDs' memory.
    Memory,
    /// The process has made 2147483647 domains with leases, as many as serial numbers can tell
    /// apart.
    TooManyDomains,
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BuildError::Unavailable(why) => why.fmt(f),
            BuildError::KernelDecides => {
                f.write_str("with restartable sequences the kernel decides on the number of IDs")
            }
            BuildError::MaxIds(max_ids) => {
                write!(f, "{max_ids} IDs; it has to be 1 to {}", MAX_IDS / 2)
            }
            BuildError::Memory => f.write_str("no memory or address space for so many IDs"),
            BuildError::TooManyDomains => {
                f.write_str("the process has made as many domains as it can tell apart")
            }
        }
    }
}

impl core::error::Error for BuildError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            BuildError::Unavailable(why) => Some(why),
            _ => None,
        }
    }
}

/// Why a thread gets no lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum EnterError {
    /// All [`Domain::max_ids`](crate::Domain::max_ids) IDs are held.
    Exhausted,
    /// The domain is restartable: its IDs are not held.
    NothingToHold,
    /// The thread is in one of its last destructors; its leases have been taken away.
    ThreadEnded,
}

impl fmt::Display for EnterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            EnterError::Exhausted => "all concurrency IDs of the domain are held",
            EnterError::NothingToHold => "IDs of a restartable domain are not held",
            EnterError::ThreadEnded => "the thread has ended but for its last destructors",
        })
    }
}

impl core::error::Error for EnterError {}
