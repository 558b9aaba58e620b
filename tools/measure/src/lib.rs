//! What the command `kinlock` and the laboratory need to measure.
//!
//! | module | what |
//! | --- | --- |
//! | [`random`] | repeatable random numbers |
//! | [`stats`] | medians, geometric means, fairness |
//! | [`cpus`] | the CPUs that this process may use |
//! | [`interrupt`] | signals end a run after the round under way |
//! | [`rounds`] | each subject once per round, in random order |
//! | [`background`] | background load during a measurement |
//! | [`progress`] | a progress bar on a terminal |
//! | [`machine`] | a machine as a text file, and this machine measured as one |
//! | [`workloads`] | workloads that are both measured and simulated or tortured |

// Only the two commands use this crate, so an item whose name says enough has no comment.
#![allow(missing_docs)]

pub mod background;
pub mod cpus;
pub mod interrupt;
pub mod machine;
pub mod progress;
pub mod random;
pub mod rounds;
pub mod stats;
pub mod workloads;
