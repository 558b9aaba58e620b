//! What kinlock's crates share: the [`Platform`](platform::Platform) that algorithms run on, and
//! the lock algorithms, written once and generic over it.
//!
//! Users of locks want the crate `kinlock`. This crate is for readers of the algorithms, and for
//! those who run them on another platform, such as a simulator, a model checker or a kernel. It
//! makes no semver promise.
//!
//! # Modules
//!
//! From the bottom up: each module uses only those above it in this table.
//!
//! | module | contents |
//! | --- | --- |
//! | [`atomic`], [`tuning`], [`events`] | a platform's atomics; the values of the knobs; counters |
//! | `sys`, `rseq`, `fork` | system calls; the thread's CPU; resetting in a forked child |
//! | `environment` | reading the `KINLOCK_*` variables |
//! | `topology` | CPUs and locality domains |
//! | [`config`] | the knobs in force |
//! | [`visible_readers`] | the table in which readers of read-biased locks announce themselves |
//! | [`slots`] | where threads wait: slots and nodes |
//! | [`platform`] | what an algorithm may ask of the machine |
//! | [`native`], `loom` | the platforms of the hardware and of the model checker |
//! | `defect` | deliberate defects of locks, and a platform that has one: for checks |
//! | [`raw`] | the algorithms |
//! | [`configured`] | the algorithms with the knobs in force |
//!
//! # Features
//!
//! * `std` (default): parking, clocks, topology, thread-locals. Linux only. Without it the crate is
//!   `no_std` and waiters only spin.
//! * `events`: counters of what slow paths do; see [`events`].

#![cfg_attr(not(feature = "std"), no_std)]

#[cfg(all(feature = "std", not(target_os = "linux")))]
compile_error!(
    "the feature `std` of kinlock needs Linux: futexes, membarrier, restartable sequences"
);

pub mod atomic;
pub mod config;
pub mod configured;
#[doc(hidden)]
pub mod defect;
#[cfg(feature = "std")]
mod environment;
pub mod events;
#[cfg(feature = "std")]
pub mod fork;
#[cfg(loom)]
pub mod loom;
pub mod native;
pub mod platform;
pub mod raw;
#[cfg(feature = "std")]
pub mod rseq;
pub mod slots;
#[cfg(feature = "std")]
pub mod sys;
#[cfg(feature = "std")]
pub mod topology;
pub mod tuning;
pub mod visible_readers;

pub use native::Native;
