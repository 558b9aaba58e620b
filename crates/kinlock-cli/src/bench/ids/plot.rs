//! A picture: one bar per subject with the nanoseconds per operation, longer is slower, and the range of the rounds.

use plotters::prelude::*;

use super::Ids;
use crate::bench::harness::report::Report;
use crate::report::cells::{Cells, best_first};
use crate::report::plot::bars::{self, Bar};
use crate::report::plot::{Area, COLOURS, Drawn, text};

const WIDTH: u32 = 1000;
const TITLE_HEIGHT: u32 = 60;
const NAMES: i32 = 190;

/// How large the picture is.
pub fn size(report: &Report<Ids>) -> (u32, u32) {
    let heights = report.cells().map(|cell| bars::height(cell.len()));
    (WIDTH, heights.sum::<u32>() + TITLE_HEIGHT)
}

/// Draws it.
pub fn draw(report: &Report<Ids>, area: &Area) -> Drawn {
    area.draw(&Text::new(
        "kinlock bench ids: ns per operation, shorter is better",
        (14, 10),
        text(20),
    ))?;
    area.draw(&Text::new(report.machine.summary(), (14, 34), text(13)))?;
    let (_, mut rest) = area.split_vertically(TITLE_HEIGHT);
    for cell in report.cells() {
        let (group, below) = rest.split_vertically(bars::height(cell.len()));
        rest = below;
        let entries = best_first(cell).into_iter();
        let all: Vec<_> = entries
            .map(|entry| Bar {
                name: entry.lock.clone(),
                colour: COLOURS[usize::from(!entry.lock.starts_with("kinlock"))],
                nanos: entry.ns_per_op,
            })
            .collect();
        bars::draw(&group, &report.title(&cell[0]), NAMES, &all)?;
    }
    Ok(())
}
