//! What the commands `kinlock` and `kinlock-lab` share: command lines, how a verb ends, the
//! description of the machine, and reports in all their forms.
//!
//! | module | what |
//! | --- | --- |
//! | [`args`] | values of flags that several verbs share |
//! | [`parameters`] | flags with their values, as JSON and as arguments |
//! | [`outcome`] | how a verb ended, and its exit status |
//! | [`command`] | parses a command line, runs its verb, turns an error into one line |
//! | [`machine`] | what this machine is |
//! | [`report`] | tables, numbers, pictures, and the files they are written to |

// Only the two commands use this crate, so an item whose name says enough has no comment.
#![allow(missing_docs)]

pub mod args;
pub mod command;
pub mod machine;
pub mod outcome;
pub mod parameters;
pub mod report;

/// The version of the commands.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The commit that the commands were built from, if they were built in a checkout.
pub const COMMIT: Option<&str> = option_env!("KINLOCK_COMMIT");
