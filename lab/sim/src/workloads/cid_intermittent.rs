//! `cid-intermittent`: threads that wake now and then to work on the data of their concurrency ID.
//!
//! It follows the kernel patch "Improve cache locality of RSEQ concurrency IDs for intermittent
//! workloads" (2024) and the program that it was measured with, `basic_percpu_benchmark` of
//! librseq.
//!
//! Each thread is pinned to a CPU of its own, and there are as many threads as allowed CPUs. All
//! threads start and meet while they run. Then they run one after the other in random order, with a
//! fixed delay between one thread's start and the next one's. In the first round each thread does
//! 20,000 bursts to warm up and a timed burst, and in four more rounds one timed burst each. A
//! burst increments the 16,384 eight-bit integers of the area of the thread's ID. Areas are private
//! mappings of one file: the first write to a page costs a fault and a copy.
//!
//! A thread that stops leaves its ID to its CPU. IDs that are idle for 100 ms are reclaimed as in
//! kernels from 6.4 to 6.12: when a scheduler tick finds a thread of the process running, at most
//! every 100 ms. Ticks rarely find threads that run for microseconds. So IDs are reclaimed during
//! the warm-up, and hardly ever after it.
//!
//! Two properties of those kernels are missing. They reclaim IDs above the number of those in use
//! whatever their age (a sketch showed no difference). They measure the age of an ID by a clock
//! that stops while its CPU is idle.

use super::cid::{AREA_LINES, Areas, COLD, COOLING, Draws, HOT, OVERLAP, sleep_until};
use super::{Body, Constant, Kind, Prepare, SharedMeter, none};
use crate::platform::Sim;
use crate::world::{Placement, with};
use kinlock_core::platform::Platform;
use kinlock_ids::raw::{AGE, Policy};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

const FIRST_TOUCH: Constant = Constant::fitted(
    40e3,
    "first write to a page of an area, after a long sleep",
    "cid-200ms, mm_cid with 8 cores",
);
const TICK: Constant = Constant::assumed(
    1e6,
    "time between two scheduler ticks",
    "chosen knowing the result: CONFIG_HZ=1000, as in Linux' x86_64_defconfig",
);
const WARM_UP_BURSTS: f64 = 20_000.0;
const WARM_UP: Constant = Constant::assumed(
    WARM_UP_BURSTS * AREA_LINES as f64 * HOT.ns,
    "warm-up",
    "20,000 bursts as librseq has it, on lines in the first-level cache",
);
const LATE: Constant = Constant::assumed(
    1.0,
    "how late a thread is woken, in thousandths of its sleep (a number, not a time)",
    "chosen knowing the result: the slack of poll() in Linux",
);
const SCATTER: Constant = Constant::assumed(
    3e3,
    "between one thread's first sleep and the next one's",
    "each prints a line before",
);
const TABLE_DELAY: Constant = Constant::published(
    200e6,
    "delay between one thread's start and the next one's",
    "description of the workload",
);
const SHORT_DELAY: Constant = Constant {
    ns: 10e6,
    ..TABLE_DELAY
};

/// The workload with 200 ms between two threads.
pub const SLOW: Kind = Kind {
    name: "cid-intermittent",
    about: "threads pinned to CPUs work on their ID's 16 KiB now and then, one at a time, with 200 \
        ms in between",
    placement: Placement::Spread,
    parameters: &parameters(TABLE_DELAY),
    prepare: Prepare::Ids {
        prepare: |threads, policy, meter| prepare(threads, policy, meter, TABLE_DELAY.ns),
        seconds: |threads| seconds(threads, TABLE_DELAY.ns),
    },
    unsimulated_seconds: none,
};

/// The workload with 10 ms between two threads.
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
        COOLING,
        OVERLAP,
        FIRST_TOUCH,
        TICK,
        WARM_UP,
        LATE,
        SCATTER,
    ]
}

/// How often the program runs, which is the number of runs of the published means.
const RUNS: usize = 5;
/// Timed bursts of each thread in a run: the first follows the warm-up.
const TIMED: usize = 5;
/// The time at which the threads have met, in nanoseconds after a run's beginning.
const MET: u64 = 10_000_000;

fn seconds(threads: usize, delay: f64) -> f64 {
    RUNS as f64 * run_length(threads, delay) as f64 / 1e9
}

/// From one run's beginning to the next one's, in nanoseconds.
fn run_length(threads: usize, delay: f64) -> u64 {
    let rounds = late(((TIMED + 1) * threads) as f64 * delay);
    MET + rounds as u64 + WARM_UP.ns as u64 + 100_000_000
}

fn late(nanos: f64) -> f64 {
    nanos * (1.0 + LATE.ns / 1e3)
}

struct Intermittent {
    runs: Vec<Program>,
    length: u64,
    done: Vec<Cell<usize>>,
    meter: SharedMeter,
}

/// One run of the program.
struct Program {
    areas: Areas,
    begins: u64,
    delay: f64,
    /// For each thread, how many threads run before it.
    ranks: Vec<usize>,
    /// When scheduler ticks come, on all CPUs, as an offset within their period.
    phase: u64,
    last_scan: Cell<u64>,
}

fn prepare(threads: usize, policy: Policy, meter: SharedMeter, delay: f64) -> Rc<dyn Body> {
    let cpus = with(|w| w.setup.machine.shape.cpus());
    let mut draws = Draws::new();
    let length = run_length(threads, delay);
    let lines = Areas::new(threads, policy);
    let runs = (0..RUNS).map(|run| {
        let areas = lines.anew(threads);
        areas.set_size(threads, threads.min(cpus));
        let mut left: Vec<_> = (0..threads).collect();
        let ranks = (0..threads).map(|_| left.swap_remove(draws.below(left.len())));
        Program {
            areas,
            begins: run as u64 * length,
            delay,
            ranks: ranks.collect(),
            phase: draws.below(TICK.ns as usize) as u64,
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
    fn run(&self, me: usize, meter: &RefCell<super::Meter>) {
        sleep_until(self.begins);
        let (held, _) = self.areas.acquire(me);
        let met = self.begins + MET + me as u64 * SCATTER.ns as u64;
        sleep_until(met);
        self.areas.release(held);
        sleep_until(met + late(self.ranks[me] as f64 * self.delay) as u64);
        for burst in 0..TIMED {
            let since = Sim::now();
            let acquired = self.areas.acquire(me);
            if burst == 0 {
                self.areas.burst(&acquired, FIRST_TOUCH.ns);
                crate::compute(WARM_UP.ns);
            }
            meter.borrow_mut().end_warm_up();
            let burst = self.areas.burst(&acquired, FIRST_TOUCH.ns);
            meter.borrow_mut().burst(me, &burst);
            self.tick(since);
            self.areas.release(acquired.0);
            let cycle = self.ranks.len() as f64 * self.delay;
            sleep_until(Sim::now() + late(cycle) as u64);
        }
    }

    /// Reclaims idle IDs if a tick has found the current thread, which has run since `since`.
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
