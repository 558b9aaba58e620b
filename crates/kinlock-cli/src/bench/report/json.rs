//! The JSON report.

use std::io::Write;

use crate::bench::results::Report;

/// Writes the report, indented, with a newline at the end.
///
/// # Errors
/// As the writer has them.
pub fn write(report: &Report, mut out: impl Write) -> anyhow::Result<()> {
    serde_json::to_writer_pretty(&mut out, report)?;
    writeln!(out)?;
    Ok(())
}
