//! All ratios at a glance, below the tables on stdout.

use std::io::Write;

use comfy_table::{Cell, Color};

use super::lock_cell;
use crate::bench::flags::Flag;
use crate::bench::results::{Entry, Report, locks_of};
use crate::report::cells::{Cells, Compared};
use crate::report::table::Table;

/// Writes it, if there is more than one cell.
///
/// # Errors
/// As the writer has them.
pub fn write(report: &Report, out: &mut dyn Write) -> anyhow::Result<()> {
    let cells = report.cells().count();
    if cells > 1 {
        let to = report.results[0].ratio.to;
        let rounds = report.extent.rounds_per_cell(report.parameters.rounds);
        writeln!(out, "throughput over that of {to}, median of {rounds}")?;
        writeln!(out, "(~ means nothing: noisy; ! unfair or long tail)")?;
        let table = overview(report).painted(1..cells + 1, |heading, text| match heading {
            NAMES => lock_cell(text),
            _ if text.ends_with('!') => Cell::new(text).fg(Color::Red),
            _ => Cell::new(text),
        });
        writeln!(out, "{table}\n")?;
    }
    Ok(())
}

const NAMES: &str = "\nthreads";

/// One row per lock, one column per cell.
fn overview(report: &Report) -> Table {
    // The name of a workload stands over its first column only.
    let mut workload = "";
    let headings = report.cells().map(|cell| {
        let is_new = std::mem::replace(&mut workload, cell[0].workload) != workload;
        let name = if is_new { workload } else { "" };
        format!("{name}\n{}", cell[0].threads)
    });
    let headings = std::iter::once(NAMES.to_owned()).chain(headings).collect();
    let locks = locks_of(&report.results).into_iter();
    let rows = locks.map(|lock| {
        let ratios = report.cells().map(|cell| {
            let entry = cell.iter().find(|entry| entry.lock == lock);
            entry.map_or_else(|| "-".to_owned(), marked_ratio)
        });
        std::iter::once(lock.to_owned()).chain(ratios).collect()
    });
    let rows = rows.collect();
    Table { headings, rows }
}

/// The ratio, with an exclamation mark if the lock misbehaved.
fn marked_ratio(entry: &Entry) -> String {
    let misbehaved = entry.flags.iter().any(|&flag| flag != Flag::Noisy);
    let mark = if misbehaved { "!" } else { "" };
    format!("{}{mark}", entry.usual().shown_ratio())
}
