//! What is wrong with a machine, in one line.

use std::fmt;

/// A machine file is wrong, there is none, or the host cannot be measured. Its text is one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct MachineError(String);

impl MachineError {
    /// `subject` is a file or the name of a machine. Control characters in either text become
    /// blanks.
    pub(super) fn new(subject: &str, problem: impl fmt::Display) -> Self {
        MachineError::one_line(&format!("{subject}: {problem}"))
    }

    pub(super) fn unknown(name: &str, known: &[&str]) -> Self {
        MachineError::one_line(&format!(
            "there is no machine `{name}`, nor such a file; known are {}",
            known.join(", ")
        ))
    }

    fn one_line(text: &str) -> Self {
        MachineError(text.replace(char::is_control, " "))
    }
}
