//! A picture of a table: throughput of both locks over threads, and the speed-up; published numbers are rings.

use plotters::prelude::*;

use super::results::{Report, TableEntry};
use crate::output::picture::curves::{self, Curve, Point};
use crate::output::picture::{Area, COLOURS, Drawn, quiet_text, text};
use crate::sim::flags::bands;

const WIDTH: u32 = 900;
const TITLE_HEIGHT: u32 = 66;
const THROUGHPUT_HEIGHT: u32 = 420;
const SPEEDUP_HEIGHT: u32 = 320;

/// How large the pictures are.
pub fn size(_report: &Report) -> (u32, u32) {
    (WIDTH, TITLE_HEIGHT + THROUGHPUT_HEIGHT + SPEEDUP_HEIGHT)
}

/// Draws one of the tables.
pub fn draw(report: &Report, index: usize, area: &Area) -> Drawn {
    let table = &report.tables.locks[index];
    let (title, rest) = area.split_vertically(TITLE_HEIGHT);
    let heading = format!(
        "{}: workload {} on {}, simulated and published",
        table.table, table.workload.name, table.machine.name
    );
    title.draw(&Text::new(heading, (14, 12), text(18)))?;
    let bands = format!(
        "{}; throughput scaled by {:.3}",
        bands(&table.variants),
        table.scale
    );
    title.draw(&Text::new(bands, (14, 38), quiet_text(14)))?;

    let (throughput, speedup) = rest.split_vertically(THROUGHPUT_HEIGHT);
    let [first, second] = table.columns;
    let curves = [
        curve(table, first, &table.stock.name, COLOURS[3]),
        curve(table, second, &table.cna.name, COLOURS[0]),
    ];
    curves::draw(&throughput, &curves, table.unit)?;
    let speedups = curve(table, "speedup", "speed-up", COLOURS[4]);
    curves::draw(&speedup, &[speedups], &format!("{second} over {first}"))
}

fn curve(table: &TableEntry, column: &str, name: &str, colour: RGBColor) -> Curve {
    let rows = || table.rows.iter().filter(|row| row.column == column);
    let name = match column == name || column == "speedup" {
        true => name.to_owned(),
        false => format!("{column} ({name})"),
    };
    Curve {
        name,
        colour,
        thick: true,
        points: rows()
            .map(|row| Point {
                threads: row.key,
                median: row.simulated.median,
                low: row.simulated.low,
                high: row.simulated.high,
            })
            .collect(),
        compared: rows().map(|row| (row.key, row.published)).collect(),
    }
}
