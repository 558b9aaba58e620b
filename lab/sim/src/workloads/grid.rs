//! `grid`: work under the lock, private work and cache lines touched under the lock, in many
//! combinations. A cell is a workload of its own. The benchmark runs the same cells on hardware.
//!
//! `grid:400ns/100ns/16@8` is a cell with eight locks, each with lines of its own. Each operation
//! takes one of them at random.

use super::cid::{OVERLAP, sleep_until};
use super::{Body, Constant, Kind, Metered, Prepare, none, work};
use crate::platform::{Sim, SimU64, compute, place_slice};
use crate::world::{self, Placement, with};
use kinlock_core::platform::{Atomic, Clock};
use kinlock_measure::random::exponential;
use kinlock_measure::workloads::grid::Length;
pub use kinlock_measure::workloads::grid::{Cell, Part, parts};
use std::rc::Rc;

/// A cell as a workload. Threads are spread over the sockets, as a scheduler spreads few threads.
pub fn workload(cell: Cell) -> Kind {
    Kind {
        name: cell.name(),
        about: "work under the lock / private work / cache lines touched under the lock",
        placement: Placement::Spread,
        parameters: match cell.length {
            Length::Asleep => &[OVERLAP, SLACK],
            Length::Constant | Length::Exponential => const { &[OVERLAP] },
        },
        prepare: Prepare::Cell(cell, 1),
        unsimulated_seconds: none,
    }
}

/// The most locks of a cell.
const MOST_LOCKS: usize = 1024;

/// The cell with this name, and with as many locks as the name says. Such names are kept to the end
/// of the process, since workloads are values without owners.
pub(crate) fn by_name(name: &str) -> Option<Kind> {
    let Some((cell, locks)) = name.split_once('@') else {
        return Cell::find(name).map(workload);
    };
    let cell = Cell::find(cell)?;
    let locks = locks
        .parse()
        .ok()
        .filter(|n| (2..=MOST_LOCKS).contains(n))?;
    Some(Kind {
        name: Box::leak(format!("{}@{locks}", cell.name()).into_boxed_str()),
        prepare: Prepare::Cell(cell, locks),
        ..workload(cell)
    })
}

pub(crate) fn prepare(cell: Cell, locks: usize, place: impl Fn() -> Metered) -> Rc<dyn Body> {
    let all = (0..locks).map(|_| {
        let lock = place();
        let lines = place_slice(cell.lines as usize, |_| Line(SimU64::new(0)));
        (lock, lines)
    });
    let all: Vec<(Metered, &[Line])> = all.collect();
    Rc::new(move |me: usize| {
        let chosen = match all.len() {
            1 => 0,
            n => with(|w| w.random()) as usize % n,
        };
        let (lock, lines) = &all[chosen];
        half_to_one_and_a_half(cell.private_ns);
        let section = section(cell);
        lock.lock(me);
        match cell.length {
            Length::Asleep => sleep_until(Sim::now() + (section + SLACK.value()) as u64),
            Length::Constant => work(section),
            Length::Exponential => compute(section),
        }
        let at_a_time = with(|w| w.costs().lines_at_a_time());
        for group in lines.chunks(at_a_time.unwrap_or(OVERLAP.ns as usize)) {
            group.iter().for_each(|Line(line)| line.increment());
            // The core cannot have more requests under way at a time.
            if lines.len() > group.len() {
                world::compute(with(|w| w.undrained()));
            }
        }
        lock.unlock(me);
        1
    })
}

/// The length of the next section in nanoseconds, without the time to touch the lines.
fn section(cell: Cell) -> f64 {
    let mean = f64::from(cell.section_ns);
    match cell.length {
        Length::Constant | Length::Asleep => mean,
        Length::Exponential => {
            let unit = || with(|w| w.random()) as f64 / (1u64 << 48) as f64;
            mean * exponential(unit)
        }
    }
}

/// How late a thread that sleeps in a section wakes.
const SLACK: Constant = Constant::assumed(
    50e3,
    "how late a sleep ends, besides waking up",
    "the usual timer slack of Linux",
);

/// A cache line.
#[repr(align(64))]
struct Line(SimU64);

/// Private work, with the same distribution as in the benchmark.
pub(super) fn half_to_one_and_a_half(ns: u32) {
    let chance = (with(|w| w.random()) % 1024) as f64 / 1024.0;
    compute(f64::from(ns) * (0.5 + chance));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Run, locks, machine};

    fn run(machine: &str, workload: Kind, lock: &str, threads: usize) -> Run {
        let machine = machine::load(machine).unwrap();
        Run::new(machine, workload, locks::by_name(lock).unwrap(), threads)
    }

    fn ns_per_op(run: &Run) -> f64 {
        1e3 / run.execute().unwrap().ops_per_us
    }

    /// The time of an operation with one thread, in nanoseconds.
    fn alone(name: &str) -> f64 {
        ns_per_op(&run("haswell-ex-4s", by_name(name).unwrap(), "futex", 1))
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
        // An exponential section has the same mean, and a sleeping one ends late.
        for (name, parts, tolerance) in [
            ("grid:20us-exp/10us/2", 30_000.0, 0.15),
            ("grid:200us-sleep/10us/2", 260_000.0, 0.05),
            ("grid:200us/1ms/2", 1_200_000.0, 0.15),
        ] {
            let more = alone(name) - least;
            assert!((more / parts - 1.0).abs() < tolerance, "{name}: {more}");
        }
        // Each line costs at least a cycle.
        assert!(alone("grid:0/0/128") > least + 126.0 / 2.6);
    }

    #[test]
    fn long_sections_exclude_each_other_however_long_they_are() {
        for (name, section) in [
            ("grid:50us/0/2", 50e3),
            ("grid:50us-exp/0/2", 50e3),
            ("grid:50us-sleep/10us/2", 100e3),
        ] {
            for lock in ["futex", "mutex"] {
                let took = ns_per_op(&run("laptop", by_name(name).unwrap(), lock, 4));
                let range = 0.85 * section..1.3 * section;
                assert!(range.contains(&took), "{name} {lock}: {took}");
            }
        }
    }

    #[test]
    fn many_locks_do_not_wait_for_each_other() {
        let ns = |name| ns_per_op(&run("laptop", by_name(name).unwrap(), "mutex", 4));
        let (one, many) = (ns("grid:20us/0/2"), ns("grid:20us/0/2@64"));
        assert!(one > 3.0 * many, "{one} {many}");
        assert!(by_name("grid:20us/0/2@64").unwrap().has_many_locks());
        assert!(!by_name("grid:20us/0/2").unwrap().has_many_locks());
        for name in [
            "grid:20us/0/2@1",
            "grid:20us/0/2@x",
            "grid:20us/0/3@2",
            "lock2@2",
        ] {
            assert!(by_name(name).is_none(), "{name}");
        }
    }

    #[test]
    fn cpu_time_is_that_of_threads_that_run() {
        let run = |name, threads, cpus| {
            let run = Run {
                cpus,
                ..run("laptop", by_name(name).unwrap(), "futex", threads)
            };
            let outcome = run.execute().unwrap();
            let cpus = outcome.cpu_ns_per_op * outcome.ops_per_us / 1e3;
            (outcome.cpu_ns_per_op, cpus)
        };
        let (per_op, cpus) = run("grid:20us/10us/2", 1, None);
        assert!(
            (29e3..33e3).contains(&per_op) && (0.99..1.01).contains(&cpus),
            "{per_op} {cpus}"
        );
        // A thread that sleeps in a section uses no CPU time.
        let (per_op, cpus) = run("grid:200us-sleep/10us/2", 1, None);
        assert!(
            (10e3..25e3).contains(&per_op) && cpus < 0.1,
            "{per_op} {cpus}"
        );
        // Two CPUs are used, however many threads and locks there are.
        for name in ["grid:20us/0/2", "grid:20us/0/2@64"] {
            let (_, cpus) = run(name, 8, Some(2));
            assert!(cpus < 2.001, "{name}: {cpus}");
        }
        let (_, cpus) = run("grid:20us/0/2@64", 8, Some(2));
        assert!(cpus > 1.8, "{cpus}");
    }

    #[test]
    fn lines_travel_with_the_lock_as_many_at_a_time_as_the_machine_says() {
        let fetched = |lines: u32, next_line: u64| {
            let cell = Cell {
                section_ns: 2_000,
                lines,
                ..Cell::default()
            };
            let mut run = run("haswell-ex-4s", workload(cell), "ticket", 2);
            run.machine.costs.next_line = next_line;
            run.seconds = 0.002;
            let o = run.execute().unwrap();
            (1e3 / o.ops_per_us, o.traffic.remote as f64 / o.ops as f64)
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
