//! CPUs and locality domains.
//!
//! One reader of sysfs fills a table from CPU to domain, without allocation. Locks use one such
//! table. [`Topology`], which people and tools use, is made from several.

mod affinity;
mod choice;
mod cpulist;
mod features;
mod hypervisor;
mod machine;
mod map;
mod pretended;
mod table;
mod walk;

use core::fmt;
use core::str::FromStr;

pub use affinity::CpuSet;
pub use cpulist::{CpuList, CpuListError};
pub use features::Features;
pub use machine::{Cpu, Node, Topology};
#[cfg(all(test, not(any(loom, miri))))]
pub(crate) use map::begin_filling;
pub use map::{
    automatic_decision, automatic_decision_if_known, current_domain, domain_count,
    domain_kind_in_use, domain_of_cpu,
};
pub(crate) use map::{mutexes_only, reset_in_child, set_kind};

use kinlock_core::tuning::ParseError;
use table::Table;
use walk::Files;

/// CPUs from this number on count as unknown. No kernel is built for more.
pub const MAX_CPUS: usize = 8192;

/// What the CPUs of a locality domain share: a NUMA node, a last-level cache or a socket.
///
/// Spelt `node`, `llc` and `socket`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum DomainKind {
    /// A NUMA node: CPUs at the same distance from the same memory.
    #[default]
    Node,
    /// The CPUs that share the highest-level cache; an EPYC 9654 has 12 such groups per socket.
    LastLevelCache,
    /// A socket (physical package).
    Socket,
}

impl DomainKind {
    /// All kinds.
    pub const ALL: [DomainKind; 3] = [
        DomainKind::Node,
        DomainKind::LastLevelCache,
        DomainKind::Socket,
    ];

    /// Fills the table with the groups of CPUs that `files` name.
    fn walk(self, files: &impl Files, groups: &Table) {
        groups.forget();
        match self {
            DomainKind::Node => walk::nodes(files, groups),
            DomainKind::LastLevelCache => walk::last_level_caches(files, groups),
            DomainKind::Socket => walk::sockets(files, groups),
        }
    }
}

impl fmt::Display for DomainKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            DomainKind::Node => "node",
            DomainKind::LastLevelCache => "llc",
            DomainKind::Socket => "socket",
        })
    }
}

impl FromStr for DomainKind {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        match text {
            "node" => Ok(DomainKind::Node),
            "llc" => Ok(DomainKind::LastLevelCache),
            "socket" => Ok(DomainKind::Socket),
            _ => Err(ParseError::new("node, llc or socket")),
        }
    }
}
