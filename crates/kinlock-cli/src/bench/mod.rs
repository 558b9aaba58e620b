//! Measuring locks: what runs ([`workloads`]), how it is timed ([`runner`]), what the numbers say ([`rounds`]), and how
//! they are shown ([`report`]).

mod flags;
pub mod ids;
pub mod interleave;
pub mod interrupt;
pub mod invalidation;
mod meeting;
pub mod placement;
pub mod plan;
mod report;
pub mod results;
mod rng;
mod rounds;
mod runner;
pub mod suite;
mod team;
mod trace;
mod work_loop;
pub mod workloads;
