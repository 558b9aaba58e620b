//! The tables on stdout: one per workload and number of threads, then all ratios at a glance.

use std::io::Write;

use comfy_table::Table;

use super::columns::{best_first, of_cell, title};
use crate::output::table;
use crate::output::units::three_digits;
use crate::sim::flags::bands;
use crate::sim::results::{Entry, Report};

/// Writes all tables.
///
/// # Errors
/// As the writer has them.
pub fn write(report: &Report, mut out: impl Write) -> anyhow::Result<()> {
    let (setup, parameters) = (&report.setup, &report.setup.parameters);
    writeln!(out, "simulated: {}\n", setup.machine.about)?;
    let mut workload = "";
    for cell in report.cells() {
        if cell[0].workload != workload {
            workload = &cell[0].workload;
            let entry = parameters.workloads.iter().find(|w| w.name == workload);
            let about = entry.map_or("", |entry| &entry.about);
            writeln!(out, "{workload}: {about}\n")?;
        }
        writeln!(out, "{}", title(cell))?;
        writeln!(out, "{}\n", of_entries(&best_first(cell)))?;
    }
    if report.cells().count() > 1 {
        writeln!(out, "throughput over that of {}", parameters.baseline)?;
        writeln!(out, "{}\n", overview(report))?;
    }
    writeln!(out, "{}", bands(&parameters.variants))?;
    Ok(())
}

fn of_entries(entries: &[&Entry]) -> Table {
    let columns = of_cell(entries);
    let mut table = table::plain();
    let headings = columns.iter().map(|column| column.heading.as_str());
    table.set_header(std::iter::once("lock").chain(headings));
    for entry in entries {
        let texts = columns.iter().map(|column| (column.text)(entry));
        table.add_row(std::iter::once(entry.lock.clone()).chain(texts));
    }
    table::align_right(&mut table, 1, columns.len());
    table
}

/// One row per lock, one column per cell.
fn overview(report: &Report) -> Table {
    let mut table = table::plain();
    // The name of a workload stands over its first column only.
    let mut workload = "";
    let headings = report.cells().map(|cell| {
        let is_new = std::mem::replace(&mut workload, &cell[0].workload) != workload;
        format!(
            "{}\n{}",
            if is_new { workload } else { "" },
            cell[0].threads
        )
    });
    table.set_header(std::iter::once("\nthreads".to_owned()).chain(headings));
    for (index, lock) in report.setup.parameters.locks.iter().enumerate() {
        let ratios = report
            .cells()
            .map(|cell| three_digits(cell[index].ratio.over_runs.median));
        table.add_row(std::iter::once(lock.name.clone()).chain(ratios));
    }
    table::align_right(&mut table, 1, report.cells().count());
    table
}
