//! The grid: work under the lock, private work and cache lines touched under the lock, in many
//! combinations. A cell is a workload of its own. The simulator has the same workloads.

use std::time::Duration;

use kinlock_measure::random::Random;
use kinlock_measure::workloads::grid::Length;
pub use kinlock_measure::workloads::grid::{Cell, Part, parts};

use crate::locks::round::Workload;
use crate::locks::work_loop::{self, ThinkTime};

pub struct Grid {
    /// Iterations of the work loop in a section, on average; 0: none.
    section: u64,
    is_exponential: bool,
    /// How long the thread sleeps in a section. The kernel wakes it about 50 us late, as in
    /// programs.
    sleep: Option<Duration>,
    think: Option<ThinkTime>,
    lines: usize,
}

impl Grid {
    pub fn new(cell: Cell) -> Self {
        let positive = |ns: u32| (ns > 0).then_some(f64::from(ns));
        let is_asleep = cell.length == Length::Asleep;
        let computes = positive(cell.section_ns).filter(|_| !is_asleep);
        Self {
            section: computes.map_or(0, work_loop::iterations),
            is_exponential: cell.length == Length::Exponential,
            sleep: is_asleep.then(|| Duration::from_nanos(u64::from(cell.section_ns))),
            think: positive(cell.private_ns).map(ThinkTime::of_ns),
            lines: cell.lines as usize,
        }
    }
}

/// The private state of a thread.
pub struct Local {
    rng: Random,
    /// Iterations of the work loop in the next section, drawn before the lock is taken.
    section: u64,
}

/// A cache line.
#[derive(Clone, Default)]
#[repr(align(64))]
pub struct Line(u64);

impl Workload for Grid {
    type Shared = Box<[Line]>;
    type Local = Local;

    fn shared(&self) -> Box<[Line]> {
        vec![Line::default(); self.lines].into_boxed_slice()
    }

    fn local(&self, rng: Random) -> Local {
        Local {
            rng,
            section: self.section,
        }
    }

    #[inline(always)]
    fn think(&self, local: &mut Local) {
        if self.is_exponential {
            local.section = (self.section as f64 * local.rng.exponential()) as u64;
        }
        if let Some(think) = &self.think {
            think.pass(&mut local.rng);
        }
    }

    #[inline(always)]
    fn section(&self, lines: &mut Box<[Line]>, local: &mut Local) {
        if let Some(sleep) = self.sleep {
            std::thread::sleep(sleep);
        } else if local.section > 0 {
            work_loop::spin(local.section, &mut local.rng);
        }
        for line in lines {
            line.0 = line.0.wrapping_add(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prepared(name: &str) -> (Grid, Box<[Line]>, Local) {
        let grid = Grid::new(Cell::find(name).unwrap());
        let (lines, local) = (grid.shared(), grid.local(Random::stream(1, 1)));
        (grid, lines, local)
    }

    #[test]
    fn a_section_writes_every_line_of_the_lock() {
        let (grid, mut lines, mut local) = prepared("grid:0/0/16");
        assert_eq!(size_of_val(&*lines), 16 * 64);
        for _ in 0..3 {
            grid.section(&mut lines, &mut local);
        }
        assert!(lines.iter().all(|line| line.0 == 3));
    }

    #[test]
    fn exponential_sections_differ_and_constant_ones_do_not() {
        for (name, differ) in [("grid:50us-exp/0/2", true), ("grid:50us/0/2", false)] {
            let (grid, _, mut local) = prepared(name);
            let mean = work_loop::iterations(50e3) as f64;
            let drawn: Vec<_> = (0..1_000)
                .map(|_| {
                    grid.think(&mut local);
                    local.section as f64 / mean
                })
                .collect();
            let sum: f64 = drawn.iter().sum();
            assert!((850.0..1_150.0).contains(&sum), "{name}: {sum}");
            assert_eq!(drawn.iter().any(|&x| x > 2.5), differ, "{name}");
            assert_eq!(drawn.iter().any(|&x| x < 0.1), differ, "{name}");
        }
    }

    #[test]
    fn a_sleeping_section_takes_no_cpu_time() {
        let (grid, mut lines, mut local) = prepared("grid:200us-sleep/1ms/2");
        let begin = std::time::Instant::now();
        grid.section(&mut lines, &mut local);
        assert!(begin.elapsed() >= Duration::from_micros(200));
        assert_eq!((grid.section, local.section, lines[1].0), (0, 0, 1));
    }
}
