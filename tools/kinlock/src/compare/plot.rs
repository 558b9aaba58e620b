//! A picture of the ratios: a row for each lock, with a dot for each round and a bar for the
//! interval of the median. For a scan, curves over the values of its first parameter: on the left
//! the compared quantity, on the right the ratios, in a row for each combination of the other
//! parameters.

use kinlock_cli::report::plot::curves::{self, Curve, Look};
use kinlock_cli::report::plot::{Area, COLOURS, Drawn, quiet_text, styled, text};
use kinlock_cli::report::{Pictures, Plot};
use plotters::prelude::*;

use super::report::{Entry, Report, Round};
use super::scan::{At, Scan};

const WIDTH: u32 = 860;
const TITLE: u32 = 62;
const ROW: u32 = 48;
/// Height of the axis.
const BELOW: u32 = 50;
/// Width of the names.
const NAMES: u32 = 170;

impl Pictures for Report {
    const PLOT: Option<Plot<Self>> = Some(Plot {
        help: "Draw the ratios of all rounds, or with --scan the times and ratios over the values \
               of a parameter; the name ends in .svg",
        size,
        draw: |report, _, area| draw(report, area),
        about,
    });
}

const SCAN_WIDTH: u32 = 1080;
const PANEL: u32 = 340;

fn about(report: &Report) -> [String; 2] {
    let to = report.reference();
    match report.parameters.scan.first() {
        None => [
            format!("Ratios over {to}"),
            "A row for each lock: the dots are the rounds, the line is their median, and the bar \
             its interval. Right is better. The table has the numbers."
                .to_owned(),
        ],
        Some(scan) => [
            format!("Over {}", scan.name),
            format!(
                "At the left what is compared, with the range of the rounds; at the right how many \
                 times as good as {to} each lock is, with the interval. The table has the numbers."
            ),
        ],
    }
}

/// The rows of a scan's picture: the values of the other parameters, and the entries.
fn rows(report: &Report) -> Vec<(String, Vec<&Entry>)> {
    let mut rows: Vec<(String, Vec<&Entry>)> = Vec::new();
    for entry in &report.results {
        let others = At(entry.at.0[1..].to_vec()).words();
        match rows.iter_mut().find(|(known, _)| *known == others) {
            Some((_, entries)) => entries.push(entry),
            None => rows.push((others, vec![entry])),
        }
    }
    rows
}

fn size(report: &Report) -> (u32, u32) {
    if !report.parameters.scan.is_empty() {
        return (SCAN_WIDTH, TITLE + PANEL * rows(report).len() as u32);
    }
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
    if let Some(scan) = report.parameters.scan.first() {
        return draw_scan(report, scan, &title, rest);
    }
    let to = report.reference();
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
        if entry.is_compared() {
            let colour = COLOURS[index % COLOURS.len()];
            let (ratio, y) = (&entry.ratio, index as f64 + 0.5);
            let interval = [(ratio.low, y - 0.28), (ratio.high, y + 0.28)];
            chart.draw_series([Rectangle::new(interval, colour.mix(0.25).filled())])?;
            let median = ratio.over_rounds.median;
            let line = [(median, y - 0.36), (median, y + 0.36)];
            chart.draw_series([PathElement::new(line, colour.stroke_width(3))])?;
            let dots = entry.rounds.iter();
            let dot = |round: &Round| Circle::new((round.ratio, y), 3, colour.filled());
            chart.draw_series(dots.map(dot))?;
        }
    }
    Ok(())
}

/// The places of a parameter's values on the axis: the values themselves if they are numbers, else
/// equally spaced. [`curves`] makes the axis logarithmic if places differ by a factor of eight. To
/// avoid that, the first of equally spaced places is as far from 0 as from the last one.
fn places(scan: &Scan) -> Vec<usize> {
    let numbers = scan.values.iter().map(|value| value.parse().ok());
    let numbers: Option<Vec<usize>> = numbers.map(|n| n.filter(|&n| n > 0)).collect();
    let count = scan.values.len();
    numbers.unwrap_or_else(|| (count..2 * count).collect())
}

fn draw_scan(report: &Report, scan: &Scan, title: &Area, mut rest: Area) -> Drawn {
    let to = report.reference();
    let better = match report.parameters.lower_is_better {
        true => "lower is better",
        false => "higher is better",
    };
    let about = format!(
        "left: median and range of the rounds, {better}; right: over {to}, higher is better"
    );
    title.draw(&Text::new(about, (14, 38), quiet_text(14)))?;
    let mut locks: Vec<&str> = Vec::new();
    for entry in &report.results {
        if !locks.contains(&&*entry.lock) {
            locks.push(&entry.lock);
        }
    }
    // Sorted, so that a lock has the same colour in all panels.
    locks.sort_unstable();
    let places = places(scan);
    let place = |entry: &Entry| {
        let value = entry.at.value(&scan.name);
        let at = scan.values.iter().position(|known| known == value);
        places[at.unwrap_or(0)]
    };
    let label = |at: usize| {
        let index = places.iter().position(|place| *place == at);
        index.map_or(String::new(), |index| scan.values[index].clone())
    };
    let curves = |entries: &[&Entry], of: &dyn Fn(&Entry) -> Option<[f64; 3]>| -> Vec<Curve> {
        let curve = |(index, lock): (usize, &&str)| {
            let own = entries.iter().filter(|entry| entry.lock == **lock);
            let points = own.filter_map(|entry| Some((place(entry), of(entry)?)));
            Curve {
                name: (*lock).to_owned(),
                look: Look {
                    colour: COLOURS[index % COLOURS.len()],
                    thick: true,
                },
                points: points.collect(),
                compared: Vec::new(),
            }
        };
        locks.iter().enumerate().map(curve).collect()
    };
    for (others, entries) in rows(report) {
        let (row, below) = rest.split_vertically(PANEL);
        rest = below;
        let (left, right) = row.split_horizontally(SCAN_WIDTH / 2);
        let most = entries
            .iter()
            .map(|entry| entry.value.max)
            .fold(0.0, f64::max);
        let (unit, scale) = unit(report.parameters.metric.is_none(), most);
        let values = curves(&entries, &|entry| {
            Some(<[f64; 3]>::from(entry.value).map(|value| value * scale))
        });
        let axis = match others.is_empty() {
            true => scan.name.clone(),
            false => format!("{} ({others})", scan.name),
        };
        curves::draw_over(&left, &values, unit, &axis, label)?;
        let ratios = curves(&entries, &|entry| {
            let ratio = &entry.ratio;
            let reference = entry.lock == ratio.to;
            let own = [ratio.over_rounds.median, ratio.low, ratio.high];
            (reference || entry.is_compared()).then_some(own)
        });
        curves::draw_over(&right, &ratios, "times as good", &axis, label)?;
    }
    Ok(())
}

/// The unit of the compared quantity, and the factor that converts a value to it.
fn unit(is_time: bool, most: f64) -> (&'static str, f64) {
    match is_time {
        true if most < 0.001 => ("microseconds", 1e6),
        true if most < 1.0 => ("milliseconds", 1e3),
        true => ("seconds", 1.0),
        false if most >= 2e6 => ("millions", 1e-6),
        false if most >= 2e3 => ("thousands", 1e-3),
        false => ("what the program prints", 1.0),
    }
}
