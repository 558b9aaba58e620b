//! The machine's CPUs and locality domains, and what its kernel offers to locks.
//!
//! ```
//! use kinlock::topology::{DomainKind, Topology};
//!
//! let topology = Topology::current();
//! for (number, cpus) in topology.domains(DomainKind::Node).iter().enumerate() {
//!     println!("domain {number}: {cpus:?}");
//! }
//! ```

#[doc(inline)]
pub use kinlock_linux::topology::{Cpu, DomainKind, Features, Node, Topology};
