//! `grid`: work under the lock, private work and cache lines touched under the lock, in every
//! combination. A cell is a workload of its own. The benchmark runs the same cells on hardware.

use super::cid::OVERLAP;
use super::{Body, Constant, Kind, Metered, Prepare, none, work};
use crate::platform::{SimU64, compute, place_slice};
use crate::world::{self, Placement, with};
use kinlock_core::platform::Atomic;
pub use kinlock_measure::workloads::grid::{Cell, THREADS};
use std::rc::Rc;

/// A cell as a workload. Threads are spread over the sockets, as a scheduler does with few.
pub fn workload(cell: Cell) -> Kind {
    Kind {
        name: cell.name(),
        about: "work under the lock / private work / cache lines touched under the lock",
        placement: Placement::Spread,
        parameters: const { &[OVERLAP] as &[Constant] },
        prepare: Prepare::Cell(cell),
        unsimulated_seconds: none,
    }
}

pub(crate) fn prepare(cell: Cell, lock: Metered) -> Rc<dyn Body> {
    let lines = place_slice(cell.lines as usize, |_| Line(SimU64::new(0)));
    Rc::new(move |me: usize| {
        half_to_one_and_a_half(cell.private_ns);
        lock.lock(me);
        work(f64::from(cell.section_ns));
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
    use crate::{Run, locks, machine};

    /// What one thread needs for an operation, in nanoseconds.
    fn alone(name: &str) -> f64 {
        let run = Run {
            seconds: 0.02,
            ..Run::new(
                machine::load("haswell-ex-4s").unwrap(),
                workload(Cell::find(name).unwrap()),
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
            let mut machine = machine::load("haswell-ex-4s").unwrap();
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
                    workload(cell),
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
        let modified = machine::load("haswell-ex-4s").unwrap().costs.modified[0];
        let more = fetched(128, modified / 3).0 - short;
        assert!((4_000.0..7_000.0).contains(&more), "{more}");
    }
}
