//! The suite `invalidation`: delayed invalidation against other ways to do the same.

mod contender;
mod epochs;
mod name;
mod plot;
mod report;
mod results;
mod run;

pub use name::{ContenderName, WorkloadName};
pub use results::Report;
pub use run::{Plan, run};
