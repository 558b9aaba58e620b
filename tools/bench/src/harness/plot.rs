//! A picture of a suite: one panel per workload. With several numbers of threads a panel has curves
//! of throughput. Otherwise, or if the suite has no [`CURVES`](Pictured::CURVES), it has a group of
//! bars for each cell, of nanoseconds per operation: longer is slower.

use kinlock_cli::report::cells::{Cells, Compared, best_first};
use kinlock_cli::report::plot::bars::{self, Bar};
use kinlock_cli::report::plot::curves::{self, Curve, Look};
use kinlock_cli::report::plot::{Area, COLOURS, Drawn, quiet_text, text};
use kinlock_cli::report::{Pictures, Plot};
use plotters::prelude::*;

use super::results::{Report, Shown, names};
use super::suite::Entry;

const WIDTH: u32 = 1240;
pub const TITLE_HEIGHT: u32 = 64;
const HEADING_HEIGHT: u32 = 28;
const CURVES_HEIGHT: u32 = 460;
/// Space below curves.
const GAP: i32 = 20;
/// Width of the names of bars.
const NAMES: i32 = 190;

pub trait Pictured: Shown {
    const PLOT: &'static str;
    /// A description of the picture for readers who do not see it.
    const ABOUT: &'static str =
        "Throughput of each subject over the number of threads, or its time per operation";
    /// Whether the picture has curves over numbers of threads.
    const CURVES: bool = true;

    fn size(report: &Report<Self>) -> (u32, u32) {
        let heights = report.by_workload().into_iter().map(height);
        (WIDTH, TITLE_HEIGHT + heights.sum::<u32>())
    }

    fn draw(report: &Report<Self>, area: &Area) -> Drawn {
        let mut rest = title(report, area)?;
        for panel in report.by_workload() {
            let (row, below) = rest.split_vertically(height(panel));
            rest = below;
            let (heading, row) = row.split_vertically(HEADING_HEIGHT);
            let better = match is_curves(panel) {
                true => "higher is better",
                false => "time per operation, shorter is better",
            };
            let workload = panel[0].workload;
            let about = report.about(workload).unwrap_or_default();
            let told = format!("{workload}: {about}; {better}");
            heading.draw(&Text::new(told, (14, 8), text(15)))?;
            match is_curves(panel) {
                true => draw_curves(report, panel, &row.margin(0, GAP, 0, 0))?,
                false => draw_bars(report, panel, row)?,
            }
        }
        Ok(())
    }
}

impl<S: Pictured> Pictures for Report<S> {
    const PLOT: Option<Plot<Self>> = Some(Plot {
        help: S::PLOT,
        size: S::size,
        draw: |report, _, area| S::draw(report, area),
        about: |_| {
            let title = format!("kinlock bench {}", S::NAME);
            [title, format!("{}. The tables have its numbers.", S::ABOUT)]
        },
    });
}

fn cells<S: Pictured>(panel: &[Entry<S>]) -> impl Iterator<Item = &[Entry<S>]> {
    panel.chunk_by(|a, b| a.threads == b.threads)
}

fn is_curves<S: Pictured>(panel: &[Entry<S>]) -> bool {
    S::CURVES && cells(panel).count() > 1
}

fn height<S: Pictured>(panel: &[Entry<S>]) -> u32 {
    let bars = cells(panel).map(|cell| bars::height(cell.len()));
    match is_curves(panel) {
        true => CURVES_HEIGHT,
        false => HEADING_HEIGHT + bars.sum::<u32>(),
    }
}

/// Draws the name of the command and the machine, and returns the area below.
pub fn title<'a, S: Shown>(
    report: &Report<S>,
    area: &Area<'a>,
) -> Result<Area<'a>, Box<dyn std::error::Error>> {
    let (title, rest) = area.split_vertically(TITLE_HEIGHT);
    let name = format!("kinlock bench {}", S::NAME);
    title.draw(&Text::new(name, (14, 12), text(22)))?;
    let machine = report.where_measured("; ");
    title.draw(&Text::new(machine, (14, 40), quiet_text(14)))?;
    Ok(rest)
}

fn draw_bars<S: Pictured>(report: &Report<S>, panel: &[Entry<S>], mut rest: Area) -> Drawn {
    for cell in cells(panel) {
        let (group, below) = rest.split_vertically(bars::height(cell.len()));
        rest = below;
        let bars = best_first(cell).into_iter().map(|entry| Bar {
            name: entry.lock.clone(),
            colour: look(report, &entry.lock).colour,
            nanos: entry.ns_per_op,
        });
        bars::draw(
            &group,
            &cell[0].usual().cell(),
            NAMES,
            &bars.collect::<Vec<_>>(),
        )?;
    }
    Ok(())
}

fn draw_curves<S: Pictured>(report: &Report<S>, panel: &[Entry<S>], area: &Area) -> Drawn {
    let most = panel.iter().map(|entry| entry.ops_per_s.max);
    let (unit, per_unit) = match most.fold(0.0, f64::max) {
        most if most >= 2e6 => ("millions of operations per second", 1e6),
        most if most >= 2e3 => ("thousands of operations per second", 1e3),
        _ => ("operations per second", 1.0),
    };
    let throughput = |entry: &Entry<S>| <[f64; 3]>::from(entry.ops_per_s).map(|ops| ops / per_unit);
    curves::draw(area, &curves(report, panel, throughput), unit)
}

/// A curve for each subject of a panel, of a value with the edges of its band.
pub fn curves<S: Pictured>(
    report: &Report<S>,
    panel: &[Entry<S>],
    value: impl Fn(&Entry<S>) -> [f64; 3],
) -> Vec<Curve> {
    let curve = |name: &str| {
        let own = panel.iter().filter(|entry| entry.lock == name);
        let own = own.map(|entry| (entry.threads, value(entry)));
        Curve {
            name: name.to_owned(),
            look: look(report, name),
            points: own.collect(),
            compared: Vec::new(),
        }
    };
    names(panel).into_iter().map(curve).collect()
}

/// The look of a subject, which is the same in the whole picture. Without curves, the colour only
/// tells our subjects from others.
pub fn look<S: Pictured>(report: &Report<S>, name: &str) -> Look {
    let names = names(&report.results);
    let place = names.iter().position(|other| *other == name).unwrap_or(0);
    let colour = match S::CURVES {
        true => COLOURS[place % COLOURS.len()],
        false => COLOURS[usize::from(!name.starts_with("kinlock"))],
    };
    Look {
        colour,
        thick: S::OURS.contains(&name),
    }
}
