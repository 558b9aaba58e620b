//! The tables in Markdown, for reports and issues.

use std::io::Write;

use super::ids;
use super::results::Report;
use super::table::{WIDTH, cells, headings, locks, notes, parameters, scale, sorted};

/// Writes all tables.
///
/// # Errors
/// As the writer has them.
pub fn write(report: &Report, mut out: impl Write) -> anyhow::Result<()> {
    for entry in &report.tables.locks {
        writeln!(out, "### {}\n", entry.table)?;
        writeln!(out, "Published: {}.\n", entry.source)?;
        writeln!(
            out,
            "Simulated: {}; workload {}; {}; both in {}.\n",
            entry.machine.name,
            entry.workload.name,
            locks(entry),
            entry.unit
        )?;
        let headings = headings(entry).map(|heading| heading.replace('\n', " "));
        writeln!(out, "|{}|", headings.join("|"))?;
        writeln!(out, "|{}", " ---: |".repeat(WIDTH))?;
        for row in entry.published_rows() {
            writeln!(out, "| {} |", cells(row).join(" | "))?;
        }
        writeln!(out, "\n- {}", entry.verdict())?;
        writeln!(out, "- {}", scale(entry))?;
        for (rows, note) in notes(entry) {
            writeln!(out, "- {rows}: believed cause: {note}")?;
        }
        writeln!(out)?;
    }
    for entry in &report.tables.ids {
        ids::write_markdown(entry, &mut out)?;
    }
    for (what, parameters) in parameters(report) {
        writeln!(out, "### Parameters of {what}\n")?;
        writeln!(
            out,
            "| origin | parameter | value | source, or what it was fitted on |"
        )?;
        writeln!(out, "| --- | --- | ---: | --- |")?;
        for parameter in sorted(parameters) {
            writeln!(
                out,
                "| {} | {} | {} | {} |",
                parameter.origin, parameter.name, parameter.value, parameter.source
            )?;
        }
        writeln!(out)?;
    }
    Ok(())
}
