//! The tables on stdout: one per workload and number of threads, then the ratios at a glance.

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
    if parameters.threads.len() > 1 {
        for workload in &parameters.workloads {
            let (name, baseline) = (&workload.name, &parameters.baseline);
            writeln!(out, "{name}: throughput over that of {baseline}")?;
            writeln!(out, "{}\n", overview(report, name))?;
        }
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

/// The ratios of one workload: a row per number of threads, a column per lock.
fn overview(report: &Report, workload: &str) -> Table {
    let mut table = table::plain();
    let locks = report.setup.parameters.locks.iter();
    table.set_header(std::iter::once("threads").chain(locks.map(|lock| &*lock.name)));
    let cells = report.cells();
    for cell in cells.filter(|cell| cell[0].workload == workload) {
        let ratios = cell
            .iter()
            .map(|entry| three_digits(entry.ratio.over_runs.median));
        table.add_row(std::iter::once(cell[0].threads.to_string()).chain(ratios));
    }
    table::align_right(&mut table, 0, 1 + report.setup.parameters.locks.len());
    table
}
