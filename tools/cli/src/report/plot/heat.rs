//! A heat map: ratios in a table, blue where they are good, red where they are bad.

use kinlock_measure::workloads::grid::{Cell, Part};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::{Area, COLOURS, Drawn, quiet_text, text};

/// Ratios by block, row and column. Blocks stand side by side.
type Ratios = Vec<Vec<Vec<Option<f64>>>>;

const CELL: (i32, i32) = (44, 32);
const ROW_NAMES: i32 = 86;
const ABOVE: i32 = 66;
const GAP: i32 = 12;
/// This ratio, and its inverse, have the full colour.
const FULL: f64 = 2.0;

/// The height of a map of a part of the grid.
pub fn grid_height(part: Part) -> u32 {
    (ABOVE + CELL.1 * part.rows().len() as i32 + GAP) as u32
}

/// Draws the values of the cells of one part of the grid, in blocks by lines, rows by sections and
/// columns by private work. Cells of other parts are left out.
pub fn draw_grid(
    area: &Area,
    part: Part,
    heading: &str,
    more_is_better: bool,
    values: impl Iterator<Item = (Cell, f64)>,
) -> Drawn {
    let columns = part.columns();
    let centred = Pos::new(HPos::Center, VPos::Center);
    let write = |text: &str, at, style: TextStyle<'static>| {
        area.draw(&Text::new(text.to_owned(), at, style.pos(centred)))
    };
    area.draw(&Text::new(heading.to_owned(), (14, 4), text(14)))?;
    let middle = |row: usize| ABOVE + CELL.1 * row as i32 + CELL.1 / 2;
    for (row, name) in part.rows().iter().enumerate() {
        write(name, (ROW_NAMES / 2, middle(row)), quiet_text(13))?;
    }
    for (block, rows) in by_place(part, values).iter().enumerate() {
        let width = CELL.0 * columns.len() as i32;
        let left = ROW_NAMES + (width + GAP) * block as i32;
        let about = format!("{} cache lines; private work", part.lines()[block]);
        write(&about, (left + width / 2, 34), text(13))?;
        for (column, name) in columns.iter().enumerate() {
            let x = left + CELL.0 * column as i32 + CELL.0 / 2;
            write(name, (x, 54), quiet_text(13))?;
            for (row, ratios) in rows.iter().enumerate() {
                let y = middle(row);
                let half = (CELL.0 / 2 - 1, CELL.1 / 2 - 1);
                let corners = [(x - half.0, y - half.1), (x + half.0, y + half.1)];
                let (fill, ink) = colours(ratios[column], more_is_better);
                area.draw(&Rectangle::new(corners, fill.filled()))?;
                if let Some(ratio) = ratios[column] {
                    write(&format!("{ratio:.2}"), (x, y), text(13).color(ink))?;
                }
            }
        }
    }
    Ok(())
}

fn by_place(part: Part, values: impl Iterator<Item = (Cell, f64)>) -> Ratios {
    let (rows, columns) = (part.rows().len(), part.columns().len());
    let mut all = vec![vec![vec![None; columns]; rows]; part.lines().len()];
    for (cell, value) in values.filter(|(cell, _)| cell.part() == part) {
        let [section, private, lines] = cell.places();
        all[lines][section][private] = Some(value);
    }
    all
}

/// The colours of a field and of the number in it.
fn colours(ratio: Option<f64>, more_is_better: bool) -> (RGBColor, &'static RGBColor) {
    let Some(ratio) = ratio else {
        return (RGBColor(240, 240, 240), &BLACK);
    };
    let far = (ratio.ln() / FULL.ln()).clamp(-1.0, 1.0);
    let colour = COLOURS[usize::from((far < 0.0) == more_is_better)];
    let mix = |part: u8| 255 - (f64::from(255 - part) * far.abs()).round() as u8;
    let fill = RGBColor(mix(colour.0), mix(colour.1), mix(colour.2));
    (fill, if far.abs() > 0.6 { &WHITE } else { &BLACK })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cell_has_its_place_on_the_map() {
        let cells = Cell::chosen(&Part::ALL, true).into_iter();
        let core = by_place(Part::Core, cells.map(|cell| (cell, cell.section_ns.into())));
        assert_eq!(core.iter().flatten().flatten().flatten().count(), 12);
        // Two lines and no work under the lock: without private work, and with 100 ns of it.
        assert_eq!(core[0][0][..2], [None, Some(0.0)]);
    }

    #[test]
    fn colours_tell_good_from_bad() {
        let (blue, red) = (COLOURS[0], COLOURS[1]);
        assert_eq!(colours(Some(1.0), true).0, WHITE);
        for (ratio, more_is_better, colour) in [
            (2.0, true, blue),
            (0.5, true, red),
            (9.0, false, red),
            (0.1, false, blue),
        ] {
            let (fill, ink) = colours(Some(ratio), more_is_better);
            assert_eq!((fill, ink), (colour, &WHITE), "{ratio}");
        }
        let (fill, ink) = colours(Some(0.9), true);
        assert!(fill.0 > fill.2 && fill.2 > red.2 && ink == &BLACK);
    }
}
