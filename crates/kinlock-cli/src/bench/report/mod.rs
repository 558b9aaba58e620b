//! How results are shown.

mod columns;
mod csv;
mod destinations;
mod markdown;
mod plot;
mod table;

pub use destinations::Destinations;
