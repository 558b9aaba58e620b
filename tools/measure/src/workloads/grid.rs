//! `grid`: work under the lock, private work and cache lines touched under the lock, in every
//! combination. A cell is a workload of its own.

use serde::Serialize;
use std::sync::OnceLock;

/// Work under the lock, in nanoseconds, besides touching the lines.
pub const SECTIONS: [u32; 5] = [0, 100, 400, 2_000, 20_000];
/// Work between two sections, in nanoseconds.
pub const PRIVATE: [u32; 4] = [0, 100, 1_000, 10_000];
/// Cache lines that are read and written in a section.
pub const LINES: [u32; 3] = [2, 16, 128];
/// The numbers of threads that it is meant for: few, some, and more than a socket has cores.
pub const THREADS: [usize; 3] = [2, 16, 64];

/// One combination.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Cell {
    /// Work under the lock.
    pub section_ns: u32,
    /// Work between two sections.
    pub private_ns: u32,
    /// Cache lines touched under the lock.
    pub lines: u32,
}

/// All cells with their names, `grid:400ns/100ns/16`.
fn all() -> &'static [(Cell, String)] {
    static ALL: OnceLock<Vec<(Cell, String)>> = OnceLock::new();
    ALL.get_or_init(|| {
        let pairs = SECTIONS.into_iter().flat_map(|s| PRIVATE.map(|p| (s, p)));
        let cells = pairs.flat_map(|(section_ns, private_ns)| {
            LINES.map(|lines| Cell {
                section_ns,
                private_ns,
                lines,
            })
        });
        let named = |cell: Cell| {
            let (section, private) = (short(cell.section_ns), short(cell.private_ns));
            (cell, format!("grid:{section}/{private}/{}", cell.lines))
        };
        cells.map(named).collect()
    })
}

/// `0`, `400ns`, `20us`.
pub fn short(ns: u32) -> String {
    match ns {
        0 => "0".to_owned(),
        ns if ns < 1_000 => format!("{ns}ns"),
        ns => format!("{}us", ns / 1_000),
    }
}

impl Cell {
    /// All cells. With `quick` a fifth of them, always the same ones, in which each value of each
    /// axis occurs several times.
    pub fn chosen(quick: bool) -> Vec<Self> {
        let cells = all().iter().map(|(cell, _)| *cell);
        cells.filter(|cell| !quick || cell.is_quick()).collect()
    }

    /// Its places on the axes: section, private work, lines.
    pub fn places(self) -> [usize; 3] {
        let at = |axis: &[u32], value| axis.iter().position(|&v| v == value);
        let places = [
            at(&SECTIONS, self.section_ns),
            at(&PRIVATE, self.private_ns),
            at(&LINES, self.lines),
        ];
        places.map(|place| place.expect("all cells are made from the axes"))
    }

    /// Picks one section for each pair of private work and lines.
    fn is_quick(self) -> bool {
        let [section, private, lines] = self.places();
        (section + private + 2 * lines) % SECTIONS.len() == 1
    }

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        let [section, private, lines] = self.places();
        &all()[(section * PRIVATE.len() + private) * LINES.len() + lines].1
    }

    /// The cell called `name`.
    pub fn find(name: &str) -> Option<Self> {
        let (cell, _) = all().iter().find(|(_, known)| known == name)?;
        Some(*cell)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_combination_has_a_name_of_its_own() {
        let cells = Cell::chosen(false);
        assert_eq!(cells.len(), 60);
        for &cell in &cells {
            assert_eq!(Cell::find(cell.name()), Some(cell));
        }
        let names: Vec<_> = cells.iter().map(|cell| cell.name()).collect();
        assert_eq!((names[0], names[59]), ("grid:0/0/2", "grid:20us/10us/128"));
        assert!(names.contains(&"grid:400ns/100ns/16"));
        assert_eq!(Cell::find("grid:400/100/16"), None);
    }

    #[test]
    fn the_quick_cells_are_well_spread() {
        let quick = Cell::chosen(true);
        assert_eq!(quick.len(), 12);
        let count = |of: &dyn Fn(&Cell) -> bool| quick.iter().filter(|cell| of(cell)).count();
        for value in SECTIONS {
            assert!(count(&|cell| cell.section_ns == value) >= 2, "{value}");
        }
        for value in PRIVATE {
            assert_eq!(count(&|cell| cell.private_ns == value), 3);
        }
        for value in LINES {
            assert_eq!(count(&|cell| cell.lines == value), 4);
        }
        // Short sections with some private work are where locks differ most.
        assert!(quick.iter().any(|cell| cell.name() == "grid:0/100ns/2"));
    }
}
