//! How locks look: ours with thick lines and discs, peers with thin lines and squares, each in a colour of its own.

use plotters::coord::Shift;
use plotters::prelude::*;

use crate::locks::LockName;

/// The font of all pictures.
pub const FONT: &[u8] = epaint_default_fonts::UBUNTU_LIGHT;
/// What the font calls itself.
pub const FONT_FAMILY: &str = "Ubuntu";

/// Colours that can be told apart, also by most people who cannot tell red from green; in the order of the locks.
const COLOURS: &[RGBColor] = &[
    RGBColor(0, 90, 181),
    RGBColor(220, 50, 32),
    RGBColor(230, 140, 0),
    RGBColor(60, 60, 60),
    RGBColor(0, 140, 110),
    RGBColor(150, 90, 200),
    RGBColor(150, 110, 70),
    RGBColor(90, 180, 230),
    RGBColor(160, 160, 160),
    RGBColor(230, 120, 180),
    RGBColor(120, 150, 30),
];

/// The look of one lock.
#[derive(Clone, Copy)]
pub struct Style {
    colour: RGBColor,
    ours: bool,
}

impl Style {
    /// The look of the lock called `name`.
    pub fn of(name: &str) -> Self {
        let place = LockName::ALL.iter().position(|lock| lock.name() == name);
        Self {
            colour: COLOURS[place.unwrap_or(0) % COLOURS.len()],
            ours: place.is_some_and(|place| LockName::ALL[place].is_ours()),
        }
    }

    /// For lines.
    pub fn line(self) -> ShapeStyle {
        self.colour.stroke_width(if self.ours { 3 } else { 1 })
    }

    /// For the band between the slowest and the fastest round.
    pub fn band(self) -> ShapeStyle {
        self.colour
            .mix(if self.ours { 0.14 } else { 0.05 })
            .filled()
    }

    /// Marks a point given in pixels; `scale` enlarges the mark.
    pub fn mark(
        self,
        area: &DrawingArea<SVGBackend, Shift>,
        at: (i32, i32),
        scale: f64,
    ) -> Result<(), Box<dyn std::error::Error>> {
        if self.ours {
            area.draw(&Circle::new(
                at,
                (5.0 * scale).round() as i32,
                self.colour.filled(),
            ))?;
        } else {
            let half = (3.5 * scale).round() as i32;
            let corners = [(at.0 - half, at.1 - half), (at.0 + half, at.1 + half)];
            area.draw(&Rectangle::new(corners, self.colour.filled()))?;
        }
        Ok(())
    }
}

/// Text of the given height.
pub fn text(height: u32) -> TextStyle<'static> {
    ("sans-serif", height)
        .into_font()
        .color(&RGBColor(30, 30, 30))
}

/// Text that explains rather than tells.
pub fn quiet_text(height: u32) -> TextStyle<'static> {
    ("sans-serif", height)
        .into_font()
        .color(&RGBColor(120, 120, 120))
}
