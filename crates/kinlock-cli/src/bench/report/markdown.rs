//! The tables in Markdown, for reports and issues.

use std::io::Write;

use super::columns::{best_first, of_cell, title};
use crate::bench::results::Report;

/// Writes all tables.
///
/// # Errors
/// As the writer has them.
pub fn write(report: &Report, mut out: impl Write) -> anyhow::Result<()> {
    writeln!(out, "Measured on {}.", report.machine.summary())?;
    writeln!(
        out,
        "{} rounds of {:.3} s; kinlock {}{}.\n",
        report.parameters.rounds,
        report.parameters.seconds,
        report.machine.version,
        report
            .machine
            .commit
            .map(|commit| format!(" ({commit})"))
            .unwrap_or_default(),
    )?;
    for cell in report.cells() {
        let entries = best_first(cell);
        let columns = of_cell(&entries, report.machine.domains);
        writeln!(out, "### {}\n", title(cell))?;
        let headings: Vec<_> = columns
            .iter()
            .map(|column| column.heading.as_str())
            .collect();
        writeln!(out, "| lock | {} |", headings.join(" | "))?;
        writeln!(out, "| --- |{}", " ---: |".repeat(columns.len()))?;
        for entry in entries {
            let texts: Vec<_> = columns.iter().map(|column| (column.text)(entry)).collect();
            writeln!(out, "| {} | {} |", entry.lock, texts.join(" | "))?;
        }
        writeln!(out)?;
    }
    for warning in &report.warnings {
        writeln!(out, "- {warning}")?;
    }
    Ok(())
}
