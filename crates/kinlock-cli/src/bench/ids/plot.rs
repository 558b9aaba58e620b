//! A picture: one bar per subject with the nanoseconds per operation, longer is slower, and the range of the rounds.

use plotters::prelude::*;

use super::report::Report;
use crate::output::cells::{Cells, best_first};
use crate::output::picture::{Area, COLOURS, Drawn, text};
use crate::output::units::{three_digits, time};

const WIDTH: u32 = 1000;
const BAR: u32 = 22;
const CELL: u32 = 60;
const NAMES: i32 = 190;
/// For the number behind the longest bar.
const NUMBERS: i32 = 170;

/// How large the picture is.
pub fn size(report: &Report) -> (u32, u32) {
    let heights = report.cells().map(|cell| CELL + BAR * cell.len() as u32);
    (WIDTH, heights.sum::<u32>() + 60)
}

/// Draws it.
pub fn draw(report: &Report, _index: usize, area: &Area) -> Drawn {
    area.draw(&Text::new(
        "kinlock bench ids: ns per operation, shorter is better",
        (14, 10),
        text(20),
    ))?;
    area.draw(&Text::new(report.machine.summary(), (14, 34), text(13)))?;
    let mut y = 60;
    for cell in report.cells() {
        area.draw(&Text::new(Report::title(&cell[0]), (14, y + 12), text(15)))?;
        y += 36;
        let longest = cell
            .iter()
            .map(|entry| entry.ns_per_op.median)
            .fold(0.0, f64::max);
        let room = f64::from(WIDTH as i32 - NAMES - NUMBERS);
        for entry in best_first(cell) {
            let colour = COLOURS[usize::from(!entry.lock.starts_with("kinlock"))];
            let length = |ns: f64| NAMES + (ns.min(longest) / longest * room) as i32;
            area.draw(&Text::new(entry.lock.clone(), (14, y + 3), text(13)))?;
            let (ns, from) = (&entry.ns_per_op, NAMES);
            area.draw(&Rectangle::new(
                [
                    (from, y + 2),
                    (length(ns.median).max(from + 1), y + BAR as i32 - 4),
                ],
                colour.filled(),
            ))?;
            let middle = y + BAR as i32 / 2 - 1;
            let range = vec![(length(ns.min), middle), (length(ns.max), middle)];
            area.draw(&PathElement::new(range, BLACK.stroke_width(1)))?;
            let numbers = format!(
                "{} ({}..{})",
                time(ns.median),
                three_digits(ns.min),
                three_digits(ns.max)
            );
            area.draw(&Text::new(
                numbers,
                (length(ns.median) + 8, y + 3),
                text(13),
            ))?;
            y += BAR as i32;
        }
        y += (CELL - 36) as i32;
    }
    Ok(())
}
