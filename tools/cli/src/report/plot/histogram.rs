//! Histograms of times, one above the other over one logarithmic axis.

use plotters::prelude::*;

use super::{Area, COLOURS, Drawn, text, tick};
use crate::report::units::{percent, time};

/// The number of times in each class.
#[derive(Clone, Debug)]
pub struct Histogram<'a> {
    pub heading: String,
    /// `[from, to, count]`, with `from` and `to` in nanoseconds, in ascending order.
    pub classes: &'a [[u64; 3]],
}

const WIDTH: u32 = 860;
const HEADING: i32 = 26;
const BARS: i32 = 76;
const AXIS: i32 = 30;
const MARGIN: i32 = 24;
/// Shorter times are drawn as this: a logarithmic axis has no zero.
const SHORTEST: f64 = 16.0;

/// The width and the height of a picture of this number of histograms.
pub fn size(histograms: usize) -> (u32, u32) {
    (WIDTH, (histograms as i32 * (HEADING + BARS) + AXIS) as u32)
}

pub fn draw(area: &Area, histograms: &[Histogram]) -> Drawn {
    let classes = histograms.iter().flat_map(|one| one.classes);
    let ends = classes.clone().map(|&[_, to, _]| to as f64);
    let begins = classes.map(|&[from, ..]| (from as f64).max(SHORTEST));
    let (first, last) = (
        begins.fold(f64::INFINITY, f64::min),
        ends.fold(0.0, f64::max),
    );
    if last <= first {
        return Ok(());
    }
    let width = f64::from(WIDTH as i32 - 2 * MARGIN);
    let place = |ns: f64| {
        let part = (ns.max(SHORTEST) / first).ln() / (last / first).ln();
        MARGIN + (part * width).round() as i32
    };
    let bottom = histograms.len() as i32 * (HEADING + BARS);
    let decades = (0..).map(|power| 10_f64.powi(power));
    for decade in decades
        .take_while(|&ns| ns <= last)
        .filter(|&ns| ns >= first)
    {
        let x = place(decade);
        let label = time(decade).replace(".00 ", " ").replace(".0 ", " ");
        tick(area, x, [HEADING, bottom], label)?;
    }
    for (index, histogram) in histograms.iter().enumerate() {
        let base = (index as i32 + 1) * (HEADING + BARS);
        let counts = histogram.classes.iter().map(|&[.., count]| count);
        let (all, most) = (counts.clone().sum::<u64>(), counts.max().unwrap_or(0));
        let told = format!(
            "{}; the highest bar is {}",
            histogram.heading,
            percent(most as f64 / all.max(1) as f64)
        );
        area.draw(&Text::new(told, (MARGIN, base - BARS - 20), text(13)))?;
        let colour = COLOURS[index % COLOURS.len()];
        for &[from, to, count] in histogram.classes {
            let height = f64::from(BARS) * count as f64 / most.max(1) as f64;
            let (left, right) = (place(from as f64), place(to as f64));
            let corners = [
                (left, base - (height.round() as i32).max(1)),
                ((right - 1).max(left + 1), base),
            ];
            area.draw(&Rectangle::new(corners, colour.filled()))?;
        }
        let ground = vec![(MARGIN, base), (WIDTH as i32 - MARGIN, base)];
        area.draw(&PathElement::new(ground, BLACK.stroke_width(1)))?;
    }
    Ok(())
}
