//! A picture of the ratios: a row for each lock, with a dot for each round and a bar for the
//! interval of the median.

use kinlock_cli::report::plot::{Area, COLOURS, Drawn, quiet_text, styled, text};
use kinlock_cli::report::{Pictures, Plot};
use plotters::prelude::*;

use super::report::{Entry, Report};
use super::verdict::Verdict;

const WIDTH: u32 = 860;
const TITLE: u32 = 62;
const ROW: u32 = 48;
/// For the axis.
const BELOW: u32 = 50;
/// For the names.
const NAMES: u32 = 170;

impl Pictures for Report {
    const PLOT: Option<Plot<Self>> = Some(Plot {
        help: "Draw the ratios of all rounds, as SVG",
        size,
        draw: |report, _, area| draw(report, area),
        about: |report| {
            let to = report.results.first().map_or("", |entry| &entry.ratio.to);
            let about = "A row for each lock: the dots are the rounds, the line is their median, \
                         and the bar its interval. Right is better. The table has the numbers.";
            [format!("Ratios over {to}"), about.to_owned()]
        },
    });
}

fn size(report: &Report) -> (u32, u32) {
    (WIDTH, TITLE + ROW * report.results.len() as u32 + BELOW)
}

fn draw(report: &Report, area: &Area) -> Drawn {
    let (title, rest) = area.split_vertically(TITLE);
    let program: String = report
        .parameters
        .program
        .join(" ")
        .chars()
        .take(100)
        .collect();
    title.draw(&Text::new(program, (14, 12), text(17)))?;
    let to = report.results.first().map_or("", |entry| &entry.ratio.to);
    let rounds = report.extent.rounds_done;
    let about = format!(
        "over {to}: {rounds} rounds (dots), their median and its interval; right is better"
    );
    title.draw(&Text::new(about, (14, 38), quiet_text(14)))?;
    let ratios = report.results.iter().flat_map(|entry| &entry.rounds);
    let ratios = ratios.map(|round| round.ratio).chain([1.0]);
    let (low, high) = ratios.fold((f64::INFINITY, 0.0f64), |(low, high), ratio| {
        (low.min(ratio), high.max(ratio))
    });
    let room = 0.05 * (high - low).max(0.02);
    let rows = report.results.len() as f64;
    let mut chart = ChartBuilder::on(&rest)
        .margin_right(24)
        .x_label_area_size(BELOW)
        .y_label_area_size(NAMES)
        .build_cartesian_2d(low - room..high + room, rows..0.0)?;
    styled(&mut chart.configure_mesh())
        .disable_y_mesh()
        .y_labels(0)
        .x_desc("times as good")
        .draw()?;
    let one = [(1.0, 0.0), (1.0, rows)];
    chart.draw_series([PathElement::new(one, BLACK.stroke_width(1))])?;
    for (index, entry) in report.results.iter().enumerate() {
        let middle = (ROW * index as u32 + ROW / 2) as i32;
        rest.draw(&Text::new(entry.lock.clone(), (14, middle - 8), text(14)))?;
        if ![Verdict::Reference, Verdict::Failed].contains(&entry.verdict) {
            let colour = COLOURS[index % COLOURS.len()];
            row(&mut chart, entry, index as f64 + 0.5, colour)?;
        }
    }
    Ok(())
}

type Chart<'a, 'b> = ChartContext<
    'b,
    SVGBackend<'a>,
    Cartesian2d<plotters::coord::types::RangedCoordf64, plotters::coord::types::RangedCoordf64>,
>;

fn row(chart: &mut Chart, entry: &Entry, y: f64, colour: RGBColor) -> Drawn {
    let ratio = &entry.ratio;
    let interval = [(ratio.low, y - 0.28), (ratio.high, y + 0.28)];
    chart.draw_series([Rectangle::new(interval, colour.mix(0.25).filled())])?;
    let median = ratio.over_rounds.median;
    let line = [(median, y - 0.36), (median, y + 0.36)];
    chart.draw_series([PathElement::new(line, colour.stroke_width(3))])?;
    let dots = entry.rounds.iter();
    chart.draw_series(dots.map(|round| Circle::new((round.ratio, y), 3, colour.filled())))?;
    Ok(())
}
