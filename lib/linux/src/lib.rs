//! Linux as a platform of kinlock's locks.
//!
//! The algorithms are in [`kinlock_core`], which knows neither `std` nor libc. Whatever they need
//! of the machine is here: [`Native`] implements [`Platform`](kinlock_core::platform::Platform).
//! Users of locks want the crate `kinlock`. This crate makes no semver promise.
//!
//! # Modules
//!
//! From the bottom up: each module uses only those above it in this table.
//!
//! | module | contents |
//! | --- | --- |
//! | `probe` | a probe for tools such as bpftrace |
//! | [`sys`], [`rseq`], [`fork`] | system calls; the thread's CPU; resetting in a forked child |
//! | `environment` | reading the `KINLOCK_*` variables |
//! | [`topology`] | CPUs and locality domains |
//! | [`native`] | the platform: sleeping, slots of threads, copies of the library in one process |
//! | [`config`] | the knobs in force |
//! | [`list`] | objects that ending threads and forked children have to find |

#[cfg(not(target_os = "linux"))]
compile_error!("kinlock-linux needs Linux: futexes, membarrier, restartable sequences");

pub mod config;
mod environment;
#[doc(hidden)]
pub use environment::futex_alone;
pub mod fork;
pub mod list;
pub mod native;
pub mod probe;
pub mod rseq;
pub mod sys;
pub mod topology;

pub use native::Native;

/// Has `cargo test` run the example of the page that the registry shows.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
