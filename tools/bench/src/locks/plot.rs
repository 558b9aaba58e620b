//! Pictures: one row per workload. At the left throughput over threads, with a band from the
//! slowest to the fastest round; at the right the frontier of throughput and tail, which is what a
//! lock is to be judged by. Cells of the [`grid`] have pictures of their own.

mod frontier;
mod grid;

use kinlock_cli::report::cells::Cells;
use kinlock_cli::report::plot::curves::{Vertical, chart};
use kinlock_cli::report::plot::{Area, Drawn, quiet_text, text};
use kinlock_cli::report::units::rate;
use plotters::prelude::*;

use super::Locks;
use super::grid::standings;
use crate::harness::plot::{Pictured, TITLE_HEIGHT, curves, look, title};
use crate::harness::results::{Report, Shown, names};
use crate::harness::suite::Entry;

const WIDTH: u32 = 1360;
const LEGEND_WIDTH: u32 = 180;
const ROW_HEIGHT: u32 = 380;
/// The largest ratio of throughputs that a chart shows.
const MOST_SHOWN: f64 = 300.0;

impl Pictured for Locks {
    const PLOT: &'static str =
        "Draw throughput over threads, and tail over throughput; the name ends in .svg";
    const ABOUT: &'static str = "For each workload throughput over the number of threads, and the \
                                 99.9 % wait against throughput; for the grid, our lock over the \
                                 best peer's in each cell";

    fn size(report: &Report<Self>) -> (u32, u32) {
        size(report)
    }

    fn draw(report: &Report<Self>, area: &Area) -> Drawn {
        draw(report, area)
    }
}

fn size(report: &Report<Locks>) -> (u32, u32) {
    let grids = standings(&report.results);
    let grids = grids.iter().map(|standings| grid::height(standings.part));
    let rows = rows(report).len() as u32;
    (WIDTH, TITLE_HEIGHT + ROW_HEIGHT * rows + grids.sum::<u32>())
}

/// The workloads that have a row.
fn rows(report: &Report<Locks>) -> Vec<&[Entry<Locks>]> {
    let mut rows = report.by_workload();
    rows.retain(|row| Locks::has_row(report, &row[0]));
    rows
}

/// The least throughput that a row's charts show. Some locks collapse by a factor of a million:
/// showing that would squeeze all others into one line, so they sit on the edge.
fn least_shown(row: &[Entry<Locks>]) -> f64 {
    let median = |entry: &Entry<Locks>| entry.ops_per_s.median;
    let lowest = row.iter().map(median).fold(f64::INFINITY, f64::min);
    let highest = row.iter().map(median).fold(0.0, f64::max);
    lowest.max(highest / MOST_SHOWN)
}

fn draw(report: &Report<Locks>, area: &Area) -> Drawn {
    let rest = title(report, area)?;
    let (mut panels, legend) = rest.split_horizontally(WIDTH - LEGEND_WIDTH);
    for row in rows(report) {
        let (area, below) = panels.split_vertically(ROW_HEIGHT);
        panels = below;
        let (heading, charts) = area.split_vertically(34);
        let name = row[0].workload;
        let summary = report.about(name).unwrap_or_default();
        let better = "99.9 % wait against throughput: better is right and down";
        let at = ((WIDTH - LEGEND_WIDTH) as i32 / 2 + 74, 14);
        heading.draw(&Text::new(better, at, quiet_text(13)))?;
        heading.draw(&Text::new(format!("{name}: {summary}"), (14, 12), text(15)))?;
        let (left, right) = charts.split_horizontally((WIDTH - LEGEND_WIDTH) / 2);
        draw_throughput(&left, report, row)?;
        frontier::draw(&right, report, row)?;
    }
    for standings in standings(&report.results) {
        let (area, below) = panels.split_vertically(grid::height(standings.part));
        panels = below;
        grid::draw(&area, report, &standings)?;
    }
    for (index, lock) in names(&report.results).into_iter().enumerate() {
        look(report, lock).explain(&legend, lock, (4, 44 + 24 * index as i32))?;
    }
    Ok(())
}

fn draw_throughput(area: &Area, report: &Report<Locks>, row: &[Entry<Locks>]) -> Drawn {
    let least = least_shown(row) * 0.7;
    let highest = row.iter().map(|e| e.ops_per_s.max).fold(0.0, f64::max);
    let vertical = Vertical {
        range: (least..highest * 1.25).log_scale(),
        least,
        unit: "operations per second (at the bottom: or less)",
        number: |value| rate(*value),
    };
    let label = |threads: usize| threads.to_string();
    chart(area, &curves(report, row, 1.0), vertical, "threads", label)
}
