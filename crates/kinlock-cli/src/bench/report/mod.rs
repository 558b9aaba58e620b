//! How results are shown.

mod columns;
mod csv;
mod json;
mod markdown;
mod outputs;
mod table;
mod units;

pub use outputs::Destinations;
