//! Pictures: one row per workload. At the left throughput over threads, with a band from the slowest to the fastest
//! round; at the right the frontier of throughput and tail, which is what a lock is to be judged by.
//!
//! The picture is drawn as SVG; a PNG is that SVG rendered with a font that is part of the command.

mod frontier;
mod style;
mod throughput;

use std::io::Write;
use std::sync::Arc;

use anyhow::{Context, anyhow};
use plotters::prelude::*;
use plotters::style::register_font;
use resvg::{tiny_skia, usvg};

use self::style::{FONT, FONT_FAMILY, Style, quiet_text, text};
use crate::bench::results::{Entry, Report, locks_of};
use crate::bench::workloads::WorkloadName;

const WIDTH: u32 = 1360;
const LEGEND_WIDTH: u32 = 180;
const TITLE_HEIGHT: u32 = 64;
const ROW_HEIGHT: u32 = 380;
/// The largest ratio of throughputs that a chart shows.
const MOST_SHOWN: f64 = 300.0;
/// Pixels of a PNG per unit of the SVG: legible on dense screens and in print.
const PNG_SCALE: f32 = 1.5;

/// Writes an SVG picture.
///
/// # Errors
/// As the writer has them, or if the picture cannot be drawn.
pub fn write_svg(report: &Report, out: &mut dyn Write) -> anyhow::Result<()> {
    out.write_all(svg(report)?.as_bytes())?;
    Ok(())
}

/// Writes a PNG picture.
///
/// # Errors
/// As the writer has them, or if the picture cannot be drawn.
pub fn write_png(report: &Report, out: &mut dyn Write) -> anyhow::Result<()> {
    let mut fonts = usvg::fontdb::Database::new();
    fonts.load_font_data(FONT.to_vec());
    fonts.set_sans_serif_family(FONT_FAMILY);
    let options = usvg::Options {
        fontdb: Arc::new(fonts),
        ..usvg::Options::default()
    };
    let tree = usvg::Tree::from_str(&svg(report)?, &options)?;
    let size = tree.size();
    let pixels = |length: f32| (length * PNG_SCALE).ceil() as u32;
    let mut image = tiny_skia::Pixmap::new(pixels(size.width()), pixels(size.height()))
        .context("the picture is too large")?;
    let scale = tiny_skia::Transform::from_scale(PNG_SCALE, PNG_SCALE);
    resvg::render(&tree, scale, &mut image.as_mut());
    out.write_all(&image.encode_png()?)?;
    Ok(())
}

/// The entries of one workload.
fn rows(report: &Report) -> Vec<&[Entry]> {
    report
        .results
        .chunk_by(|a, b| a.workload == b.workload)
        .collect()
}

/// The least throughput that a row's charts show. Some locks collapse by a factor of a million: showing that would
/// squeeze all others into one line, so they sit on the edge.
fn least_shown(row: &[Entry]) -> f64 {
    let median = |entry: &Entry| entry.ops_per_s.median;
    let lowest = row.iter().map(median).fold(f64::INFINITY, f64::min);
    let highest = row.iter().map(median).fold(0.0, f64::max);
    lowest.max(highest / MOST_SHOWN)
}

fn svg(report: &Report) -> anyhow::Result<String> {
    register_font("sans-serif", FontStyle::Normal, FONT)
        .map_err(|_| anyhow!("the font is damaged"))?;
    let rows = rows(report);
    let height = TITLE_HEIGHT + ROW_HEIGHT * rows.len() as u32;
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area();
        draw(&area, report, &rows).map_err(|error| anyhow!("cannot draw: {error}"))?;
        area.present()?;
    }
    Ok(svg)
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;
type Drawn = Result<(), Box<dyn std::error::Error>>;

fn draw(area: &Area, report: &Report, rows: &[&[Entry]]) -> Drawn {
    area.fill(&WHITE)?;
    let (title, rest) = area.split_vertically(TITLE_HEIGHT);
    let summary = report.machine.summary();
    title.draw(&Text::new("kinlock bench locks", (14, 12), text(22)))?;
    title.draw(&Text::new(summary, (14, 40), text(14)))?;

    let (panels, legend) = rest.split_horizontally(WIDTH - LEGEND_WIDTH);
    for (row, area) in rows.iter().zip(panels.split_evenly((rows.len(), 1))) {
        let (heading, charts) = area.split_vertically(34);
        let name = row[0].workload;
        let summary = name.parse().map_or("", WorkloadName::summary);
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
