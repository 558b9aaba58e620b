//! Pictures: one row per workload. At the left throughput over threads, with a band from the
//! slowest to the fastest round; at the right the frontier of throughput and tail, which is what a
//! lock is to be judged by.

mod frontier;
mod style;
mod throughput;

use plotters::prelude::*;

use self::style::Style;
use super::Locks;
use super::contenders::LockName;
use crate::args::Named;
use crate::bench::harness::report::{Entry, Report};
use crate::report::cells::Cells;
use crate::report::plot::{Area, Drawn, quiet_text, text};

const WIDTH: u32 = 1360;
const LEGEND_WIDTH: u32 = 180;
const TITLE_HEIGHT: u32 = 64;
const ROW_HEIGHT: u32 = 380;
/// The largest ratio of throughputs that a chart shows.
const MOST_SHOWN: f64 = 300.0;

/// How large the picture is.
pub fn size(report: &Report<Locks>) -> (u32, u32) {
    (
        WIDTH,
        TITLE_HEIGHT + ROW_HEIGHT * report.by_workload().len() as u32,
    )
}

/// The least throughput that a row's charts show. Some locks collapse by a factor of a million:
/// showing that would squeeze all others into one line, so they sit on the edge.
fn least_shown(row: &[Entry<Locks>]) -> f64 {
    let median = |entry: &Entry<Locks>| entry.ops_per_s.median;
    let lowest = row.iter().map(median).fold(f64::INFINITY, f64::min);
    let highest = row.iter().map(median).fold(0.0, f64::max);
    lowest.max(highest / MOST_SHOWN)
}

/// Draws it.
pub fn draw(report: &Report<Locks>, area: &Area) -> Drawn {
    let rows = report.by_workload();
    let (title, rest) = area.split_vertically(TITLE_HEIGHT);
    let summary = report.machine.summary();
    title.draw(&Text::new("kinlock bench locks", (14, 12), text(22)))?;
    title.draw(&Text::new(summary, (14, 40), text(14)))?;

    let (panels, legend) = rest.split_horizontally(WIDTH - LEGEND_WIDTH);
    for (row, area) in rows.iter().zip(panels.split_evenly((rows.len(), 1))) {
        let (heading, charts) = area.split_vertically(34);
        let name = row[0].workload;
        let summary = report.about(name).unwrap_or_default();
        let better = "99.9 % wait against throughput: better is right and down";
        let at = ((WIDTH - LEGEND_WIDTH) as i32 / 2 + 74, 14);
        heading.draw(&Text::new(better, at, quiet_text(13)))?;
        heading.draw(&Text::new(format!("{name}: {summary}"), (14, 12), text(15)))?;
        let (left, right) = charts.split_horizontally((WIDTH - LEGEND_WIDTH) / 2);
        throughput::draw(&left, row)?;
        frontier::draw(&right, row)?;
    }
    draw_legend(&legend, &locks_of(&report.results))
}

fn draw_legend(area: &Area, locks: &[&str]) -> Drawn {
    for (index, lock) in locks.iter().enumerate() {
        let style = Style::of(lock);
        let y = 44 + 24 * index as i32;
        area.draw(&PathElement::new(vec![(4, y), (32, y)], style.line()))?;
        style.mark(area, (18, y), 1.0)?;
        area.draw(&Text::new((*lock).to_owned(), (40, y - 7), text(15)))?;
    }
    Ok(())
}

/// The locks that were measured, in the usual order.
fn locks_of(entries: &[Entry<Locks>]) -> Vec<&'static str> {
    let names = LockName::all().into_iter().map(LockName::name);
    names
        .filter(|name| entries.iter().any(|entry| entry.lock == *name))
        .collect()
}
