//! Curves over the number of threads, each with a band and, where there are any, points of others
//! to compare with.

use std::ops::Range;

use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::{Area, Drawn, text};

/// A curve.
#[derive(Clone, Debug)]
pub struct Curve {
    /// Its name in the legend.
    pub name: String,
    /// Its colour.
    pub colour: RGBColor,
    /// Whether it is drawn thick.
    pub thick: bool,
    /// In the order of threads.
    pub points: Vec<Point>,
    /// Published values, by number of threads: drawn as rings.
    pub compared: Vec<(usize, f64)>,
}

/// A point of a curve.
#[derive(Clone, Copy, Debug)]
pub struct Point {
    /// Number of threads.
    pub threads: usize,
    /// The value.
    pub median: f64,
    /// The lower edge of the band.
    pub low: f64,
    /// The upper edge of the band.
    pub high: f64,
}

const LEGEND_HEIGHT: u32 = 28;
const X_LABELS: u32 = 44;
/// Pixels between the middles of labels.
const BETWEEN_LABELS: i32 = 28;
/// Beyond this ratio of thread counts their axis is logarithmic.
const WIDE: usize = 8;

/// Draws `curves` with a legend above them. `unit` stands beside the vertical axis, which starts at
/// 0.
pub fn draw(area: &Area, curves: &[Curve], unit: &str) -> Drawn {
    draw_over(area, curves, unit, "threads", |threads| threads.to_string())
}

/// The same over something else than threads, which `axis` names; `label` says what is at a place.
pub fn draw_over(
    area: &Area,
    curves: &[Curve],
    unit: &str,
    axis: &str,
    label: impl Fn(usize) -> String,
) -> Drawn {
    let (legend, area) = area.split_vertically(LEGEND_HEIGHT);
    draw_legend(&legend, curves)?;

    let mut threads: Vec<usize> = curves
        .iter()
        .flat_map(|curve| curve.points.iter().map(|point| point.threads))
        .collect();
    threads.sort_unstable();
    threads.dedup();
    let (Some(&first), Some(&last)) = (threads.first(), threads.last()) else {
        return Ok(());
    };
    // Positions may be logarithms; the labels undo that.
    let is_wide = last >= WIDE * first;
    let position = |threads: usize| match is_wide {
        true => (threads as f64).log2(),
        false => threads as f64,
    };
    let room = (0.04 * (position(last) - position(first))).max(0.1);
    let range = position(first) - room..position(last) + room;
    let values = curves.iter().flat_map(|curve| {
        let own = curve.points.iter().map(|point| point.high);
        own.chain(curve.compared.iter().map(|&(_, value)| value))
    });
    let top = values.fold(0.0, f64::max).max(f64::MIN_POSITIVE);

    let mut chart = axes(&area, range, top, unit, axis)?;
    let (left, above) = area.get_base_pixel();
    let bottom = area.dim_in_pixel().1 as i32 - X_LABELS as i32;
    let places: Vec<_> = threads
        .iter()
        .map(|&threads| (threads, chart.backend_coord(&(position(threads), 0.0)).0))
        .collect();
    for (threads, x) in labelled(&places) {
        let style = text(13).pos(Pos::new(HPos::Center, VPos::Top));
        let at = (x - left, bottom + 6);
        area.draw(&Text::new(label(threads), at, style))?;
    }

    // Bands first: no band hides another curve.
    for curve in curves {
        let at = |point: &Point, value: f64| (position(point.threads), value);
        let upper = curve.points.iter().map(|point| at(point, point.high));
        let lower = curve.points.iter().rev().map(|point| at(point, point.low));
        let outline: Vec<_> = upper.chain(lower).collect();
        let fill = curve.colour.mix(if curve.thick { 0.14 } else { 0.07 });
        chart.draw_series(std::iter::once(Polygon::new(outline, fill.filled())))?;
    }
    for curve in curves {
        let medians = curve.points.iter();
        let medians = medians.map(|point| (position(point.threads), point.median));
        chart.draw_series(LineSeries::new(medians.clone(), curve.line()))?;
        for point in medians {
            let (x, y) = chart.backend_coord(&point);
            curve.mark(&area, (x - left, y - above))?;
        }
        for &(threads, value) in &curve.compared {
            let (x, y) = chart.backend_coord(&(position(threads), value));
            ring(&area, (x - left, y - above), curve.colour)?;
        }
    }
    Ok(())
}

type Chart<'a> = ChartContext<'a, SVGBackend<'a>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

/// Draws the axes, without labels at the horizontal one.
fn axes<'a>(
    area: &Area<'a>,
    range: Range<f64>,
    top: f64,
    unit: &str,
    axis: &str,
) -> Result<Chart<'a>, Box<dyn std::error::Error>> {
    let mut chart = ChartBuilder::on(area)
        .margin_left(10)
        .margin_right(20)
        .margin_top(8)
        .x_label_area_size(X_LABELS)
        .y_label_area_size(64)
        .build_cartesian_2d(range, 0.0..top * 1.06)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .max_light_lines(2)
        .light_line_style(RGBColor(245, 245, 245))
        .bold_line_style(RGBColor(225, 225, 225))
        .x_labels(0)
        .y_labels(8)
        .x_desc(axis)
        .y_desc(unit)
        .label_style(text(13))
        .axis_desc_style(text(14))
        .draw()?;
    Ok(chart)
}

impl Curve {
    fn line(&self) -> ShapeStyle {
        self.colour.stroke_width(if self.thick { 3 } else { 1 })
    }

    fn mark(&self, area: &Area, at: (i32, i32)) -> Drawn {
        let radius = if self.thick { 4 } else { 3 };
        area.draw(&Circle::new(at, radius, self.colour.filled()))?;
        Ok(())
    }
}

fn draw_legend(area: &Area, curves: &[Curve]) -> Drawn {
    let mut x = 78;
    let y = LEGEND_HEIGHT as i32 / 2;
    let label = |name: &str, x: i32| Text::new(name.to_owned(), (x, y - 7), text(14));
    for curve in curves {
        area.draw(&PathElement::new(vec![(x, y), (x + 26, y)], curve.line()))?;
        curve.mark(area, (x + 13, y))?;
        area.draw(&label(&curve.name, x + 32))?;
        let (width, _) = area.estimate_text_size(&curve.name, &text(14))?;
        x += 32 + width as i32 + 20;
    }
    if let Some(curve) = curves.iter().find(|curve| !curve.compared.is_empty()) {
        ring(area, (x + 8, y), curve.colour)?;
        area.draw(&label("published", x + 20))?;
    }
    Ok(())
}

fn ring(area: &Area, at: (i32, i32), colour: RGBColor) -> Drawn {
    area.draw(&Circle::new(at, 6, WHITE.mix(0.6).filled()))?;
    area.draw(&Circle::new(at, 6, colour.stroke_width(2)))?;
    Ok(())
}

/// Those of `places` that get a label: the last, the first, powers of two, and what else fits
/// between.
fn labelled(places: &[(usize, i32)]) -> Vec<(usize, i32)> {
    let (Some(&first), Some(&last)) = (places.first(), places.last()) else {
        return Vec::new();
    };
    let powers = places.iter().filter(|place| place.0.is_power_of_two());
    let wanted = [last, first].into_iter().chain(powers.copied());
    let mut chosen: Vec<(usize, i32)> = Vec::new();
    for place in wanted.chain(places.iter().copied()) {
        let fits = |other: &(usize, i32)| (place.1 - other.1).abs() >= BETWEEN_LABELS;
        if chosen.iter().all(fits) {
            chosen.push(place);
        }
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_stay_apart() {
        let numbers = |places: &[(usize, i32)]| -> Vec<usize> {
            let mut numbers: Vec<_> = labelled(places).iter().map(|place| place.0).collect();
            numbers.sort_unstable();
            numbers
        };
        assert_eq!(numbers(&[(1, 0), (2, 100)]), [1, 2]);
        let many = [(3, 0), (7, 40), (8, 50), (9, 60), (10, 90), (11, 100)];
        assert_eq!(numbers(&many), [3, 8, 11]);
        assert_eq!(numbers(&[(7, 0)]), [7]);
        assert!(numbers(&[]).is_empty());
    }
}
