//! A picture of a table: its columns over threads or rows, and the speed-up; published numbers are
//! rings.

use kinlock_cli::report::plot::curves::{self, Curve, Look};
use kinlock_cli::report::plot::elements::*;
use kinlock_cli::report::plot::{Area, COLOURS, Drawn, quiet_text, text};
use kinlock_cli::report::{Pictures, Plot};

use super::results::{Report, TableEntry};
use crate::simulation::sampling::bands;

const WIDTH: u32 = 900;
const TITLE_HEIGHT: u32 = 66;
const COLUMNS_HEIGHT: u32 = 420;
const SPEEDUP_HEIGHT: u32 = 320;

impl Pictures for Report {
    const PLOT: Option<Plot<Self>> = Some(Plot {
        help: "Draw each table; the name ends in .svg, and with several tables each one's name is \
               put before that",
        size,
        draw,
        about: |_| {
            let about = "Simulated values with their band, and published ones as rings. The \
                         tables have their numbers.";
            ["Published and simulated", about].map(str::to_owned)
        },
    });
}

/// How large the pictures are.
fn size(_report: &Report) -> (u32, u32) {
    (WIDTH, TITLE_HEIGHT + COLUMNS_HEIGHT + SPEEDUP_HEIGHT)
}

/// Draws one of the tables.
fn draw(report: &Report, index: usize, area: &Area) -> Drawn {
    let table = &report.tables[index];
    let (title, rest) = area.split_vertically(TITLE_HEIGHT);
    let (workload, machine) = (&table.workload.name, &table.machine.name);
    let heading = format!(
        "{}: workload {workload} on {machine}, simulated and published",
        table.table
    );
    title.draw(&Text::new(heading, (14, 12), text(18)))?;
    let mut about = bands(&table.variants);
    if let Some(scale) = table.scale {
        about += &format!("; throughput scaled by {scale:.3}");
    }
    title.draw(&Text::new(about, (14, 38), quiet_text(14)))?;

    let (columns, speedup) = rest.split_vertically(COLUMNS_HEIGHT);
    let names = table
        .locks
        .iter()
        .map(|(column, lock)| match table.locks.len() {
            2 if lock.name != *column => format!("{column} ({})", lock.name),
            _ => lock.name.to_owned(),
        });
    let curves = names
        .enumerate()
        .map(|(index, name)| curve(table, index, name));
    draw_curves(table, &columns, &curves.collect::<Vec<_>>(), table.unit)?;
    let index = table.locks.len();
    let speedups = curve(table, index, "speed-up".to_owned());
    draw_curves(table, &speedup, &[speedups], &table.speedup_is)
}

/// Draws curves over threads, or, for tables about concurrency IDs, over the number of the row.
fn draw_curves(table: &TableEntry, area: &Area, curves: &[Curve], unit: &str) -> Drawn {
    if !is_by_place(table) {
        return curves::draw(area, curves, unit);
    }
    let labels: Vec<_> = table
        .published_rows()
        .map(|row| row[0].label.clone())
        .collect();
    let label = |place: usize| labels[place - 1].clone();
    curves::draw_over(area, curves, unit, table.row_key, label)
}

/// Rows of tables about concurrency IDs differ in more than the number of threads.
fn is_by_place(table: &TableEntry) -> bool {
    table.rows.iter().any(|row| row.ids.is_some())
}

fn curve(table: &TableEntry, index: usize, name: String) -> Curve {
    let by_place = is_by_place(table);
    let rows = || {
        let rows = (1..).zip(table.published_rows());
        rows.map(move |(place, row)| {
            let entry = &row[index];
            (if by_place { place } else { entry.key }, entry)
        })
    };
    Curve {
        name,
        look: Look {
            colour: COLOURS[index],
            thick: true,
        },
        points: rows()
            .map(|(place, entry)| (place, entry.simulated.into()))
            .collect(),
        compared: rows()
            .filter_map(|(place, entry)| Some((place, entry.published?)))
            .collect(),
    }
}
