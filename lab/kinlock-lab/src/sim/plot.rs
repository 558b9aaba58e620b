//! A picture: for each workload, throughput over threads, with a curve and a band for each lock;
//! for the grid, a map for each lock and number of threads.

use kinlock_cli::report::cells::Cells;
use kinlock_cli::report::plot::curves::{self, Curve, Look};
use kinlock_cli::report::plot::elements::*;
use kinlock_cli::report::plot::{Area, COLOURS, Drawn, quiet_text, text};
use kinlock_cli::report::{Pictures, Plot};
use kinlock_sim::locks;

use super::grid;
use super::results::{Entry, Report, is_cell};
use crate::simulation::sampling::bands;

const WIDTH: u32 = 900;
const TITLE_HEIGHT: u32 = 62;
const PANEL_HEIGHT: u32 = 440;

impl Pictures for Report {
    const PLOT: Option<Plot<Self>> = Some(Plot {
        help: "Draw throughput over threads; the name ends in .svg",
        size,
        draw,
        about: |_| {
            let about = "Throughput of each simulated lock over the number of threads, by \
                         workload. The tables have its numbers.";
            ["Simulated throughput", about].map(str::to_owned)
        },
    });
}

/// How large the picture is.
fn size(report: &Report) -> (u32, u32) {
    (
        WIDTH,
        TITLE_HEIGHT
            + PANEL_HEIGHT * panels(report).len() as u32
            + grid::height(report) * report.grid.len() as u32,
    )
}

/// The workloads that have a panel.
fn panels(report: &Report) -> Vec<&[Entry]> {
    let mut panels = report.by_workload();
    panels.retain(|panel| !is_cell(panel[0].workload));
    panels
}

fn draw(report: &Report, _index: usize, area: &Area) -> Drawn {
    let (title, mut rest) = area.split_vertically(TITLE_HEIGHT);
    let setup = &report.setup;
    let about = format!("simulated: {}", setup.machine.about);
    title.draw(&Text::new(about, (14, 12), text(18)))?;
    let bands = bands(&setup.parameters.variants);
    title.draw(&Text::new(bands, (14, 38), quiet_text(14)))?;

    for panel in panels(report) {
        let (area, below) = rest.split_vertically(PANEL_HEIGHT);
        rest = below;
        let (heading, chart) = area.split_vertically(28);
        let name = &panel[0].workload;
        let about = report.about(name).unwrap_or_default();
        heading.draw(&Text::new(format!("{name}: {about}"), (14, 8), text(15)))?;
        let names = setup.parameters.locks.iter();
        let curves: Vec<_> = names.map(|lock| curve(lock.name, panel)).collect();
        curves::draw(&chart, &curves, "operations per microsecond")?;
    }
    for standings in &report.grid {
        let (area, below) = rest.split_vertically(grid::height(report));
        rest = below;
        grid::draw(&area, report, standings)?;
    }
    Ok(())
}

fn curve(lock: &str, panel: &[Entry]) -> Curve {
    let own = panel.iter().filter(|entry| entry.lock == lock);
    let points = own.map(|entry| (entry.threads, entry.ops_per_us.into()));
    Curve {
        name: lock.to_owned(),
        look: Look {
            colour: colour(lock),
            thick: true,
        },
        points: points.collect(),
        compared: Vec::new(),
    }
}

/// The colour of a lock: the same in every picture.
fn colour(lock: &str) -> RGBColor {
    let others = locks::invalidation::ALL.iter().chain(locks::rwlock::ALL);
    let mut all = locks::ALL.iter().chain(others);
    let place = all.position(|kind| kind.name == lock);
    COLOURS[place.unwrap_or(0) % COLOURS.len()]
}
