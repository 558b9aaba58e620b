//! What the reports of all verbs have in common: files, tables, pictures, numbers.

pub mod cells;
mod descriptors;
pub mod files;
pub mod picture;
pub mod progress;
pub mod report;
pub mod table;
pub mod units;

use std::io::Write;

use serde::Serialize;

/// Writes a line to stderr, if anybody is still there to read it.
pub fn tell(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Writes a report as JSON, indented, with a newline at the end.
///
/// # Errors
/// As the writer has them.
pub fn write_json(report: &impl Serialize, mut out: impl Write) -> anyhow::Result<()> {
    serde_json::to_writer_pretty(&mut out, report)?;
    writeln!(out)?;
    Ok(())
}
