//! The table on stdout: one per workload and number of threads, the fastest lock first.

use std::io::Write;

use comfy_table::{Cell, CellAlignment, Table, presets};

use super::units::{rate, three_digits, time};
use crate::bench::results::{Entry, Report};

/// Writes all tables.
///
/// # Errors
/// As the writer has them.
pub fn write(report: &Report, mut out: impl Write) -> anyhow::Result<()> {
    let cells = report
        .results
        .chunk_by(|a, b| (a.workload, a.threads) == (b.workload, b.threads));
    for cell in cells {
        let mut entries: Vec<&Entry> = cell.iter().collect();
        entries.sort_by(|a, b| b.ops_per_s.median.total_cmp(&a.ops_per_s.median));
        let plural = if cell[0].threads == 1 { "" } else { "s" };
        writeln!(
            out,
            "{}, {} thread{plural}",
            cell[0].workload, cell[0].threads
        )?;
        writeln!(out, "{}\n", table(&entries))?;
    }
    Ok(())
}

fn table(entries: &[&Entry]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::UTF8_HORIZONTAL_ONLY);
    let ratio = format!("x {}", entries[0].ratio.to);
    table.set_header([
        "lock", "ops/s", "ns/op", &ratio, "spread", "jain", "min/mean", "p50", "p99", "p99.9",
        "max", "cpu/op",
    ]);
    for entry in entries {
        let ratio = &entry.ratio.over_rounds;
        let acquire = &entry.acquire_ns;
        table.add_row(
            [
                entry.lock.to_owned(),
                rate(entry.ops_per_s.median),
                three_digits(entry.ns_per_op.median),
                three_digits(ratio.median),
                format!("{}..{}", three_digits(ratio.min), three_digits(ratio.max)),
                format!("{:.2}", entry.fairness.jain),
                format!("{:.2}", entry.fairness.min_over_mean),
                time(acquire.p50 as f64),
                time(acquire.p99 as f64),
                time(acquire.p999 as f64),
                time(acquire.max as f64),
                time(entry.cpu_ns_per_op.median),
            ]
            .map(Cell::new),
        );
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}
