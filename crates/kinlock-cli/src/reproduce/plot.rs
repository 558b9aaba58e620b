//! A picture of a table: throughput of both locks over threads, or time per burst under each policy over rows, and the speed-up; published numbers are rings.

use plotters::prelude::*;

use super::ids::{IdRowEntry, IdTableEntry};
use super::results::{Report, SPEEDUP, TableEntry};
use crate::report::plot::curves::{self, Curve, Point};
use crate::report::plot::{Area, COLOURS, Drawn, quiet_text, text};
use crate::sim::flags::bands;

const WIDTH: u32 = 900;
const TITLE_HEIGHT: u32 = 66;
const THROUGHPUT_HEIGHT: u32 = 420;
const SPEEDUP_HEIGHT: u32 = 320;

/// How large the pictures are.
pub fn size(_report: &Report) -> (u32, u32) {
    (WIDTH, TITLE_HEIGHT + THROUGHPUT_HEIGHT + SPEEDUP_HEIGHT)
}

/// Draws one of the tables: of locks, then of concurrency IDs.
pub fn draw(report: &Report, index: usize, area: &Area) -> Drawn {
    let locks = &report.tables.locks;
    match locks.get(index) {
        Some(table) => draw_locks(table, area),
        None => draw_ids(&report.tables.ids[index - locks.len()], area),
    }
}

fn draw_locks(table: &TableEntry, area: &Area) -> Drawn {
    let heading = format!(
        "{}: workload {} on {}, simulated and published",
        table.table, table.workload.name, table.machine.name
    );
    let bands = format!(
        "{}; throughput scaled by {:.3}",
        bands(&table.variants),
        table.scale
    );
    let (throughput, speedup) = panels(area, heading, bands)?;
    let [first, second] = table.columns;
    let curves = [
        curve(table, first, &table.stock.name, COLOURS[3]),
        curve(table, second, &table.cna.name, COLOURS[0]),
    ];
    curves::draw(&throughput, &curves, table.unit)?;
    let speedups = curve(table, SPEEDUP, "speed-up", COLOURS[4]);
    curves::draw(&speedup, &[speedups], &format!("{second} over {first}"))
}

fn draw_ids(table: &IdTableEntry, area: &Area) -> Drawn {
    let heading = format!(
        "{}: workload {} on {}{}",
        table.table,
        table.workload.name,
        table.machine.name,
        match table.rows.iter().any(|row| row.published.is_some()) {
            true => ", simulated and published",
            false => ", simulated",
        }
    );
    let (times, speedup) = panels(area, heading, bands(&table.variants))?;
    let labels: Vec<_> = rows(table, SPEEDUP).map(|row| row.label.as_str()).collect();
    let label = |place: usize| labels[place - 1].to_owned();
    let of_policies = table.policies.iter().zip(COLOURS.iter().copied());
    let curves: Vec<_> = of_policies
        .map(|((column, policy), colour)| curve_of_ids(table, column, &policy.name, colour))
        .collect();
    curves::draw_over(&times, &curves, table.unit, table.row_key, label)?;
    let speedups = curve_of_ids(table, SPEEDUP, "speed-up", COLOURS[4]);
    let over = "lowest-free over recent-first";
    curves::draw_over(&speedup, &[speedups], over, table.row_key, label)
}

/// Draws the title; returns the upper and the lower panel.
fn panels<'a>(
    area: &Area<'a>,
    heading: String,
    bands: String,
) -> Result<(Area<'a>, Area<'a>), Box<dyn std::error::Error>> {
    let (title, rest) = area.split_vertically(TITLE_HEIGHT);
    title.draw(&Text::new(heading, (14, 12), text(18)))?;
    title.draw(&Text::new(bands, (14, 38), quiet_text(14)))?;
    Ok(rest.split_vertically(THROUGHPUT_HEIGHT))
}

fn rows<'a>(
    table: &'a IdTableEntry,
    column: &'a str,
) -> impl Iterator<Item = &'a IdRowEntry> + Clone {
    table.rows.iter().filter(move |row| row.column == column)
}

/// Over rows, by their places from 1 on.
fn curve_of_ids(table: &IdTableEntry, column: &str, name: &str, colour: RGBColor) -> Curve {
    let rows = || (1..).zip(rows(table, column));
    Curve {
        name: name.to_owned(),
        colour,
        thick: name == "recent-first" || column == SPEEDUP,
        points: rows()
            .map(|(place, row)| Point {
                threads: place,
                median: row.simulated.median,
                low: row.simulated.low,
                high: row.simulated.high,
            })
            .collect(),
        compared: rows()
            .filter_map(|(place, row)| Some((place, row.published?)))
            .collect(),
    }
}

fn curve(table: &TableEntry, column: &str, name: &str, colour: RGBColor) -> Curve {
    let rows = || table.rows.iter().filter(|row| row.column == column);
    let name = match column == name || column == SPEEDUP {
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
