//! The grid: work under the lock, private work and cache lines touched under the lock, in every
//! combination. A cell is a workload of its own. The simulator has the same.

use kinlock_measure::random::Random;
pub use kinlock_measure::workloads::grid::Cell;

use crate::bench::locks::round::Workload;
use crate::bench::locks::work_loop::{self, ThinkTime};

pub struct Grid {
    /// Iterations of the work loop; 0: none.
    section: u64,
    think: Option<ThinkTime>,
    lines: usize,
}

impl Grid {
    pub fn new(cell: Cell) -> Self {
        let positive = |ns: u32| (ns > 0).then_some(f64::from(ns));
        Self {
            section: positive(cell.section_ns).map_or(0, work_loop::iterations),
            think: positive(cell.private_ns).map(ThinkTime::of_ns),
            lines: cell.lines as usize,
        }
    }
}

/// A cache line.
#[derive(Clone, Default)]
#[repr(align(64))]
pub struct Line(u64);

impl Workload for Grid {
    type Shared = Box<[Line]>;
    type Local = Random;

    fn shared(&self) -> Box<[Line]> {
        vec![Line::default(); self.lines].into_boxed_slice()
    }

    fn local(&self, rng: Random) -> Random {
        rng
    }

    #[inline(always)]
    fn think(&self, rng: &mut Random) {
        if let Some(think) = &self.think {
            think.pass(rng);
        }
    }

    #[inline(always)]
    fn section(&self, lines: &mut Box<[Line]>, rng: &mut Random) {
        if self.section > 0 {
            work_loop::spin(self.section, rng);
        }
        for line in lines {
            line.0 = line.0.wrapping_add(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_writes_every_line_of_the_lock() {
        let cell = Cell::find("grid:0/0/16").unwrap();
        let grid = Grid::new(cell);
        let (mut lines, mut rng) = (grid.shared(), Random::stream(1, 1));
        assert_eq!(size_of_val(&*lines), 16 * 64);
        for _ in 0..3 {
            grid.section(&mut lines, &mut rng);
        }
        assert!(lines.iter().all(|line| line.0 == 3));
    }
}
