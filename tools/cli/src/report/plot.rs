//! Pictures, drawn as SVG. Text is text in a generic font family, so that no font is part of the
//! commands. Both commands draw with this module alone.

pub mod bars;
pub mod curves;
pub mod flows;
pub mod heat;
pub mod histogram;
pub mod spans;

use std::io::Write;
use std::path::Path;

use anyhow::{anyhow, bail};
use plotters::chart::MeshStyle;
use plotters::coord::Shift;
use plotters::coord::ranged1d::Ranged;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// What pictures are made of.
pub mod elements {
    pub use plotters::element::{Circle, PathElement, Polygon, Rectangle, Text};
    pub use plotters::prelude::{IntoFont, RGBColor, WHITE};
    pub use plotters::style::Color;
}

pub type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
/// Whether something could be drawn.
pub type Drawn = Result<(), Box<dyn std::error::Error>>;

/// Colours that can be told apart, also by most people who cannot tell red from green.
pub const COLOURS: &[RGBColor] = &[
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
    RGBColor(110, 0, 70),
];

/// Colours of plain text and of secondary text: both are easy to read on a white ground.
const INK: RGBColor = RGBColor(30, 30, 30);
const QUIET: RGBColor = RGBColor(95, 99, 104);
/// The lines of a chart's axes.
const LIGHT_LINES: RGBColor = RGBColor(245, 245, 245);
const BOLD_LINES: RGBColor = RGBColor(225, 225, 225);

/// Whether a picture can be written to a file of this name.
pub fn check_name(path: &Path) -> anyhow::Result<()> {
    if path.extension().is_some_and(|extension| extension == "svg") {
        return Ok(());
    }
    bail!(
        "--plot {}: pictures are SVG: the name has to end in .svg",
        path.display()
    )
}

/// Draws a picture of that width and height on white and writes it.
pub fn write(
    size: (u32, u32),
    out: &mut dyn Write,
    draw: impl FnOnce(&Area) -> Drawn,
) -> anyhow::Result<()> {
    out.write_all(svg(size, draw)?.as_bytes())?;
    Ok(())
}

/// Draws a picture of that width and height on white and returns it as text.
pub fn svg(size: (u32, u32), draw: impl FnOnce(&Area) -> Drawn) -> anyhow::Result<String> {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        let drawn = area.fill(&WHITE).map_err(Into::into);
        drawn
            .and_then(|()| draw(&area))
            .map_err(|error| anyhow!("cannot draw: {error}"))?;
        area.present()?;
    }
    Ok(svg)
}

pub fn text(height: u32) -> TextStyle<'static> {
    ("sans-serif", height).into_font().color(&INK)
}

/// The style of secondary text.
pub fn quiet_text(height: u32) -> TextStyle<'static> {
    ("sans-serif", height).into_font().color(&QUIET)
}

/// The lines and texts of a chart's axes, the same in all charts.
pub fn styled<'a, 'b, 'c, X: Ranged, Y: Ranged>(
    mesh: &'c mut MeshStyle<'a, 'b, X, Y, SVGBackend<'a>>,
) -> &'c mut MeshStyle<'a, 'b, X, Y, SVGBackend<'a>> {
    mesh.light_line_style(LIGHT_LINES)
        .bold_line_style(BOLD_LINES)
        .label_style(text(13))
        .axis_desc_style(text(14))
}

/// A vertical line at `x`, with a label below it.
fn tick(area: &Area, x: i32, [top, bottom]: [i32; 2], label: String) -> Drawn {
    let line = vec![(x, top), (x, bottom)];
    area.draw(&PathElement::new(line, BOLD_LINES.stroke_width(1)))?;
    let style = quiet_text(13).pos(Pos::new(HPos::Center, VPos::Top));
    area.draw(&Text::new(label, (x, bottom + 6), style))?;
    Ok(())
}
