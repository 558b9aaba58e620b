//! The tables on stdout: one per workload and number of threads, then all ratios at a glance.

use std::io::Write;

use comfy_table::{Attribute, Cell, CellAlignment, Color, Table, TableComponent, presets};

use super::columns::{self, best_first, title};
use crate::bench::results::{Entry, Report};
use crate::bench::workloads::WorkloadName;
use crate::locks::LockName;

/// Writes all tables.
///
/// # Errors
/// As the writer has them.
pub fn write(report: &Report, mut out: impl Write) -> anyhow::Result<()> {
    writeln!(out, "{}\n", report.machine.summary())?;
    let mut workload = "";
    for cell in report.cells() {
        if cell[0].workload != workload {
            workload = cell[0].workload;
            if let Ok(name) = workload.parse::<WorkloadName>() {
                writeln!(out, "{workload}: {}\n", name.summary())?;
            }
        }
        writeln!(out, "{}", title(cell))?;
        writeln!(
            out,
            "{}\n",
            of_cell(&best_first(cell), report.machine.domains)
        )?;
    }
    if report.cells().count() > 1 {
        writeln!(
            out,
            "throughput over that of {}, median of {} rounds",
            report.results[0].ratio.to, report.parameters.rounds
        )?;
        writeln!(out, "{}\n", overview(report))?;
    }
    for warning in &report.warnings {
        writeln!(out, "note: {warning}")?;
    }
    Ok(())
}

fn of_cell(entries: &[&Entry], domains: usize) -> Table {
    let columns = columns::of_cell(entries, domains);
    let mut table = plain_table();
    let headings = columns.iter().map(|column| column.heading.as_str());
    table.set_header(std::iter::once("lock").chain(headings));
    for entry in entries {
        let mut cells = vec![lock_cell(entry.lock)];
        cells.extend(columns.iter().map(|column| Cell::new((column.text)(entry))));
        if let Some(flags) = cells.pop() {
            cells.push(flags.fg(Color::Red));
        }
        table.add_row(cells);
    }
    // All but the names at the left and the remarks at the right.
    for column in table.column_iter_mut().skip(1).take(columns.len() - 1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// One row per lock, one column per cell.
fn overview(report: &Report) -> Table {
    let mut table = plain_table();
    let headings = report
        .cells()
        .map(|cell| format!("{}\n{}", cell[0].workload, cell[0].threads));
    table.set_header(std::iter::once("\nthreads".to_owned()).chain(headings));
    let locks = report.cells().next().into_iter().flatten();
    for lock in locks.map(|entry| entry.lock) {
        let mut cells = vec![lock_cell(lock)];
        for cell in report.cells() {
            let entry = cell.iter().find(|entry| entry.lock == lock);
            let text = entry.map(|entry| {
                let flagged = entry
                    .flags
                    .iter()
                    .any(|flag| *flag != crate::bench::flags::Flag::Noisy);
                format!(
                    "{}{}",
                    columns::ratio(entry),
                    if flagged { "!" } else { "" }
                )
            });
            let text = text.unwrap_or_default();
            let alarming = text.ends_with('!');
            let text = Cell::new(text);
            cells.push(if alarming { text.fg(Color::Red) } else { text });
        }
        table.add_row(cells);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn plain_table() -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    table.set_style(TableComponent::HeaderLines, '─');
    table.set_style(TableComponent::MiddleHeaderIntersections, '─');
    table
}

fn lock_cell(name: &str) -> Cell {
    let ours = name.parse::<LockName>().is_ok_and(LockName::is_ours);
    let cell = Cell::new(name);
    if ours {
        cell.add_attribute(Attribute::Bold)
    } else {
        cell
    }
}
