//! Spans of time: a bar for each, over one axis of seconds. The larger the share that is shown, the
//! stronger the colour of the bar.

use plotters::prelude::*;

use super::{Area, COLOURS, Drawn, quiet_text, text, tick};
use crate::report::units::{percent, time};

#[derive(Clone, Debug)]
pub struct Span {
    /// The text at its left.
    pub name: String,
    /// Begin and end, in seconds.
    pub range: [f64; 2],
    /// The share that the colour shows, from 0 to 1.
    pub share: f64,
}

const WIDTH: i32 = 860;
const ROW: i32 = 20;
const NAMES: i32 = 170;
const NUMBERS: i32 = 60;
const AXIS: i32 = 30;
/// How many parts the axis is divided into.
const PARTS: i32 = 4;

/// The width and the height of a picture of this number of bars.
pub fn size(spans: usize) -> (u32, u32) {
    (WIDTH as u32, (spans as i32 * ROW + AXIS + 8) as u32)
}

/// Draws the spans over an axis that ends after this number of seconds.
pub fn draw(area: &Area, spans: &[Span], seconds: f64) -> Drawn {
    let width = f64::from(WIDTH - NAMES - NUMBERS);
    let place = |at: f64| NAMES + (width * (at / seconds).clamp(0.0, 1.0)).round() as i32;
    let bottom = spans.len() as i32 * ROW + 4;
    for part in 0..=PARTS {
        let at = seconds * f64::from(part) / f64::from(PARTS);
        let label = if part == 0 {
            "0".to_owned()
        } else {
            time(1e9 * at)
        };
        tick(area, place(at), [0, bottom], label)?;
    }
    for (index, span) in spans.iter().enumerate() {
        let y = index as i32 * ROW + 4;
        let name: String = span.name.chars().take(22).collect();
        area.draw(&Text::new(name, (14, y), text(13)))?;
        let [from, to] = span.range.map(place);
        let corners = [(from, y), (to.max(from + 1), y + ROW - 6)];
        let colour = COLOURS[0].mix(0.15 + 0.85 * span.share.clamp(0.0, 1.0));
        area.draw(&Rectangle::new(corners, colour.filled()))?;
        let style = quiet_text(13);
        let at = (WIDTH - NUMBERS + 8, y);
        area.draw(&Text::new(percent(span.share), at, style))?;
    }
    Ok(())
}
