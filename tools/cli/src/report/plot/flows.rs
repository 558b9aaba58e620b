//! Flows in two steps: from sources to nodes in the middle, and from there to ends. The width of a
//! flow is proportional to the quantity that it shows.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::{Area, COLOURS, Drawn, quiet_text, text};

/// What flows from where to where.
#[derive(Clone, Debug, Default)]
pub struct Flows {
    /// The headings of the three columns.
    pub headings: [String; 3],
    /// The names of sources, of nodes in the middle, and of ends, from top to bottom.
    pub names: [Vec<String>; 3],
    /// Flows from a source to a node in the middle: their indices, and the quantity.
    pub first: Vec<(usize, usize, f64)>,
    /// Flows from a node in the middle to an end, likewise.
    pub second: Vec<(usize, usize, f64)>,
}

const WIDTH: i32 = 1000;
const HEADINGS: i32 = 34;
/// The height of all flows together.
const FLOWS: f64 = 260.0;
/// Pixels between two nodes, so that even the thinnest has room for its name.
const GAP: f64 = 18.0;
const THINNEST: f64 = 3.0;
const BELOW: i32 = 14;
/// Where nodes begin, and how wide they are.
const LEFT: [i32; 3] = [300, 470, 700];
const NODE: i32 = 12;
/// The most characters of a name.
const NAMES: [usize; 3] = [40, 24, 40];
/// Points of a flow's edge.
const STEPS: i32 = 16;

/// A node: its extent, and how much of its height is taken by flows from the left and to the right.
#[derive(Clone, Copy)]
struct Node {
    top: f64,
    height: f64,
    taken: [f64; 2],
}

impl Flows {
    pub fn size(&self) -> (u32, u32) {
        let (columns, _) = self.nodes();
        let ends = columns.iter().flatten().map(|node| node.top + node.height);
        let lowest = ends.fold(0.0, f64::max);
        (WIDTH as u32, (lowest as i32 + BELOW).max(HEADINGS) as u32)
    }

    /// The nodes of the columns, and the height of a flow of 1. A node is as high as the larger of
    /// its inflow and its outflow.
    fn nodes(&self) -> ([Vec<Node>; 3], f64) {
        let mut sums = self
            .names
            .each_ref()
            .map(|names| vec![[0.0; 2]; names.len()]);
        for (step, flows) in [&self.first, &self.second].into_iter().enumerate() {
            for &(from, to, much) in flows {
                sums[step][from][1] += much;
                sums[step + 1][to][0] += much;
            }
        }
        let through = sums.map(|column| column.into_iter().map(|[to, from]| to.max(from)));
        let of_columns = through.clone().map(|column| column.sum());
        let scale = FLOWS / of_columns.into_iter().fold(f64::MIN_POSITIVE, f64::max);
        let nodes = through.map(|column| {
            let mut top = f64::from(HEADINGS) + 6.0;
            let nodes = column.map(|much| {
                let height = (scale * much).max(THINNEST);
                let own = Node {
                    top,
                    height,
                    taken: [0.0; 2],
                };
                top += height + GAP;
                own
            });
            nodes.collect()
        });
        (nodes, scale)
    }

    pub fn draw(&self, area: &Area) -> Drawn {
        let (mut nodes, scale) = self.nodes();
        for (step, flows) in [&self.first, &self.second].into_iter().enumerate() {
            for &(from, to, much) in flows {
                let height = scale * much;
                let middle = if step == 0 { to } else { from };
                let colour = COLOURS[middle % COLOURS.len()];
                let mut edge = |column: usize, node: usize, side: usize| {
                    let node = &mut nodes[column][node];
                    let top = node.top + node.taken[side];
                    node.taken[side] += height;
                    top
                };
                let begin = (LEFT[step] + NODE, edge(step, from, 1));
                let end = (LEFT[step + 1], edge(step + 1, to, 0));
                let outline = ribbon(begin, end, height.max(1.0));
                area.draw(&Polygon::new(outline, colour.mix(0.35).filled()))?;
            }
        }
        for (column, nodes) in nodes.iter().enumerate() {
            let x = LEFT[column];
            // Sources have their names on the left, all other nodes on the right.
            let (at, side) = match column {
                0 => (x - 6, HPos::Right),
                _ => (x + NODE + 6, HPos::Left),
            };
            let heading = quiet_text(13).pos(Pos::new(side, VPos::Top));
            area.draw(&Text::new(self.headings[column].clone(), (at, 8), heading))?;
            for (index, node) in nodes.iter().enumerate() {
                let colour = match column {
                    1 => COLOURS[index % COLOURS.len()],
                    _ => RGBColor(120, 120, 120),
                };
                let corners = [
                    (x, node.top as i32),
                    (x + NODE, (node.top + node.height).ceil() as i32),
                ];
                area.draw(&Rectangle::new(corners, colour.filled()))?;
                let name = cut(&self.names[column][index], NAMES[column]);
                let middle = (node.top + node.height / 2.0) as i32;
                let style = text(13).pos(Pos::new(side, VPos::Center));
                area.draw(&Text::new(name, (at, middle), style))?;
            }
        }
        Ok(())
    }
}

/// The outline of a flow between two points, of this height.
fn ribbon(begin: (i32, f64), end: (i32, f64), height: f64) -> Vec<(i32, i32)> {
    let edge = |below: f64| {
        (0..=STEPS).map(move |step| {
            let part = f64::from(step) / f64::from(STEPS);
            let curve = part * part * (3.0 - 2.0 * part);
            let x = f64::from(begin.0) + part * f64::from(end.0 - begin.0);
            let y = begin.1 + curve * (end.1 - begin.1) + below;
            (x.round() as i32, y.round() as i32)
        })
    };
    let upper: Vec<_> = edge(0.0).collect();
    let lower: Vec<_> = edge(height).collect();
    upper.into_iter().chain(lower.into_iter().rev()).collect()
}

/// A text, cut to this number of characters.
fn cut(text: &str, most: usize) -> String {
    match text.chars().count() > most {
        true => text.chars().take(most - 1).chain(['…']).collect(),
        false => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_as_high_as_what_goes_through_them() {
        let names = |count: usize| vec!["name".to_owned(); count];
        let flows = Flows {
            names: [names(2), names(1), names(1)],
            first: vec![(0, 0, 3.0), (1, 0, 1.0)],
            second: vec![(0, 0, 2.0)],
            ..Flows::default()
        };
        let heights = flows.nodes().0.map(|column| {
            let heights = column.iter().map(|node| node.height.round());
            heights.collect::<Vec<_>>()
        });
        assert_eq!(heights, [vec![195.0, 65.0], vec![260.0], vec![130.0]]);
        let (_, height) = flows.size();
        assert_eq!(height as i32, HEADINGS + 6 + 195 + 18 + 65 + BELOW);
    }
}
