//! Bars of times, each with the range of its rounds and its numbers: longer is slower.

use kinlock_measure::stats::Summary;
use plotters::prelude::*;

use super::{Area, Drawn, text};
use crate::report::units::time;

#[derive(Clone, Debug)]
pub struct Bar {
    /// The text at its left.
    pub name: String,
    pub colour: RGBColor,
    /// What it shows, in nanoseconds.
    pub nanos: Summary,
}

const BAR: u32 = 22;
const HEADING: u32 = 36;
/// Below the last bar.
const ROOM: u32 = 24;
/// Width of the numbers behind the longest bar.
const NUMBERS: i32 = 170;

/// The height of a group of `bars` bars.
pub fn height(bars: usize) -> u32 {
    HEADING + BAR * bars as u32 + ROOM
}

/// Draws a group of bars under a heading, with room for their names that is `names` pixels wide.
/// The longest bar takes the width there is.
pub fn draw(area: &Area, heading: &str, names: i32, bars: &[Bar]) -> Drawn {
    area.draw(&Text::new(heading.to_owned(), (14, 12), text(15)))?;
    let longest = bars.iter().map(|bar| bar.nanos.median).fold(0.0, f64::max);
    let room = f64::from(area.dim_in_pixel().0 as i32 - names - NUMBERS);
    let end = |nanos: f64| names + (nanos.min(longest) / longest * room) as i32;
    for (index, bar) in bars.iter().enumerate() {
        let y = (HEADING + BAR * index as u32) as i32;
        let Summary { median, min, max } = bar.nanos;
        area.draw(&Text::new(bar.name.clone(), (14, y + 3), text(13)))?;
        let corners = [
            (names, y + 2),
            (end(median).max(names + 1), y + BAR as i32 - 4),
        ];
        area.draw(&Rectangle::new(corners, bar.colour.filled()))?;
        let middle = y + BAR as i32 / 2 - 1;
        let range = vec![(end(min), middle), (end(max), middle)];
        // Visible on every colour.
        area.draw(&PathElement::new(range.clone(), WHITE.stroke_width(3)))?;
        area.draw(&PathElement::new(range, BLACK.stroke_width(1)))?;
        let behind = (end(max.max(median)) + 8, y + 3);
        area.draw(&Text::new(numbers(bar.nanos), behind, text(13)))?;
    }
    Ok(())
}

/// `26.8 ns (26.3..27.2)`, or each with its unit if they are not the same.
fn numbers(nanos: Summary) -> String {
    let [median, min, max] = [nanos.median, nanos.min, nanos.max].map(time);
    let short = |text: &str| -> Option<String> {
        let (_, unit) = median.split_once(' ')?;
        Some(text.strip_suffix(unit)?.trim_end().to_owned())
    };
    match short(&min).zip(short(&max)) {
        Some((min, max)) => format!("{median} ({min}..{max})"),
        None => format!("{median} ({min}..{max})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_common_unit_stands_once() {
        let of = |[median, min, max]: [f64; 3]| numbers(Summary { median, min, max });
        assert_eq!(of([26.84, 26.3, 101.2]), "26.8 ns (26.3..101)");
        assert_eq!(of([19_000.0, 18_265.0, 19_936.0]), "19.0 us (18.3..19.9)");
        assert_eq!(of([1_500.0, 900.0, 2_000.0]), "1.50 us (900 ns..2.00 us)");
        assert_eq!(of([900.0, 800.0, 2_000.0]), "900 ns (800 ns..2.00 us)");
    }
}
