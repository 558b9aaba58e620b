//! `grid`: work under the lock, private work and cache lines touched under the lock, in many
//! combinations. A cell is a workload of its own.
//!
//! The *core* has short sections, in every combination. The *wide* cells go on from there: long
//! sections, sections of very different length, holders that sleep, and locks that are rarely
//! found taken.

use serde::Serialize;
use std::sync::OnceLock;

/// Work under the lock in the core, in nanoseconds, without the time to touch the lines.
const SECTIONS: [u32; 5] = [0, 100, 400, 2_000, 20_000];
/// Work between two sections in the core, in nanoseconds.
const PRIVATE: [u32; 4] = [0, 100, 1_000, 10_000];
/// Cache lines that are read and written in a section of the core.
const LINES: [u32; 3] = [2, 16, 128];
/// Work between two sections in the wide cells, in nanoseconds.
const WIDE_PRIVATE: [u32; 4] = [0, 10_000, 100_000, 1_000_000];
/// Cache lines that are read and written in a section of the wide cells.
const WIDE_LINES: u32 = 2;

/// How a section's length is distributed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Length {
    /// All sections are equally long.
    #[default]
    Constant,
    /// Exponential: most are shorter than the mean, and one in 150 is five times as long or longer.
    Exponential,
    /// All sections are equally long, and threads sleep in them instead of computing.
    Asleep,
}

/// The sections of the wide cells: their length, the values of [`WIDE_PRIVATE`] that they are
/// combined with, and the private work of the quick cell, if one of these cells is quick.
const WIDE: [(Length, u32, &[u32], Option<u32>); 9] = {
    use Length::{Asleep, Constant, Exponential};
    const SOME: &[u32] = &[10_000, 100_000];
    const RARE: &[u32] = &[100_000, 1_000_000];
    const BUT_NONE: &[u32] = &[10_000, 100_000, 1_000_000];
    [
        (Exponential, 2_000, SOME, Some(10_000)),
        (Constant, 20_000, RARE, None),
        (Exponential, 20_000, SOME, Some(100_000)),
        (Constant, 50_000, &WIDE_PRIVATE, Some(100_000)),
        (Exponential, 50_000, &WIDE_PRIVATE, None),
        (Asleep, 50_000, BUT_NONE, Some(10_000)),
        (Constant, 200_000, &WIDE_PRIVATE, Some(1_000_000)),
        (Exponential, 200_000, &WIDE_PRIVATE, Some(0)),
        (Asleep, 200_000, BUT_NONE, None),
    ]
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Part {
    /// Sections of up to 20 us, in every combination.
    Core,
    /// All other cells.
    Wide,
}

impl Part {
    pub const ALL: [Part; 2] = [Part::Core, Part::Wide];

    pub fn name(self) -> &'static str {
        match self {
            Self::Core => "core",
            Self::Wide => "wide",
        }
    }

    /// The numbers of threads that this part is meant for. The core: few, some, and more than a
    /// socket has cores. The wide cells: few, some, and more than small machines have CPUs.
    pub fn threads(self) -> [usize; 3] {
        match self {
            Self::Core => [2, 16, 64],
            Self::Wide => [2, 4, 16],
        }
    }

    /// The names of its rows: work under the lock.
    pub fn rows(self) -> Vec<String> {
        match self {
            Self::Core => SECTIONS.map(short).to_vec(),
            Self::Wide => WIDE.map(|(length, ns, ..)| section(length, ns)).to_vec(),
        }
    }

    /// The names of its columns: private work.
    pub fn columns(self) -> Vec<String> {
        match self {
            Self::Core => PRIVATE.map(short).to_vec(),
            Self::Wide => WIDE_PRIVATE.map(short).to_vec(),
        }
    }

    /// Its numbers of cache lines.
    pub fn lines(self) -> &'static [u32] {
        match self {
            Self::Core => &LINES,
            Self::Wide => &[WIDE_LINES],
        }
    }
}

/// The parts of the grid that a name on the command line stands for: `grid`, `grid-core`,
/// `grid-wide`.
pub fn parts(name: &str) -> Option<&'static [Part]> {
    match name {
        "grid" => Some(&Part::ALL),
        "grid-core" => Some(&[Part::Core]),
        "grid-wide" => Some(&[Part::Wide]),
        _ => None,
    }
}

/// One combination of section, private work and cache lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Cell {
    /// The mean length of a section, without the time to touch the lines.
    pub section_ns: u32,
    /// The distribution of the length.
    pub length: Length,
    /// Work between two sections, on average.
    pub private_ns: u32,
    /// Cache lines touched under the lock.
    pub lines: u32,
}

struct Known {
    cell: Cell,
    /// `grid:400ns/100ns/16`.
    name: String,
    part: Part,
    /// Its places on the axes of its part: section, private work, lines.
    places: [usize; 3],
    is_quick: bool,
}

fn all() -> &'static [Known] {
    static ALL: OnceLock<Vec<Known>> = OnceLock::new();
    ALL.get_or_init(|| {
        let mut all = Vec::new();
        for (s, section_ns) in SECTIONS.into_iter().enumerate() {
            for (p, private_ns) in PRIVATE.into_iter().enumerate() {
                for (l, lines) in LINES.into_iter().enumerate() {
                    let cell = Cell {
                        section_ns,
                        length: Length::Constant,
                        private_ns,
                        lines,
                    };
                    // Each pair of private work and lines has one section that is quick.
                    let is_quick = (s + p + 2 * l) % SECTIONS.len() == 1;
                    all.push(cell.known_as(Part::Core, [s, p, l], is_quick));
                }
            }
        }
        for (s, (length, section_ns, private, quick)) in WIDE.into_iter().enumerate() {
            for (p, private_ns) in WIDE_PRIVATE.into_iter().enumerate() {
                let cell = Cell {
                    section_ns,
                    length,
                    private_ns,
                    lines: WIDE_LINES,
                };
                if private.contains(&private_ns) {
                    let is_quick = quick == Some(private_ns);
                    all.push(cell.known_as(Part::Wide, [s, p, 0], is_quick));
                }
            }
        }
        all
    })
}

/// `0`, `400ns`, `20us`, `1ms`.
fn short(ns: u32) -> String {
    match ns {
        0 => "0".to_owned(),
        ns if ns < 1_000 => format!("{ns}ns"),
        ns if ns < 1_000_000 => format!("{}us", ns / 1_000),
        ns => format!("{}ms", ns / 1_000_000),
    }
}

/// `400ns`, `50us-exp`, `50us-sleep`.
fn section(length: Length, ns: u32) -> String {
    let ending = match length {
        Length::Constant => "",
        Length::Exponential => "-exp",
        Length::Asleep => "-sleep",
    };
    short(ns) + ending
}

impl Cell {
    /// All cells of these parts. With `quick` a fifth of them, always the same ones, which contain
    /// every length, private work and number of lines.
    pub fn chosen(parts: &[Part], quick: bool) -> Vec<Self> {
        let known = all().iter().filter(|known| parts.contains(&known.part));
        let known = known.filter(|known| !quick || known.is_quick);
        known.map(|known| known.cell).collect()
    }

    pub fn part(self) -> Part {
        self.known().part
    }

    /// Its places on the axes of its part: section, private work, lines.
    pub fn places(self) -> [usize; 3] {
        self.known().places
    }

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        &self.known().name
    }

    pub fn find(name: &str) -> Option<Self> {
        let known = all().iter().find(|known| known.name == name)?;
        Some(known.cell)
    }

    fn known(self) -> &'static Known {
        let mut known = all().iter();
        let known = known.find(|known| known.cell == self);
        known.expect("only cells of the grid are made")
    }

    fn known_as(self, part: Part, places: [usize; 3], is_quick: bool) -> Known {
        let (section, private) = (
            section(self.length, self.section_ns),
            short(self.private_ns),
        );
        Known {
            cell: self,
            name: format!("grid:{section}/{private}/{}", self.lines),
            part,
            places,
            is_quick,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cell_has_a_name_of_its_own() {
        let cells = Cell::chosen(&Part::ALL, false);
        assert_eq!(cells.len(), 88);
        for &cell in &cells {
            assert_eq!(Cell::find(cell.name()), Some(cell));
        }
        let names: Vec<_> = cells.iter().map(|cell| cell.name()).collect();
        assert_eq!((names[0], names[59]), ("grid:0/0/2", "grid:20us/10us/128"));
        assert_eq!(
            (names[60], names[87]),
            ("grid:2us-exp/10us/2", "grid:200us-sleep/1ms/2")
        );
        for name in [
            "grid:400ns/100ns/16",
            "grid:50us/100us/2",
            "grid:20us/1ms/2",
        ] {
            assert!(names.contains(&name), "{name}");
        }
        for name in [
            "grid:400/100/16",
            "grid:50us/100us/16",
            "grid:50us-sleep/0/2",
        ] {
            assert_eq!(Cell::find(name), None);
        }
    }

    #[test]
    fn the_parts_make_up_the_grid() {
        let count = |name, quick| Cell::chosen(parts(name).unwrap(), quick).len();
        let names = ["grid", "grid-core", "grid-wide"];
        assert_eq!(names.map(|name| count(name, false)), [88, 60, 28]);
        assert_eq!(names.map(|name| count(name, true)), [18, 12, 6]);
        assert_eq!(parts("grid:0/0/2"), None);
        for part in Part::ALL {
            let cells = Cell::chosen(&[part], false);
            assert!(cells.iter().all(|cell| cell.part() == part));
            let mut places: Vec<_> = cells.iter().map(|cell| cell.places()).collect();
            let axes = [part.rows(), part.columns()];
            assert!(
                places
                    .iter()
                    .all(|p| p[0] < axes[0].len() && p[1] < axes[1].len())
            );
            for cell in &cells {
                let [row, column, lines] = cell.places();
                let named = format!("grid:{}/{}/", axes[0][row], axes[1][column]);
                assert_eq!(cell.name(), format!("{named}{}", part.lines()[lines]));
            }
            places.sort_unstable();
            places.dedup();
            assert_eq!(places.len(), cells.len());
        }
    }

    #[test]
    fn the_quick_cells_of_a_part_have_a_bit_of_everything() {
        for part in Part::ALL {
            let quick = Cell::chosen(&[part], true);
            for cell in Cell::chosen(&[part], false) {
                let has = |same: fn(&Cell, &Cell) -> bool| quick.iter().any(|q| same(q, &cell));
                assert!(has(|a, b| a.section_ns == b.section_ns), "{cell:?}");
                assert!(has(|a, b| a.length == b.length), "{cell:?}");
                assert!(has(|a, b| a.private_ns == b.private_ns), "{cell:?}");
                assert!(has(|a, b| a.lines == b.lines), "{cell:?}");
            }
        }
    }
}
