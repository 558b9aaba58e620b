//! How results are shown.

pub mod json;
pub mod table;
mod units;
