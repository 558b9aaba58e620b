//! Linux as a platform of kinlock's locks.
//!
//! The algorithms are in [`kinlock_core`], which knows neither `std` nor libc. Whatever they need
//! from the machine is here: [`Native`] implements [`Platform`](kinlock_core::platform::Platform).
//! Users of locks want the crate `kinlock`. This crate makes no semver promise.

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

/// Makes `cargo test` run the example of README.md, which the registry shows.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
