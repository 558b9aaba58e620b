//! A deterministic, simulated cache-coherent NUMA machine that runs kinlock's own lock source.
//!
//! Few people own a machine with four sockets and 144 hardware threads, and most want to know
//! before they deploy. This crate implements [`kinlock_core::platform::Platform`] on a simulated
//! machine ([`Sim`]). The library's locks run on it, not a model of them: each virtual thread is a
//! coroutine, and each atomic access takes the time that follows from the state of its cache line
//! and the distance. The same seed gives the same result on every host.
//!
//! The simulator says nothing about memory ordering: values are sequentially consistent, except
//! where a [`Disturbance`] delays a store. Ordering is the model checker's job.
//! `docs/guide/simulator.md` of the repository describes the cost model, and how far to trust it.
//!
//! # Modules
//!
//! Each module uses only modules above it in this table.
//!
//! | module | what | uses |
//! | --- | --- | --- |
//! | [`machine`] | the machines that can be simulated: shape, costs, origin of each number | |
//! | `coherence` | cache lines and the cost of an access | `machine` |
//! | `memory` | the arena in which shared data lives, and its lines | `coherence` |
//! | [`trace`] | what each hand-off of a lock waited for | `coherence` |
//! | `world` | a simulation under way: threads, CPUs, the order of events | all above |
//! | [`platform`] | the machine as an algorithm sees it | `world` |
//! | [`locks`] | the locks that can run, one small file each | `platform` and above |
//! | [`workloads`] | the loads that locks are put under, one file each | `locks` and above |
//! | [`run`] | one simulation of a lock under a workload, and its outcome | `workloads` and above |
//! | [`schedule`] | any bodies on the machine, with disturbances | `platform` and above |
//! | [`published`] | published measurements, and how to simulate them | `world` and above |

/// An enumeration, the list of its variants in order, and a name of each for people.
macro_rules! with_names {
    (
        $(#[$meta:meta])* $name:ident
        $($(#[$doc:meta])* $variant:ident $text:literal;)*
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
        pub enum $name {
            $($(#[$doc])* $variant,)*
        }

        impl $name {
            /// All variants.
            pub const ALL: [Self; [$($text),*].len()] = [$(Self::$variant),*];

            /// The name for people.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)*
                }
            }
        }
    };
}

mod coherence;
pub mod locks;
pub mod machine;
mod memory;
pub mod platform;
pub mod published;
pub mod run;
pub mod schedule;
pub mod trace;
pub mod workloads;
mod world;

pub use coherence::Traffic;
pub use machine::Machine;
pub use platform::{Sim, compute, place, place_slice};
pub use run::{Outcome, Run};
pub use schedule::{Played, Schedule};
pub use trace::Trace;
pub use workloads::Handoffs;
pub use world::{
    Disruption, DisruptionKind, Disturbance, FencesDisturbed, Note, Noted, Placement, Spot, Stuck,
};

/// Compiles and runs the examples of the page about the simulator, with the documentation's own.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/simulator.md")]
mod page {}
