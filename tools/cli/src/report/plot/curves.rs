//! Curves over the number of threads, each with a band and, where there are any, published points
//! to compare with.

use std::collections::{BTreeMap, BTreeSet};

use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::{Area, Drawn, styled, text};

#[derive(Clone, Debug)]
pub struct Curve {
    /// Its name in the legend.
    pub name: String,
    pub look: Look,
    /// By the number of threads, or another quantity on the horizontal axis: the value on the line,
    /// and the edges of the band.
    pub points: BTreeMap<usize, [f64; 3]>,
    /// Published values, by number of threads. They are drawn as rings.
    pub compared: Vec<(usize, f64)>,
}

/// A colour with thick lines and discs, or with thin lines and squares.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    /// Of its line, marks and band.
    pub colour: RGBColor,
    /// Whether it has thick lines and discs.
    pub thick: bool,
}

pub struct Vertical<'a, Y> {
    /// The values that it spans.
    pub range: Y,
    /// Lower values are drawn as this one.
    pub least: f64,
    /// The text beside the axis.
    pub unit: &'a str,
    /// How its numbers are written.
    pub number: fn(&f64) -> String,
}

const LEGEND_HEIGHT: u32 = 28;
const X_LABELS: u32 = 44;
/// Pixels between the middles of labels.
const BETWEEN_LABELS: i32 = 28;
/// From this ratio of the largest to the smallest thread count on, their axis is logarithmic.
const WIDE: usize = 8;

/// Draws `curves` with a legend above them. `unit` stands beside the vertical axis, which starts at
/// 0.
pub fn draw(area: &Area, curves: &[Curve], unit: &str) -> Drawn {
    draw_over(area, curves, unit, "threads", |threads| threads.to_string())
}

/// The same over another quantity than threads, which `axis` names; `label` labels its values.
pub fn draw_over(
    area: &Area,
    curves: &[Curve],
    unit: &str,
    axis: &str,
    label: impl Fn(usize) -> String,
) -> Drawn {
    let (legend, area) = area.split_vertically(LEGEND_HEIGHT);
    draw_legend(&legend, curves)?;
    let values = curves.iter().flat_map(|curve| {
        let own = curve.points.values().map(|&[.., high]| high);
        own.chain(curve.compared.iter().map(|&(_, value)| value))
    });
    let top = values.fold(0.0, f64::max).max(f64::MIN_POSITIVE);
    let vertical = Vertical {
        range: 0.0..top * 1.06,
        least: 0.0,
        unit,
        number: RangedCoordf64::format,
    };
    chart(&area, curves, vertical, axis, label)
}

/// Draws `curves` without a legend.
pub fn chart<Y: AsRangedCoord<Value = f64>>(
    area: &Area,
    curves: &[Curve],
    vertical: Vertical<Y>,
    axis: &str,
    label: impl Fn(usize) -> String,
) -> Drawn
where
    Y::CoordDescType: ValueFormatter<f64>,
{
    let all = curves.iter().flat_map(|curve| curve.points.keys());
    let threads: BTreeSet<usize> = all.copied().collect();
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

    let mut chart = ChartBuilder::on(area)
        .margin_left(10)
        .margin_right(20)
        .margin_top(8)
        .x_label_area_size(X_LABELS)
        .y_label_area_size(64)
        .build_cartesian_2d(range, vertical.range)?;
    let mut mesh = chart.configure_mesh();
    mesh.disable_x_mesh()
        .max_light_lines(2)
        .x_labels(0)
        .y_labels(8)
        .x_desc(axis)
        .y_desc(vertical.unit)
        .y_label_formatter(&vertical.number);
    styled(&mut mesh).draw()?;
    let (left, above) = area.get_base_pixel();
    let at = |threads, value: f64| (position(threads), value.max(vertical.least));
    // Bands first: no band hides another curve.
    for curve in curves {
        let points = curve.points.iter();
        let upper = points.clone().map(|(&x, &[_, _, high])| at(x, high));
        let lower = points.rev().map(|(&x, &[_, low, _])| at(x, low));
        let outline: Vec<_> = upper.chain(lower).collect();
        let fill = curve
            .look
            .colour
            .mix(if curve.look.thick { 0.14 } else { 0.06 });
        chart.draw_series([Polygon::new(outline, fill.filled())])?;
    }
    for Curve {
        look,
        points,
        compared,
        ..
    } in curves
    {
        let medians = points.iter().map(|(&x, &[median, ..])| at(x, median));
        chart.draw_series(LineSeries::new(medians.clone(), look.line()))?;
        for point in medians {
            let (x, y) = chart.backend_coord(&point);
            look.mark(area, (x - left, y - above), 0.8)?;
        }
        for &(threads, value) in compared {
            let (x, y) = chart.backend_coord(&at(threads, value));
            ring(area, (x - left, y - above), look.colour)?;
        }
    }
    let bottom = area.dim_in_pixel().1 as i32 - X_LABELS as i32;
    let place = |threads| chart.backend_coord(&at(threads, 0.0)).0 - left;
    let places = threads.iter().map(|&threads| (threads, place(threads)));
    for (threads, x) in labelled(&places.collect::<Vec<_>>()) {
        let style = text(13).pos(Pos::new(HPos::Center, VPos::Top));
        area.draw(&Text::new(label(threads), (x, bottom + 6), style))?;
    }
    Ok(())
}

impl Look {
    pub fn line(self) -> ShapeStyle {
        self.colour.stroke_width(if self.thick { 3 } else { 1 })
    }

    /// Marks a point given in pixels; `scale` enlarges the mark.
    pub fn mark(self, area: &Area, at: (i32, i32), scale: f64) -> Drawn {
        let style = self.colour.filled();
        if self.thick {
            area.draw(&Circle::new(at, (5.0 * scale).round() as i32, style))?;
        } else {
            let half = (3.5 * scale).round() as i32;
            let corners = [(at.0 - half, at.1 - half), (at.0 + half, at.1 + half)];
            area.draw(&Rectangle::new(corners, style))?;
        }
        Ok(())
    }

    /// Draws an entry of a legend, and returns how wide it is.
    pub fn explain(
        self,
        area: &Area,
        name: &str,
        (x, y): (i32, i32),
    ) -> Result<i32, Box<dyn std::error::Error>> {
        area.draw(&PathElement::new(vec![(x, y), (x + 26, y)], self.line()))?;
        self.mark(area, (x + 13, y), 0.8)?;
        area.draw(&Text::new(name.to_owned(), (x + 32, y - 7), text(14)))?;
        Ok(32 + area.estimate_text_size(name, &text(14))?.0 as i32)
    }
}

fn draw_legend(area: &Area, curves: &[Curve]) -> Drawn {
    let mut x = 78;
    let y = LEGEND_HEIGHT as i32 / 2;
    for curve in curves {
        x += curve.look.explain(area, &curve.name, (x, y))? + 20;
    }
    if let Some(curve) = curves.iter().find(|curve| !curve.compared.is_empty()) {
        ring(area, (x + 8, y), curve.look.colour)?;
        area.draw(&Text::new("published", (x + 20, y - 7), text(14)))?;
    }
    Ok(())
}

fn ring(area: &Area, at: (i32, i32), colour: RGBColor) -> Drawn {
    area.draw(&Circle::new(at, 6, WHITE.mix(0.6).filled()))?;
    area.draw(&Circle::new(at, 6, colour.stroke_width(2)))?;
    Ok(())
}

/// The `places` that get a label: the last, the first, powers of two, and as many others as fit in
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
