//! The tables in Markdown, for reports and issues.

use std::io::Write;

use super::columns::{best_first, of_cell, title};
use crate::sim::flags::bands;
use crate::sim::results::Report;

/// Writes all tables.
///
/// # Errors
/// As the writer has them.
pub fn write(report: &Report, mut out: impl Write) -> anyhow::Result<()> {
    let setup = &report.setup;
    writeln!(out, "Simulated: {}.", setup.machine.about)?;
    writeln!(
        out,
        "Runs of {} s; {}. kinlock {}{}.\n",
        setup.parameters.seconds,
        bands(&setup.parameters.variants),
        setup.version,
        setup
            .commit
            .as_ref()
            .map(|commit| format!(" ({commit})"))
            .unwrap_or_default(),
    )?;
    writeln!(out, "    {}\n", setup.command.join(" "))?;
    for cell in report.cells() {
        let entries = best_first(cell);
        let columns = of_cell(&entries);
        writeln!(out, "### {}\n", title(cell))?;
        let headings: Vec<_> = columns.iter().map(|column| &*column.heading).collect();
        writeln!(out, "| lock | {} |", headings.join(" | "))?;
        writeln!(out, "| --- |{}", " ---: |".repeat(columns.len()))?;
        for entry in entries {
            let texts: Vec<_> = columns.iter().map(|column| (column.text)(entry)).collect();
            writeln!(out, "| {} | {} |", entry.lock, texts.join(" | "))?;
        }
        writeln!(out)?;
    }
    Ok(())
}
