//! One line per published number, for spreadsheets.

use std::io::Write;

use super::results::Report;

/// Writes a heading and all lines. No field needs quoting: names are words without commas, the rest are numbers.
///
/// # Errors
/// As the writer has them.
pub fn write(report: &Report, mut out: impl Write) -> anyhow::Result<()> {
    writeln!(
        out,
        "table,threads,column,published,simulated,simulated_low,simulated_high,error_pct,pass,label"
    )?;
    for table in &report.tables.locks {
        for row in &table.rows {
            writeln!(
                out,
                "{},{},{},{},{:.6},{:.6},{:.6},{:.2},{},{}",
                table.table,
                row.key,
                row.column,
                row.published,
                row.simulated.median,
                row.simulated.low,
                row.simulated.high,
                row.error_pct,
                row.pass.map(|pass| pass.to_string()).unwrap_or_default(),
                row.label,
            )?;
        }
    }
    for table in &report.tables.ids {
        for row in &table.rows {
            let number = |number: Option<f64>| number.map(|n| format!("{n:.2}"));
            writeln!(
                out,
                "{},{},{},{},{:.6},{:.6},{:.6},{},{},{}",
                table.table,
                row.key,
                row.column,
                number(row.published).unwrap_or_default(),
                row.simulated.median,
                row.simulated.low,
                row.simulated.high,
                number(row.error_pct).unwrap_or_default(),
                row.pass.map(|pass| pass.to_string()).unwrap_or_default(),
                row.label,
            )?;
        }
    }
    Ok(())
}
