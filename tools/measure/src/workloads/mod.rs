//! Workloads that `kinlock bench` measures and the laboratory simulates or uses in torture tests.
//! Both take their parameters from here.

pub mod counter;
pub mod grid;
pub mod pages;
pub mod recorded;
