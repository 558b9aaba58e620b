//! A picture: at the top the demonstration, its throughput over the number of threads; below it, side by side, what the small operations take, as bars, longer is slower. With many
//! numbers of threads all of it is curves, with one all of it is bars.

use plotters::prelude::*;

use super::contenders::ContenderName;
use super::{Invalidation, Workload};
use crate::args::Named;
use crate::bench::harness::report;
use crate::report::cells::{Cells, Compared, best_first};
use crate::report::plot::bars::{self, Bar};
use crate::report::plot::curves::{self, Curve, Point};
use crate::report::plot::{Area, COLOURS, Drawn, quiet_text, text};

type Report = report::Report<Invalidation>;
type Entry = report::Entry<Invalidation>;

const WIDTH: u32 = 1240;
const TITLE_HEIGHT: u32 = 64;
const HEADING_HEIGHT: u32 = 28;
const CURVES_HEIGHT: u32 = 460;
/// Below curves.
const GAP: i32 = 20;
/// Numbers of threads that may have a group of bars each.
const MOST_GROUPS: usize = 6;
/// Names of bars.
const NAMES: i32 = 130;

/// How large the picture is.
pub fn size(report: &Report) -> (u32, u32) {
    let (rows, columns) = panels(report);
    let rows: u32 = rows.into_iter().map(height).sum();
    let columns = columns.into_iter().map(height).max();
    (WIDTH, TITLE_HEIGHT + rows + columns.unwrap_or(0))
}

/// The workloads that take the whole width, and those that stand side by side.
fn panels(report: &Report) -> (Vec<&[Entry]>, Vec<&[Entry]>) {
    let is_row = |panel: &&[Entry]| {
        let is_demonstration = panel[0].workload == Workload::Pages.name();
        is_demonstration || cells(panel).count() > MOST_GROUPS
    };
    report.by_workload().into_iter().partition(is_row)
}

/// Whether a workload that takes the whole width is drawn as curves.
fn is_curves(panel: &[Entry]) -> bool {
    let groups = cells(panel).count();
    let is_demonstration = panel[0].workload == Workload::Pages.name();
    groups > MOST_GROUPS || is_demonstration && groups > 1
}

fn cells(panel: &[Entry]) -> impl Iterator<Item = &[Entry]> {
    panel.chunk_by(|a, b| a.threads == b.threads)
}

fn height(panel: &[Entry]) -> u32 {
    if is_curves(panel) {
        return CURVES_HEIGHT;
    }
    let bars = cells(panel).map(|cell| bars::height(cell.len()));
    HEADING_HEIGHT + bars.sum::<u32>()
}

/// Draws it.
pub fn draw(report: &Report, area: &Area) -> Drawn {
    let (title, mut rest) = area.split_vertically(TITLE_HEIGHT);
    title.draw(&Text::new("kinlock bench invalidation", (14, 12), text(22)))?;
    let summary = report.machine.summary();
    title.draw(&Text::new(summary, (14, 40), quiet_text(14)))?;

    let (rows, columns) = panels(report);
    for panel in rows {
        let (row, below) = rest.split_vertically(height(panel));
        rest = below;
        draw_panel(&row, panel)?;
    }
    let areas = rest.split_evenly((1, columns.len().max(1)));
    for (panel, area) in columns.iter().zip(areas) {
        draw_panel(&area, panel)?;
    }
    Ok(())
}

fn draw_panel(area: &Area, panel: &[Entry]) -> Drawn {
    if is_curves(panel) {
        let chart = headed(area, panel, "higher is better")?.margin(0, GAP, 0, 0);
        let (unit, per_unit) = unit(panel);
        return curves::draw(&chart, &curves_of(panel, per_unit), unit);
    }
    let mut rest = headed(area, panel, "time per operation, shorter is better")?;
    for cell in cells(panel) {
        let (group, below) = rest.split_vertically(bars::height(cell.len()));
        rest = below;
        let plural = if cell[0].threads == 1 { "" } else { "s" };
        let heading = format!("{} thread{plural}", cell[0].threads);
        bars::draw(&group, &heading, NAMES, &bars_of(cell))?;
    }
    Ok(())
}

/// Writes what a workload is, and leaves the rest.
fn headed<'a>(
    area: &Area<'a>,
    panel: &[Entry],
    better: &str,
) -> Result<Area<'a>, Box<dyn std::error::Error>> {
    let (heading, rest) = area.split_vertically(HEADING_HEIGHT);
    let name = panel[0].workload;
    let mut workloads = Workload::all().into_iter();
    let workload = workloads.find(|workload| workload.name() == name);
    let summary = workload.map_or("", Workload::summary);
    let told = format!("{name}: {summary}; {better}");
    heading.draw(&Text::new(told, (14, 8), text(15)))?;
    Ok(rest)
}

/// What throughput is counted in, so that the numbers at the axis are short.
fn unit(panel: &[Entry]) -> (&'static str, f64) {
    let most = panel.iter().map(|entry| entry.ops_per_s.max);
    match most.fold(0.0, f64::max) {
        most if most >= 2e6 => ("millions of operations per second", 1e6),
        most if most >= 2e3 => ("thousands of operations per second", 1e3),
        _ => ("operations per second", 1.0),
    }
}

fn curves_of(panel: &[Entry], per_unit: f64) -> Vec<Curve> {
    let contenders = ContenderName::all().into_iter();
    let curves = contenders.map(|contender| {
        let own = panel.iter().filter(|entry| entry.lock == contender.name());
        let mut points: Vec<_> = own
            .map(|entry| Point {
                threads: entry.threads,
                median: entry.ops_per_s.median / per_unit,
                low: entry.ops_per_s.min / per_unit,
                high: entry.ops_per_s.max / per_unit,
            })
            .collect();
        points.sort_by_key(|point| point.threads);
        Curve {
            name: contender.name().to_owned(),
            colour: colour(contender.name()),
            thick: matches!(contender, ContenderName::Ours(_)),
            points,
            compared: Vec::new(),
        }
    });
    curves.filter(|curve| !curve.points.is_empty()).collect()
}

fn bars_of(cell: &[Entry]) -> Vec<Bar> {
    let entries = best_first(cell).into_iter();
    let bars = entries.map(|entry| Bar {
        name: entry.usual().lock.to_owned(),
        colour: colour(&entry.lock),
        nanos: entry.ns_per_op,
    });
    bars.collect()
}

/// The colour of a contender: the same in the whole picture.
fn colour(name: &str) -> RGBColor {
    let mut all = ContenderName::all().into_iter();
    let place = all.position(|contender| contender.name() == name);
    COLOURS[place.unwrap_or(0) % COLOURS.len()]
}
