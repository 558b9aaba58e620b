//! What kinlock's checks share: scenarios that stress a lock, oracles that judge it, and locks broken on purpose.
//!
//! A **scenario** is a way to ill-treat a lock: preempted holders, signal handlers, dying threads, forks. Each yields
//! **checks** of a few properties:
//!
//! | property | holds if |
//! | --- | --- |
//! | [`Exclusion`](report::Property::Exclusion) | the state behind the lock was never touched by two threads at a time |
//! | [`Completion`](report::Property::Completion) | every thread got out once it was told to stop: no waiter was lost |
//! | [`Progress`](report::Property::Progress) | no thread waited for longer than the limit while others went on |
//! | [`Contract`](report::Property::Contract) | the calls did what their documentation says |
//! | [`Reach`](report::Property::Reach) | the scenario got where it means to go, so that the other checks mean something |
//! | [`Catch`](report::Property::Catch) | a lock that is broken on purpose failed the check meant for it |
//!
//! [`explore`] looks for schedules on the simulated machine in which a lock fails.
//!
//! A [`plan`] runs scenarios against one lock within a given time. Everything random comes from one seed; threads are
//! real, so that the seed repeats what each thread does, not how they interleave.

mod affinity;
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
pub mod test_lock;

pub use affinity::allowed_cpus;
pub use injector::{LEVELS, Preemption};
