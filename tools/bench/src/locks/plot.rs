//! Pictures: one row per workload. On the left is throughput over threads, with a band from the
//! slowest to the fastest round. On the right is the tail of waits, since throughput alone rewards
//! unfair locks. Cells of the [`grid`] have pictures of their own.

mod grid;

use kinlock_cli::report::cells::Cells;
use kinlock_cli::report::plot::curves::{Curve, Vertical, chart};
use kinlock_cli::report::plot::{Area, Drawn, text};
use kinlock_cli::report::units::{rate, time};
use plotters::prelude::*;

use super::Locks;
use super::grid::standings;
use crate::harness::plot::{Pictured, TITLE_HEIGHT, curves, look, title};
use crate::harness::results::{Report, Shown, names};
use crate::harness::suite::Entry;

const WIDTH: u32 = 1360;
const LEGEND_WIDTH: u32 = 180;
const ROW_HEIGHT: u32 = 380;
/// The largest ratio of throughputs that a chart shows. Some locks collapse by a factor of a
/// million: showing that would squeeze all others into one line, so they sit on the edge.
const MOST_SHOWN: f64 = 300.0;

impl Pictured for Locks {
    const PLOT: &'static str =
        "Draw throughput and the 99.9 % wait over threads; the name ends in .svg";
    const ABOUT: &'static str = "For each workload throughput and the 99.9 % wait over the number \
                                 of threads; for the grid, our lock over the best peer's in each \
                                 cell";

    fn size(report: &Report<Self>) -> (u32, u32) {
        let grids = standings(&report.results);
        let grids = grids.iter().map(|standings| grid::height(standings.part));
        let rows = rows(report).len() as u32;
        (WIDTH, TITLE_HEIGHT + ROW_HEIGHT * rows + grids.sum::<u32>())
    }

    fn draw(report: &Report<Self>, area: &Area) -> Drawn {
        let rest = title(report, area)?;
        let (mut panels, legend) = rest.split_horizontally(WIDTH - LEGEND_WIDTH);
        for row in rows(report) {
            let (area, below) = panels.split_vertically(ROW_HEIGHT);
            panels = below;
            let (heading, charts) = area.split_vertically(34);
            let name = row[0].workload;
            let summary = report.about(name).unwrap_or_default();
            heading.draw(&Text::new(format!("{name}: {summary}"), (14, 12), text(15)))?;
            let (left, right) = charts.split_horizontally((WIDTH - LEGEND_WIDTH) / 2);
            let throughput = curves(report, row, |entry| entry.ops_per_s.into());
            let unit = "operations per second (at the bottom: or less)";
            draw_curves(&left, &throughput, MOST_SHOWN, unit, |ops| rate(*ops))?;
            let wait = |entry: &Entry<Locks>| [entry.detail.acquire_ns.p999.max(1) as f64; 3];
            let waits = curves(report, row, wait);
            draw_curves(&right, &waits, f64::INFINITY, "99.9 % wait", |ns| time(*ns))?;
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
}

/// The workloads that have a row.
fn rows(report: &Report<Locks>) -> Vec<&[Entry<Locks>]> {
    let mut rows = report.by_workload();
    rows.retain(|row| Locks::has_row(report, &row[0]));
    rows
}

/// Draws curves, with the values limited to `most` times the least.
fn draw_curves(
    area: &Area,
    all: &[Curve],
    most: f64,
    unit: &str,
    number: fn(&f64) -> String,
) -> Drawn {
    let points = || all.iter().flat_map(|curve| curve.points.values());
    let lowest = points().map(|&[median, ..]| median);
    let highest = points().map(|&[.., high]| high).fold(0.0, f64::max);
    let least = lowest.fold(f64::INFINITY, f64::min).max(highest / most) * 0.7;
    let vertical = Vertical {
        range: (least..highest * 1.25).log_scale(),
        least,
        unit,
        number,
    };
    chart(area, all, vertical, "threads", |threads| {
        threads.to_string()
    })
}
