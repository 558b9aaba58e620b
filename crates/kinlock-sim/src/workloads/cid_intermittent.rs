//! `cid-intermittent`: threads that wake now and then to work on the data of their concurrency ID, after the kernel patch "Improve cache locality of
//! RSEQ concurrency IDs for intermittent workloads" (2024) and the program that it was measured with, `basic_percpu_benchmark` of librseq, of which this simulates:
//!
//! Each thread is pinned to a CPU of its own, and there are as many threads as allowed CPUs. They meet, all running. Then their turns come one after the other in random order, with the
//! delay between one thread's turn and the next one's. The first turn is 20,000 bursts to warm up, and one that is timed. Four more turns are one timed burst each; in between everybody
//! else has had a turn. A burst increments the 16,384 eight-bit integers of the area of the thread's ID. Areas are private mappings of one file: the first write to a page costs a fault and a copy.
//!
//! A thread that stops leaves its ID to its CPU. What is idle for 100 ms is reclaimed as kernels did it from 6.3 to 6.12: when a scheduler tick finds a thread of the process running, not more often than every
//! 100 ms. Threads that run for microseconds are rarely found. So it happens in the warm-up, all the time, and hardly ever after it.
//!
//! Of those kernels are missing: that IDs above the number of those in use are reclaimed whatever their age (a sketch showed no difference), and that the age of an ID is judged by a clock that stands still while its CPU does nothing at all.

use super::cid::{AREA_LINES, Areas, COLD, FORGOTTEN, HOT, Lots, OVERLAP, sleep_until};
use super::{Body, Constant, Kind, Meter, Prepare, Used, none};
use crate::Sim;
use crate::world::{Placement, with};
use kinlock_core::platform::Platform;
use kinlock_ids::raw::{AGE, Policy};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

const FIRST_TOUCH: Constant = Constant {
    name: "first write to a page of an area, after a long sleep",
    ns: 40e3,
    origin: "fitted",
    source: "cid-200ms, mm_cid with 8 cores",
};
const TICK: Constant = Constant {
    name: "time between two scheduler ticks",
    ns: 1e6,
    origin: "assumed",
    source: "CONFIG_HZ=1000, as in Linux' x86_64_defconfig",
};
const WARM_UP_BURSTS: f64 = 20_000.0;
const WARM_UP: Constant = Constant {
    name: "warm-up",
    ns: WARM_UP_BURSTS * AREA_LINES as f64 * HOT.ns,
    origin: "assumed",
    source: "20,000 bursts as librseq has it, on lines in the first-level cache",
};
const LATE: Constant = Constant {
    name: "how late a thread is woken, in thousandths of its sleep (a number, not a time)",
    ns: 1.0,
    origin: "assumed",
    source: "the slack of poll() in Linux",
};
const SCATTER: Constant = Constant {
    name: "between one thread's first sleep and the next one's",
    ns: 3e3,
    origin: "assumed",
    source: "each prints a line before",
};
const TABLE_DELAY: Constant = Constant {
    name: "delay between one thread's turn and the next one's",
    ns: 200e6,
    origin: "published",
    source: "description of the workload",
};
const SHORT_DELAY: Constant = Constant {
    ns: 10e6,
    ..TABLE_DELAY
};

/// With 200 ms between turns.
pub const SLOW: Kind = Kind {
    name: "cid-intermittent",
    about: "threads pinned to CPUs work on their ID's 16 KiB now and then, one at a time, with 200 ms in between",
    placement: Placement::Spread,
    parameters: &parameters(TABLE_DELAY),
    prepare: Prepare::Ids {
        prepare: |threads, policy, meter| prepare(threads, policy, meter, TABLE_DELAY.ns),
        seconds: |threads| seconds(threads, TABLE_DELAY.ns),
    },
    unsimulated_seconds: none,
};

/// With 10 ms.
pub const FAST: Kind = Kind {
    name: "cid-intermittent-10ms",
    about: "the same with 10 ms in between",
    parameters: &parameters(SHORT_DELAY),
    prepare: Prepare::Ids {
        prepare: |threads, policy, meter| prepare(threads, policy, meter, SHORT_DELAY.ns),
        seconds: |threads| seconds(threads, SHORT_DELAY.ns),
    },
    ..SLOW
};

const fn parameters(delay: Constant) -> [Constant; 10] {
    [
        delay,
        HOT,
        COLD,
        FORGOTTEN,
        OVERLAP,
        FIRST_TOUCH,
        TICK,
        WARM_UP,
        LATE,
        SCATTER,
    ]
}

/// How often the program is run: as often as for the published means.
const RUNS: usize = 5;
/// Timed bursts of each thread in a run: the first belongs to the warm-up's turn.
const TIMED: usize = 5;
/// When the threads have met, after a run's beginning, in nanoseconds.
const MET: u64 = 10_000_000;

fn seconds(threads: usize, delay: f64) -> f64 {
    RUNS as f64 * run_length(threads, delay) as f64 / 1e9
}

/// From one run's beginning to the next one's, in nanoseconds.
fn run_length(threads: usize, delay: f64) -> u64 {
    let turns = late(((TIMED + 1) * threads) as f64 * delay);
    MET + turns as u64 + WARM_UP.ns as u64 + 100_000_000
}

fn late(nanos: f64) -> f64 {
    nanos * (1.0 + LATE.ns / 1e3)
}

struct Intermittent {
    runs: Vec<Program>,
    length: u64,
    done: Vec<Cell<usize>>,
    meter: Rc<RefCell<Meter>>,
}

/// One run of the program.
struct Program {
    areas: Areas,
    begins: u64,
    delay: f64,
    /// How many come before each thread.
    ranks: Vec<usize>,
    /// When scheduler ticks come, on all CPUs, in the time between two.
    phase: u64,
    last_scan: Cell<u64>,
}

fn prepare(threads: usize, policy: Policy, meter: Rc<RefCell<Meter>>, delay: f64) -> Rc<dyn Body> {
    let cpus = with(|w| w.machine().shape.cpus());
    let mut lots = Lots::new();
    let length = run_length(threads, delay);
    let lines = Areas::new(threads, policy);
    let runs = (0..RUNS).map(|run| {
        let areas = lines.anew(threads);
        areas.set_size(threads, threads.min(cpus));
        let mut left: Vec<_> = (0..threads).collect();
        let ranks = (0..threads).map(|_| left.swap_remove(lots.below(left.len())));
        Program {
            areas,
            begins: run as u64 * length,
            delay,
            ranks: ranks.collect(),
            phase: lots.below(TICK.ns as usize) as u64,
            last_scan: Cell::new(0),
        }
    });
    Rc::new(Intermittent {
        runs: runs.collect(),
        length,
        done: vec![Cell::new(0); threads],
        meter,
    })
}

impl Body for Intermittent {
    fn iterate(&self, me: usize) -> u64 {
        let done = self.done[me].get();
        match self.runs.get(done) {
            Some(program) => program.run(me, &self.meter),
            None => sleep_until(Sim::now() + self.length),
        }
        self.done[me].set(done + 1);
        0
    }
}

impl Program {
    fn run(&self, me: usize, meter: &RefCell<Meter>) {
        sleep_until(self.begins);
        let (held, _) = self.areas.acquire(me);
        let met = self.begins + MET + me as u64 * SCATTER.ns as u64;
        sleep_until(met);
        self.areas.release(held);
        sleep_until(met + late(self.ranks[me] as f64 * self.delay) as u64);
        for burst in 0..TIMED {
            let since = Sim::now();
            let (held, waited) = self.areas.acquire(me);
            if burst == 0 {
                self.areas.burst(held.id(), true, FIRST_TOUCH.ns);
                crate::compute(WARM_UP.ns);
            }
            meter.borrow_mut().opens();
            let began = with(|w| w.now());
            let foreign_lines = self.areas.burst(held.id(), burst > 0, FIRST_TOUCH.ns);
            let used = Used {
                id: held.id(),
                foreign_lines,
                waited,
            };
            meter.borrow_mut().burst(me, 0, began, used);
            self.tick(since);
            self.areas.release(held);
            let cycle = self.ranks.len() as f64 * self.delay;
            sleep_until(Sim::now() + late(cycle) as u64);
        }
    }

    /// The current thread has run since `since`: a tick that found it reclaims what is idle for long.
    fn tick(&self, since: u64) {
        let now = Sim::now();
        // The CPU also runs while it switches to the thread, and away from it.
        let switch = with(|w| w.costs().nanos(w.costs().context_switch)) as u64;
        let ticks = |until: u64| (until + TICK.ns as u64 - self.phase) / TICK.ns as u64;
        if ticks(now + switch) > ticks(since.saturating_sub(switch))
            && now >= self.last_scan.get() + AGE
        {
            self.last_scan.set(now);
            self.areas.ids.reclaim(now);
        }
    }
}
