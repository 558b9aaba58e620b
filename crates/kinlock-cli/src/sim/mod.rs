//! Simulating: what runs ([`plan`], [`flags`]), on which threads of this machine ([`pool`]), what came out of one simulation
//! ([`sample`]) and of all ([`results`]), and how that is shown ([`report`]).

pub mod flags;
pub mod part;
pub mod plan;
pub mod pool;
pub mod provenance;
pub mod report;
pub mod results;
pub mod sample;
