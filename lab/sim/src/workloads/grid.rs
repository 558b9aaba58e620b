//! `grid`: work under the lock, private work and cache lines touched under the lock, in every
//! combination. A cell is a workload of its own. The benchmark runs the same cells on hardware.

use super::cid::OVERLAP;
use super::{Body, Constant, Kind, Metered, Prepare, none, work};
use crate::platform::{SimU64, compute, place_slice};
use crate::world::{self, Placement, with};
use kinlock_core::platform::Atomic;
use serde::Serialize;
use std::rc::Rc;
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
    /// All of them, or a fifth: always the same, with each value of each axis in several.
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

    /// One section for each pair of the other two.
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

    /// It as a workload. Threads are spread over the sockets, as a scheduler does with few.
    pub fn workload(self) -> Kind {
        Kind {
            name: self.name(),
            about: "work under the lock / private work / cache lines touched under the lock",
            placement: Placement::Spread,
            parameters: const { &[OVERLAP] as &[Constant] },
            prepare: Prepare::Cell(self),
            unsimulated_seconds: none,
        }
    }

    pub(crate) fn prepare(self, lock: Metered) -> Rc<dyn Body> {
        let lines = place_slice(self.lines as usize, |_| Line(SimU64::new(0)));
        Rc::new(move |me: usize| {
            half_to_one_and_a_half(self.private_ns);
            lock.lock(me);
            work(f64::from(self.section_ns));
            let at_a_time = with(|w| w.costs().lines_at_a_time());
            for group in lines.chunks(at_a_time.unwrap_or(OVERLAP.ns as usize)) {
                group.iter().for_each(|Line(line)| line.increment());
                // The core has no more requests under way than these.
                if lines.len() > group.len() {
                    world::compute(with(|w| w.undrained()));
                }
            }
            lock.unlock(me);
            1
        })
    }
}

/// A cache line.
#[repr(align(64))]
struct Line(SimU64);

/// Private work, as long as the benchmark's.
pub(super) fn half_to_one_and_a_half(ns: u32) {
    let chance = (with(|w| w.random()) % 1024) as f64 / 1024.0;
    compute(f64::from(ns) * (0.5 + chance));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Machine, Run, locks};

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

    /// What one thread needs for an operation, in nanoseconds.
    fn alone(name: &str) -> f64 {
        let run = Run {
            seconds: 0.02,
            ..Run::new(
                Machine::load("haswell-ex-4s").unwrap(),
                Cell::find(name).unwrap().workload(),
                locks::by_name("futex").unwrap(),
                1,
            )
        };
        1e3 / run.execute().unwrap().ops_per_us()
    }

    #[test]
    fn an_operation_has_all_its_parts() {
        let least = alone("grid:0/0/2");
        assert!(least < 30.0, "{least}");
        for (name, parts) in [
            ("grid:400ns/0/2", 400.0),
            ("grid:0/1us/2", 1_000.0),
            ("grid:2us/10us/2", 12_000.0),
        ] {
            let more = alone(name) - least;
            assert!((more - parts).abs() < 0.03 * parts, "{name}: {more}");
        }
        // Each line costs at least a cycle.
        assert!(alone("grid:0/0/128") > least + 126.0 / 2.6);
    }

    #[test]
    fn lines_travel_with_the_lock_as_many_at_a_time_as_the_machine_says() {
        let fetched = |lines: u32, next_line: u64| {
            let mut machine = Machine::load("haswell-ex-4s").unwrap();
            machine.costs.next_line = next_line;
            let cell = Cell {
                section_ns: 2_000,
                lines,
                ..Cell::default()
            };
            let run = Run {
                seconds: 0.002,
                ..Run::new(
                    machine,
                    cell.workload(),
                    locks::by_name("ticket").unwrap(),
                    2,
                )
            };
            let o = run.execute().unwrap();
            (1e3 / o.ops_per_us(), o.traffic.remote as f64 / o.ops as f64)
        };
        let ((short, few), (long, many)) = (fetched(2, 0), fetched(128, 0));
        assert!((125.0..127.0).contains(&(many - few)), "{few} {many}");
        // 13 groups, the first of which overlaps with nothing; a transfer takes about 130 ns.
        let more = long - short;
        assert!((1_200.0..2_200.0).contains(&more), "{more}");
        // Three at a time: 43 groups.
        let modified = Machine::load("haswell-ex-4s").unwrap().costs.modified[0];
        let more = fetched(128, modified / 3).0 - short;
        assert!((4_000.0..7_000.0).contains(&more), "{more}");
    }
}
