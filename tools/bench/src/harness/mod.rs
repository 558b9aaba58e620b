//! What the suites of `bench` share.
//!
//! A [`suite`] says what is measured, and [`run`] measures it: cell by cell (a workload with a
//! number of threads), [round by round](kinlock_measure::rounds), every subject once per round,
//! each in a [`slice`] of time by a [`team`] of threads. [`results`] has the results; [`report`],
//! [`overview`] and [`plot`] show them.

pub mod background;
pub mod overview;
pub mod placement;
pub mod plot;
pub mod quota;
pub mod report;
pub mod results;
pub mod run;
pub mod slice;
pub mod suite;
pub mod team;
