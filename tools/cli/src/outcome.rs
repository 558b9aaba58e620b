//! How a verb ended, and what it says on stderr.

use std::fmt::{self, Display};
use std::io::Write;

use kinlock_measure::interrupt::Signal;

use crate::report::text::lines;

/// How a verb that could do its work ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Everything asked for was done, and no check failed.
    Done,
    CheckFailed,
    /// A check passed although it should have failed.
    Escaped,
    /// A signal ended the run early; the complete rounds were reported.
    Interrupted(Signal),
    /// The program that was run ended with this status.
    Program(u8),
}

impl Outcome {
    pub fn exit_status(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::CheckFailed => 1,
            Self::Escaped => 3,
            Self::Interrupted(signal) => 128 + signal.number() as u8,
            Self::Program(status) => status,
        }
    }
}

/// An error with an exit status of its own. All other errors have the status for bad input.
#[derive(Debug)]
pub struct Failure {
    pub status: u8,
    /// What is wrong, in one line.
    pub what: String,
}

impl Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for Failure {}

/// Writes a line to stderr, or several. A closed stderr is no error.
pub fn tell(line: &str) {
    let _ = writeln!(std::io::stderr(), "{}", lines(line));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_are_those_of_shells() {
        let statuses = Signal::ALL.map(|signal| Outcome::Interrupted(signal).exit_status());
        assert_eq!(statuses, [130, 143, 129, 131]);
    }
}
