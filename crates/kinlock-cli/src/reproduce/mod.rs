//! Published tables beside simulated ones: what to simulate ([`plan`]), how far off it is ([`results`]), and how that is
//! shown.

mod csv;
mod destinations;
pub mod ids;
mod markdown;
pub mod plan;
mod plot;
pub mod results;
mod table;

pub use destinations::Destinations;
