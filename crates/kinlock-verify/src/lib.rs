//! What kinlock's checks share: scenarios that stress a lock, oracles, and locks broken on purpose.
//!
//! A **scenario** is a way to ill-treat a lock: preempted holders, signal handlers, dying threads, forks.
//! Each yields **checks** of a few properties:
//!
//! | property | holds if |
//! | --- | --- |
//! | [`Exclusion`](report::Property::Exclusion) | two threads never touched the state behind the lock at a time |
//! | [`Completion`](report::Property::Completion) | every thread ended once it was told to stop: no waiter was lost |
//! | [`Progress`](report::Property::Progress) | no thread waited for longer than the limit while others went on |
//! | [`Contract`](report::Property::Contract) | the calls did what their documentation says |
//! | [`Reach`](report::Property::Reach) | the scenario reached what it is for, so that the other checks mean something |
//! | [`Catch`](report::Property::Catch) | a lock that is broken on purpose failed the check meant for it |
//!
//! Three parts use real threads: a [`plan`] of [`scenarios`] for locks, [`ids`], [`invalidation`]. Each
//! runs within a given time. One seed decides what each thread does, not how threads interleave.
//! [`explore`] looks for failing schedules on the simulated machine instead.
//!
//! The modules, each of which uses only those above it:
//!
//! | modules | content |
//! | --- | --- |
//! | `random`, `affinity`, `signal`, `child`, [`sandbox`], [`report`], [`test_lock`] | randomness, system calls, checks, what a lock under test is |
//! | `injector`, `oracle`, `specimen` | delays at bad moments, the state behind a lock, names |
//! | `pretend`, `configs`, `monitors`, [`locks`], [`pages`] | the pretended machine, and everything that is tortured as a lock |
//! | `crew`, `steps` | threads with a watchdog, runs of many steps |
//! | [`scenarios`], [`plan`] | torture of locks |
//! | [`ids`] | torture of concurrency IDs |
//! | [`invalidation`] | torture of delayed invalidation |
//! | [`explore`] | random schedules |

mod affinity;
mod child;
mod configs;
mod crew;
pub mod explore;
pub mod ids;
mod injector;
pub mod invalidation;
pub mod locks;
pub mod monitors;
mod oracle;
pub mod pages;
pub mod plan;
mod pretend;
mod random;
pub mod report;
pub mod sandbox;
pub mod scenarios;
mod signal;
mod specimen;
mod steps;
pub mod test_lock;

pub use affinity::allowed_cpus;
pub use injector::{LEVELS, Preemption};
pub use specimen::Named;
