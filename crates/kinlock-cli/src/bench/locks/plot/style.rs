//! The style of locks: ours with thick lines and discs, peers with thin lines and squares, each in
//! a colour of its own.

use plotters::coord::Shift;
use plotters::prelude::*;

use crate::args::Named;
use crate::bench::locks::contenders::LockName;
use crate::bench::locks::flags::is_ours;
use crate::report::plot::COLOURS;

/// The look of one lock.
#[derive(Clone, Copy)]
pub struct Style {
    colour: RGBColor,
    ours: bool,
}

impl Style {
    /// The look of the lock called `name`.
    pub fn of(name: &str) -> Self {
        let place = LockName::all()
            .into_iter()
            .position(|lock| lock.name() == name);
        Self {
            colour: COLOURS[place.unwrap_or(0) % COLOURS.len()],
            ours: is_ours(name),
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
