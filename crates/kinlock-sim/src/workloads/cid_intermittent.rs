//! `cid-intermittent`: threads that wake now and then to work on the data of their concurrency ID, after the kernel patch "Improve cache locality of
//! RSEQ concurrency IDs for intermittent workloads" (2024) and the program that it was measured with, `basic_percpu_benchmark` of librseq, of which this simulates:
//!
//! Each thread is pinned to a CPU of its own, and there are as many threads as allowed CPUs. They meet, all running. Then their turns come one after the other in random order, with the
//! delay between one thread's turn and the next one's. The first turn is 20,000 bursts to warm up, and one that is timed. Four more turns are one timed burst each; in between everybody
//! else has had a turn. A burst increments the 16,384 eight-bit integers of the area of the thread's ID. Areas are lazily backed by memory: the first write to a page costs a fault and a copy.
//!
//! A thread that stops leaves its ID to its CPU. What is idle for 100 ms is reclaimed as a kernel did it until 6.13: when a scheduler tick finds a thread of the process running, not more often than every
//! 100 ms. Threads that run for microseconds are rarely found. So it happens in the warm-up, all the time, and hardly ever after it.

use super::cid::{Areas, COLD, FORGOTTEN, HOT, Lots, OVERLAP, sleep_until};
use super::{Body, Constant, Kind, Meter, Prepare, Used, none};
use crate::Sim;
use crate::world::{Placement, with};
use kinlock::platform::Platform;
use kinlock::raw::ids::{AGE, Policy};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

const FIRST_TOUCH: Constant = Constant {
    name: "first write to a page of an area, after a long sleep",
    ns: 44e3,
    origin: "fitted",
    source: "cid-200ms, mm_cid with 8 cores",
};
const TICK: Constant = Constant {
    name: "time between two scheduler ticks",
    ns: 1e6,
    origin: "assumed",
    source: "CONFIG_HZ=1000, the default of x86_64",
};
const WARM_UP_BURSTS: f64 = 20_000.0;
const WARM_UP: Constant = Constant {
    name: "warm-up",
    ns: WARM_UP_BURSTS * 256.0 * HOT.ns,
    origin: "published",
    source: "20,000 bursts, librseq",
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
    parameters: &[
        HOT,
        COLD,
        FORGOTTEN,
        OVERLAP,
        FIRST_TOUCH,
        TICK,
        WARM_UP,
        TABLE_DELAY,
    ],
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
    parameters: &[
        HOT,
        COLD,
        FORGOTTEN,
        OVERLAP,
        FIRST_TOUCH,
        TICK,
        WARM_UP,
        SHORT_DELAY,
    ],
    prepare: Prepare::Ids {
        prepare: |threads, policy, meter| prepare(threads, policy, meter, SHORT_DELAY.ns),
        seconds: |threads| seconds(threads, SHORT_DELAY.ns),
    },
    ..SLOW
};

/// Timed bursts of each thread: the first belongs to the warm-up's turn.
const TIMED: usize = 5;
/// When the threads have met, in nanoseconds.
const MET: u64 = 10_000_000;

fn seconds(threads: usize, delay: f64) -> f64 {
    let last_turn_of_last = (TIMED * threads) as f64 * delay + WARM_UP.ns;
    (MET as f64 + last_turn_of_last) / 1e9 + 0.1
}

struct Intermittent {
    areas: Areas,
    delay: u64,
    threads: Vec<Thread>,
    last_scan: Cell<u64>,
    meter: Rc<RefCell<Meter>>,
}

struct Thread {
    /// How many come before it.
    rank: u64,
    /// When its CPU's scheduler tick comes, in the time between two.
    phase: u64,
    done: Cell<bool>,
}

fn prepare(threads: usize, policy: Policy, meter: Rc<RefCell<Meter>>, delay: f64) -> Rc<dyn Body> {
    let areas = Areas::new(threads, policy);
    let cpus = with(|w| w.machine().shape.cpus());
    areas.set_size(threads, threads.min(cpus));
    let mut lots = Lots::new();
    let mut left: Vec<u64> = (0..threads as u64).collect();
    let threads = (0..threads).map(|_| {
        let place = lots.below(left.len());
        Thread {
            rank: left.swap_remove(place),
            phase: lots.below(TICK.ns as usize) as u64,
            done: Cell::new(false),
        }
    });
    Rc::new(Intermittent {
        threads: threads.collect(),
        areas,
        delay: delay as u64,
        last_scan: Cell::new(0),
        meter,
    })
}

impl Body for Intermittent {
    fn iterate(&self, me: usize) -> u64 {
        if !self.threads[me].done.replace(true) {
            self.run(me);
        }
        sleep_until(with(|w| w.costs().nanos(w.end)).ceil() as u64);
        0
    }
}

impl Intermittent {
    fn run(&self, me: usize) {
        let (held, _) = self.areas.acquire(me);
        sleep_until(MET);
        self.areas.release(held);
        sleep_until(MET + self.threads[me].rank * self.delay);
        for burst in 0..TIMED {
            let since = Sim::now();
            let (held, waited) = self.areas.acquire(me);
            if burst == 0 {
                self.areas.burst(held.id(), true, FIRST_TOUCH.ns);
                crate::compute(WARM_UP.ns);
            }
            let began = with(|w| w.now());
            let foreign_lines = self.areas.burst(held.id(), burst > 0, FIRST_TOUCH.ns);
            let used = Used {
                id: held.id(),
                foreign_lines,
                waited,
            };
            self.meter.borrow_mut().burst(me, 0, began, used);
            self.tick(me, since);
            self.areas.release(held);
            sleep_until(Sim::now() + self.threads.len() as u64 * self.delay);
        }
    }

    /// The current thread has run since `since`: a tick that found it reclaims what is idle for long.
    fn tick(&self, me: usize, since: u64) {
        let now = Sim::now();
        // The CPU also runs while it switches to the thread, and away from it.
        let switch = with(|w| w.costs().nanos(w.costs().context_switch)) as u64;
        let ticks = |until: u64| (until + TICK.ns as u64 - self.threads[me].phase) / TICK.ns as u64;
        if ticks(now + switch) > ticks(since.saturating_sub(switch))
            && now >= self.last_scan.get() + AGE
        {
            self.last_scan.set(now);
            self.areas.ids.reclaim(now);
        }
    }
}
