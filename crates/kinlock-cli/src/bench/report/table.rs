//! The tables on stdout: one per workload and number of threads, then all ratios at a glance.

use std::io::Write;

use comfy_table::{Attribute, Cell, Color, Table};

use super::columns::{self, best_first, title};
use crate::bench::flags::Flag;
use crate::bench::results::{Entry, Report, locks_of};
use crate::bench::workloads::WorkloadName;
use crate::locks::LockName;
use crate::output::table;

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
        writeln!(out, "(~ means nothing: noisy; ! unfair or long tail)")?;
        writeln!(out, "{}\n", overview(report))?;
    }
    for warning in &report.warnings {
        writeln!(out, "note: {warning}")?;
    }
    Ok(())
}

fn of_cell(entries: &[&Entry], domains: usize) -> Table {
    let columns = columns::of_cell(entries, domains);
    let mut table = table::plain();
    let headings = columns.iter().map(|column| column.heading.as_str());
    table.set_header(std::iter::once("lock").chain(headings));
    for entry in entries {
        let mut cells = vec![lock_cell(entry.lock)];
        cells.extend(columns.iter().map(|column| Cell::new((column.text)(entry))));
        if let Some(flags) = cells.pop() {
            // An empty coloured cell would still leave its codes in the text.
            let quiet = flags.content().is_empty();
            cells.push(if quiet { flags } else { flags.fg(Color::Red) });
        }
        table.add_row(cells);
    }
    // All but the names at the left and the remarks at the right.
    table::align_right(&mut table, 1, columns.len() - 1);
    table
}

/// One row per lock, one column per cell.
fn overview(report: &Report) -> Table {
    let mut table = table::plain();
    // The name of a workload stands over its first column only.
    let mut workload = "";
    let headings = report.cells().map(|cell| {
        let is_new = std::mem::replace(&mut workload, cell[0].workload) != workload;
        format!(
            "{}\n{}",
            if is_new { workload } else { "" },
            cell[0].threads
        )
    });
    table.set_header(std::iter::once("\nthreads".to_owned()).chain(headings));
    for lock in locks_of(&report.results) {
        let mut cells = vec![lock_cell(lock)];
        cells.extend(report.cells().map(|cell| {
            let entry = cell.iter().find(|entry| entry.lock == lock);
            entry.map_or_else(|| Cell::new("-"), overview_cell)
        }));
        table.add_row(cells);
    }
    table::align_right(&mut table, 1, report.cells().count());
    table
}

/// The ratio, with an exclamation mark if the lock misbehaved.
fn overview_cell(entry: &Entry) -> Cell {
    let ratio = columns::ratio(entry);
    if entry.flags.iter().any(|&flag| flag != Flag::Noisy) {
        Cell::new(format!("{ratio}!")).fg(Color::Red)
    } else {
        Cell::new(ratio)
    }
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
