//! The grid: for each part and number of threads heat maps of our lock over the best peer of each
//! cell, and the frontier, where each lock has a small mark per cell and a large one at the
//! geometric mean.

use kinlock_cli::report::cells::{Cells, best_first};
use kinlock_cli::report::plot::heat;
use kinlock_cli::report::plot::{Area, Drawn, quiet_text, styled, text};
use kinlock_cli::report::units::time;
use kinlock_measure::stats::geometric_mean;
use plotters::prelude::*;

use crate::harness::plot::look;
use crate::harness::results::{Report, Shown, names};
use crate::harness::suite::Entry;
use crate::locks::Locks;
use crate::locks::grid::{self, Standing, Standings};
use crate::locks::workloads::grid::Part;

const HEADING: u32 = 40;
const MAPS_WIDTH: u32 = 700;
/// Larger ratios are drawn at the edge.
const MOST_SHOWN: f64 = 2.0;

/// The arrangement of the two maps: the core's are wide, those of the wide cells are high.
fn rows_and_columns(part: Part) -> (usize, usize) {
    match part {
        Part::Core => (2, 1),
        Part::Wide => (1, 2),
    }
}

/// The height of the pictures for one part and number of threads.
pub fn height(part: Part) -> u32 {
    HEADING + rows_and_columns(part).0 as u32 * heat::grid_height(part)
}

pub fn draw(area: &Area, report: &Report<Locks>, standings: &Standings) -> Drawn {
    let (heading, rest) = area.split_vertically(HEADING);
    let (part, lock, threads) = (standings.part, &standings.lock, standings.threads);
    let (mean, cells) = (standings.ratio, standings.cells.len());
    let name = part.name();
    let told = format!(
        "{name} grid, {threads} threads: {lock} over the best peer of each cell, by work under the \
         lock; geometric mean of {cells} cells {mean:.3}"
    );
    heading.draw(&Text::new(told, (14, 10), text(15)))?;
    let (maps, frontier) = rest.split_horizontally(MAPS_WIDTH);
    let halves = maps.split_evenly(rows_and_columns(part));
    let map = |area, heading, more_is_better, value: fn(&Standing) -> f64| {
        let values = standings.cells.iter().map(|s| (s.cell, value(s)));
        heat::draw_grid(area, part, heading, more_is_better, values)
    };
    map(
        &halves[0],
        "Throughput over the best peer's",
        true,
        |cell| cell.ratio,
    )?;
    map(
        &halves[1],
        "CPU time per operation over that peer's",
        false,
        |cell| cell.cpu_ratio,
    )?;
    draw_frontier(&frontier, report, part, threads)
}

/// Throughput divided by the best peer's, and the longest wait, of a lock in each cell.
fn points(report: &Report<Locks>, part: Part, threads: usize, lock: &str) -> Vec<(f64, f64)> {
    let is_in =
        |entry: &Entry<Locks>| entry.threads == threads && grid::part_of(entry) == Some(part);
    let cells = report.cells().filter(|cell| is_in(&cell[0]));
    let point = |cell: &[Entry<Locks>]| {
        let own = cell.iter().find(|entry| entry.lock == lock)?;
        let mut peers = best_first(cell).into_iter();
        let peer = peers.find(|entry| !Locks::OURS.contains(&&*entry.lock))?;
        let wait = own.detail.acquire_ns.max.max(1) as f64;
        Some((grid::throughput_ratio(own, peer), wait))
    };
    cells.filter_map(point).collect()
}

fn draw_frontier(area: &Area, report: &Report<Locks>, part: Part, threads: usize) -> Drawn {
    let of = |lock| (lock, points(report, part, threads, lock));
    let locks: Vec<_> = names(&report.results).into_iter().map(of).collect();
    let waits = locks.iter().flat_map(|(_, points)| points).map(|p| p.1);
    let (low, high) = (
        waits.clone().fold(f64::INFINITY, f64::min),
        waits.fold(0.0, f64::max),
    );
    let mut chart = ChartBuilder::on(area)
        .margin_top(22)
        .margin_right(24)
        .x_label_area_size(44)
        .y_label_area_size(74)
        .build_cartesian_2d(0.0..MOST_SHOWN * 1.02, (low * 0.6..high * 1.7).log_scale())?;
    let mut mesh = chart.configure_mesh();
    mesh.x_labels(9)
        .x_desc("throughput over the best peer's (at the right: or more)")
        .y_desc("longest wait")
        .x_label_formatter(&|value| format!("{value:.2}"))
        .y_label_formatter(&|value| time(*value));
    styled(&mut mesh).draw()?;
    let at_one = [(1.0, low * 0.6), (1.0, high * 1.7)];
    chart.draw_series(LineSeries::new(at_one, RGBColor(120, 120, 120)))?;
    let (left, top) = area.get_base_pixel();
    let place = |(ratio, wait): (f64, f64)| {
        let (x, y) = chart.backend_coord(&(ratio.min(MOST_SHOWN), wait));
        (x - left, y - top)
    };
    for (lock, points) in &locks {
        for &point in points {
            look(report, lock).mark(area, place(point), 0.5)?;
        }
    }
    for (lock, points) in locks.iter().filter(|(_, points)| !points.is_empty()) {
        let mean = |value: fn(&(f64, f64)) -> f64| geometric_mean(points.iter().map(value));
        let at = place((mean(|p| p.0), mean(|p| p.1)));
        area.draw(&Circle::new(at, 11, WHITE.filled()))?;
        look(report, lock).mark(area, at, 1.6)?;
    }
    let told = "right and down is better; large marks: geometric means";
    area.draw(&Text::new(told, (84, 0), quiet_text(13)))?;
    Ok(())
}
