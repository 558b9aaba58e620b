//! Workloads that exist more than once: measured by `kinlock bench`, and simulated or tortured by
//! the laboratory. Their numbers have one source.

pub mod counter;
pub mod grid;
pub mod pages;
pub mod recorded;
