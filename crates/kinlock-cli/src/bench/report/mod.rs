//! How results are shown.

mod columns;
mod csv;
mod json;
mod markdown;
mod outputs;
mod plot;
mod table;
mod units;

pub use outputs::Destinations;
