//! What kinlock's checks share: scenarios that stress a lock, oracles, and seeded defects.
//!
//! A **scenario** is a way to stress a lock: preempted holders, signal handlers, dying threads,
//! forks. Each yields **checks** of a few [properties](report::Property).
//!
//! Three parts use real threads: [`scenarios`] for locks, [`ids`], [`invalidation`].
//! Each runs within a given time. A seed decides what each thread does, but not how threads
//! interleave. [`explore`] looks for failing schedules on the simulated machine instead. What
//! threads do with locks is written once for both kinds of machines, in `play`.
//!
//! The modules, each of which uses only those above it:
//!
//! | modules | content |
//! | --- | --- |
//! | [`signal`], [`child`], [`sandbox`] | system calls |
//! | [`report`], `specimen` | checks, names |
//! | `injector`, [`oracle`] | delays at bad moments, the state behind a lock |
//! | `pretend`, `test_lock`, `monitors` | locks and condition variables |
//! | `play`, [`locks`] | what threads do with a lock, and what is demanded; the locks by name |
//! | `crew`, `nudges`, [`plan`] | threads with a watchdog, signals to them, runs of many steps |
//! | [`scenarios`] | torture of locks |
//! | [`ids`] | torture of concurrency IDs |
//! | [`invalidation`] | torture of delayed invalidation |
//! | [`explore`] | random schedules |

pub mod child;
mod crew;
pub mod explore;
pub mod ids;
mod injector;
pub mod invalidation;
pub mod locks;
mod monitors;
mod nudges;
pub mod oracle;
pub mod plan;
mod play;
mod pretend;
pub mod report;
pub mod sandbox;
pub mod scenarios;
pub mod signal;
mod specimen;
mod test_lock;

pub use injector::{LEVELS, Preemption};
pub use specimen::{BUSTED, Named, by_name};

/// The examples of the README are compiled and run with the documentation's.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
mod readme {}
