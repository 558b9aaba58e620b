//! Pictures, drawn as SVG; a PNG is that SVG rendered with a font that is part of the command.

pub mod bars;
pub mod curves;
pub mod heat;

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, anyhow, bail};
use plotters::chart::MeshStyle;
use plotters::coord::Shift;
use plotters::coord::ranged1d::Ranged;
use plotters::prelude::*;
use plotters::style::register_font;
use resvg::{tiny_skia, usvg};

/// A part of a picture.
pub type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
/// Whether something could be drawn.
pub type Drawn = Result<(), Box<dyn std::error::Error>>;

const FONT: &[u8] = epaint_default_fonts::UBUNTU_LIGHT;
/// What the font calls itself.
const FONT_FAMILY: &str = "Ubuntu";
/// Pixels of a PNG per unit of the SVG: legible on dense screens and in print.
const PNG_SCALE: f32 = 1.5;

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

/// The format of a picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// SVG.
    Svg,
    /// PNG.
    Png,
}

impl Format {
    /// The format that the name of a file asks for.
    ///
    /// # Errors
    /// If it ends in neither .svg nor .png.
    pub fn of(path: &Path) -> anyhow::Result<Self> {
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("svg") => Ok(Self::Svg),
            Some("png") => Ok(Self::Png),
            _ => bail!(
                "--plot {}: the name has to end in .svg or .png",
                path.display()
            ),
        }
    }
}

/// Draws a picture of that width and height on white and writes it.
///
/// # Errors
/// As the writer has them, or if the picture cannot be drawn.
pub fn write(
    format: Format,
    size: (u32, u32),
    out: &mut dyn Write,
    draw: impl FnOnce(&Area) -> Drawn,
) -> anyhow::Result<()> {
    let svg = svg(size, draw)?;
    match format {
        Format::Svg => out.write_all(svg.as_bytes())?,
        Format::Png => out.write_all(&png(&svg)?)?,
    }
    Ok(())
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

/// The lines and texts of a chart's axes, the same in all charts.
pub fn styled<'a, 'b, 'c, X: Ranged, Y: Ranged>(
    mesh: &'c mut MeshStyle<'a, 'b, X, Y, SVGBackend<'a>>,
) -> &'c mut MeshStyle<'a, 'b, X, Y, SVGBackend<'a>> {
    mesh.light_line_style(RGBColor(245, 245, 245))
        .bold_line_style(RGBColor(225, 225, 225))
        .label_style(text(13))
        .axis_desc_style(text(14))
}

fn svg(size: (u32, u32), draw: impl FnOnce(&Area) -> Drawn) -> anyhow::Result<String> {
    register_font("sans-serif", FontStyle::Normal, FONT)
        .map_err(|_| anyhow!("the font is damaged"))?;
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

fn png(svg: &str) -> anyhow::Result<Vec<u8>> {
    let mut fonts = usvg::fontdb::Database::new();
    fonts.load_font_data(FONT.to_vec());
    fonts.set_sans_serif_family(FONT_FAMILY);
    let options = usvg::Options {
        fontdb: Arc::new(fonts),
        ..usvg::Options::default()
    };
    let tree = usvg::Tree::from_str(svg, &options)?;
    let size = tree.size();
    let pixels = |length: f32| (length * PNG_SCALE).ceil() as u32;
    let mut image = tiny_skia::Pixmap::new(pixels(size.width()), pixels(size.height()))
        .context("the picture is too large")?;
    let scale = tiny_skia::Transform::from_scale(PNG_SCALE, PNG_SCALE);
    resvg::render(&tree, scale, &mut image.as_mut());
    Ok(image.encode_png()?)
}
