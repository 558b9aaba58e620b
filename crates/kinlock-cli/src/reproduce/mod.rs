//! Published tables beside simulated ones: what to simulate ([`plan`]), how far off it is ([`results`]), and how that is
//! shown.

pub mod ids;
pub mod plan;
mod plot;
mod report;
pub mod results;
