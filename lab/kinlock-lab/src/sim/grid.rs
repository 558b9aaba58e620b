//! The grid: how locks compare with the baseline in its cells, and over all cells of a number of
//! threads.

use std::io::Write;

use kinlock_cli::report::cells::{Cells, Compared};
use kinlock_cli::report::plot::heat;
use kinlock_cli::report::plot::{Area, Drawn};
use kinlock_cli::report::table::{Columns, Table};
use kinlock_sim::workloads::grid::{Cell, Part};

use super::results::{ENOUGH, Entry, Report, Standings, is_cell};

pub fn write(report: &Report, out: &mut dyn Write) -> anyhow::Result<()> {
    if report.grid.is_empty() {
        return Ok(());
    }
    let baseline = &report.setup.parameters.baseline;
    writeln!(
        out,
        "grid: throughput over that of {baseline}, and means of the 99 % wait and of the CPU time \
         per operation over its"
    )?;
    let table = means().of(&report.grid);
    writeln!(out, "{}\n", table.text(0..table.headings.len()))?;
    writeln!(out, "By work under the lock / private work / cache lines")?;
    let table = cells(report);
    writeln!(out, "{}\n", table.text(1..table.headings.len()))?;
    Ok(())
}

fn means() -> Columns<Standings> {
    Columns::new()
        .add("threads", |s: &Standings| s.threads)
        .add("lock", |s| s.lock)
        .number("mean", 3, |s| s.ratio)
        .number("p99", 2, |s| s.p99_ratio)
        .number("cpu/op", 2, |s| s.cpu_ratio)
        .number("least", 2, |s| s.least)
        .add("in", |s| s.least_cell)
        .add(format!("below {ENOUGH}"), |s| {
            format!("{} of {}", s.cells_below, s.cells)
        })
}

/// A row per cell, a column per lock and number of threads.
fn cells(report: &Report) -> Table {
    let column = |s: &Standings| format!("{}\n{}", s.lock, s.threads);
    let mut headings = vec!["cell and threads".to_owned()];
    headings.extend(report.grid.iter().map(column));
    let workloads = report.by_workload().into_iter();
    let workloads = workloads.filter(|entries| is_cell(entries[0].workload));
    let row = |entries: &[Entry]| {
        let ratio = |s: &Standings| {
            let mut own = entries.iter();
            let own = own.find(|e| e.threads == s.threads && e.lock == s.lock);
            own.map_or_else(String::new, |e| e.usual().shown_ratio())
        };
        let name = std::iter::once(entries[0].workload.to_owned());
        name.chain(report.grid.iter().map(ratio)).collect()
    };
    Table {
        headings,
        rows: workloads.map(row).collect(),
    }
}

/// The parts of the grid that have cells in the report.
fn parts(report: &Report) -> Vec<Part> {
    let is_there = |part: &Part| {
        let mut entries = report.results.iter();
        entries.any(|e| Cell::find(e.workload).is_some_and(|cell| cell.part() == *part))
    };
    Part::ALL.into_iter().filter(is_there).collect()
}

/// The height of the maps of a lock and number of threads.
pub fn height(report: &Report) -> u32 {
    parts(report).into_iter().map(heat::grid_height).sum()
}

/// Draws maps of how a lock compares, one for each part of the grid.
pub fn draw(area: &Area, report: &Report, of: &Standings) -> Drawn {
    let entries = report.results.iter();
    let own = entries.filter(|e| (e.threads, e.lock) == (of.threads, of.lock));
    let ratio = |e: &Entry| Some((Cell::find(e.workload)?, e.ratio.over_runs.median));
    let values = own.filter_map(ratio);
    let (lock, threads, mean) = (&of.lock, of.threads, of.ratio);
    let baseline = &report.setup.parameters.baseline;
    let mut rest = area.clone();
    for part in parts(report) {
        let (map, below) = rest.split_vertically(heat::grid_height(part));
        rest = below;
        let name = part.name();
        let heading = format!(
            "{name} grid, {threads} threads: throughput of {lock} over {baseline}'s, by work under \
             the lock; mean of all {mean:.3}"
        );
        heat::draw_grid(&map, part, &heading, true, values.clone())?;
    }
    Ok(())
}
