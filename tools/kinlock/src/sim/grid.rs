//! The grid: how locks stand against the baseline in its cells, and in all cells of a number of
//! threads.

use std::io::Write;

use kinlock_sim::workloads::grid::Cell;
use serde::Serialize;

use super::results::{Entry, Report};
use crate::report::cells::{Cells, Compared};
use crate::report::plot::heat;
use crate::report::plot::{Area, Drawn};
use crate::report::table::{Columns, Table};
use crate::stats::geometric_mean;

/// A lock in all cells of a number of threads, over the baseline in the same cells.
#[derive(Debug, Serialize)]
pub struct Standings {
    pub threads: usize,
    pub lock: String,
    /// Geometric mean of the ratios of throughput.
    pub ratio: f64,
    pub cells: usize,
    /// How many ratios are below [`ENOUGH`].
    pub cells_below: usize,
    pub least: f64,
    /// The cell of the least ratio.
    pub least_cell: String,
}

/// No cell should have less than so much of the baseline's throughput.
const ENOUGH: f64 = 0.9;

/// Whether the workload is a cell.
pub fn is_cell(workload: &str) -> bool {
    Cell::find(workload).is_some()
}

/// How all locks but the baseline stand, by number of threads.
pub fn standings(results: &[Entry]) -> Vec<Standings> {
    let of_grid = |e: &&Entry| is_cell(&e.workload) && e.lock != e.ratio.to;
    let mut entries: Vec<_> = results.iter().filter(of_grid).collect();
    // Stable: locks stay in their order.
    entries.sort_by_key(|e| e.threads);
    let mut keys: Vec<_> = entries.iter().map(|e| (e.threads, &e.lock)).collect();
    let mut seen = Vec::new();
    keys.retain(|key| {
        let is_new = !seen.contains(key);
        seen.push(*key);
        is_new
    });
    let of = |key: &(usize, &String)| {
        let own = entries.iter().filter(|e| (e.threads, &e.lock) == *key);
        Standings::of(&own.copied().collect::<Vec<_>>())
    };
    keys.iter().map(of).collect()
}

impl Standings {
    /// Of a lock's entries, at least one.
    fn of(entries: &[&Entry]) -> Self {
        let ratio = |e: &&Entry| e.ratio.over_runs.median;
        let least = entries
            .iter()
            .min_by(|a, b| ratio(a).total_cmp(&ratio(b)))
            .expect("there is a cell");
        Self {
            threads: least.threads,
            lock: least.lock.clone(),
            ratio: geometric_mean(entries.iter().map(ratio)),
            cells: entries.len(),
            cells_below: entries.iter().filter(|e| ratio(e) < ENOUGH).count(),
            least: ratio(least),
            least_cell: least.workload.clone(),
        }
    }
}

pub fn write(report: &Report, out: &mut dyn Write) -> anyhow::Result<()> {
    if report.grid.is_empty() {
        return Ok(());
    }
    let baseline = &report.setup.parameters.baseline;
    writeln!(out, "grid: throughput over that of {baseline}")?;
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
        .add("lock", |s| s.lock.clone())
        .number("mean", 3, |s| s.ratio)
        .number("least", 2, |s| s.least)
        .add("in", |s| s.least_cell.clone())
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
    let workloads = workloads.filter(|entries| is_cell(&entries[0].workload));
    let row = |entries: &[Entry]| {
        let ratio = |s: &Standings| {
            let mut own = entries.iter();
            let own = own.find(|e| e.threads == s.threads && e.lock == s.lock);
            own.map_or_else(String::new, |e| e.usual().shown_ratio())
        };
        let name = std::iter::once(entries[0].workload.clone());
        name.chain(report.grid.iter().map(ratio)).collect()
    };
    Table {
        headings,
        rows: workloads.map(row).collect(),
    }
}

/// The height of a map.
pub fn height() -> u32 {
    heat::grid_height()
}

/// Draws a map of how a lock stands.
pub fn draw(area: &Area, report: &Report, of: &Standings) -> Drawn {
    let entries = report.results.iter();
    let own = entries.filter(|e| (e.threads, &e.lock) == (of.threads, &of.lock));
    let ratio = |e: &Entry| Some((Cell::find(&e.workload)?, e.ratio.over_runs.median));
    let (lock, threads, mean) = (&of.lock, of.threads, of.ratio);
    let baseline = &report.setup.parameters.baseline;
    let heading = format!(
        "{threads} threads: throughput of {lock} over {baseline}'s, by work under the lock; mean \
         {mean:.3}"
    );
    heat::draw_grid(area, &heading, true, own.filter_map(ratio))
}
