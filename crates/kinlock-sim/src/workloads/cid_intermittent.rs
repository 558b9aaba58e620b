//! `cid-intermittent`: threads that wake now and then to work on the data of their concurrency ID, after the kernel patch "Improve cache locality of
//! RSEQ concurrency IDs for intermittent workloads" (2024).
//!
//! Each thread is pinned to a CPU of its own. One runs at a time, in random order, each once per cycle; the delay lies between one thread's burst and the next one's.
//! A thread that starts to run acquires an ID, as a kernel does for it when it switches to the thread; the burst, which is what is timed, increments the 16,384 eight-bit integers of
//! that ID's area. Then it stops, and releases the ID. The areas are real lines. Every 100 ms IDs that
//! are idle for long are reclaimed, as a kernel does while threads run.
//!
//! `cid-changing` has four threads running at a time, on CPUs that a scheduler picks, while members and allowed CPUs change from phase to phase: what does locality cost in density?

use super::{Body, Constant, Kind, Meter, Prepare, Used, none};
use crate::Sim;
use crate::platform::{SimU32, SimU64};
use crate::world::{Placement, with};
use kinlock::platform::{Atomic, NEVER, Ordering::*, Platform};
use kinlock::raw::ids::{AGE, BLOCK, Block, IdAllocator, Policy, Record};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

const INCREMENTS: Constant = Constant {
    name: "64 increments on a line in the core's own caches, beyond the first cycle",
    ns: 4.8,
    origin: "assumed",
    source: "four loads, adds and stores of 16 bytes in 4 cycles, and a line from the second-level cache in 14, the usual figure for Zen 4: a wake-up has used the first level in between",
};
const ASLEEP: Constant = Constant {
    name: "a line that a sleeping core has modified, beyond its increments",
    ns: 65.6,
    origin: "fitted",
    source: "cid-200ms, mm_cid, geometric mean of the four rows: there the cost does not depend on the distance",
};
const TABLE_DELAY: Constant = Constant {
    name: "delay between one thread's burst and the next one's",
    ns: 200e6,
    origin: "published",
    source: "description of the workload",
};
const SHORT_DELAY: Constant = Constant {
    ns: 10e6,
    ..TABLE_DELAY
};

/// With 200 ms between bursts.
pub const SLOW: Kind = Kind {
    name: "cid-intermittent",
    about: "threads pinned to CPUs work on their ID's 16 KiB now and then, one at a time, with 200 ms in between",
    placement: Placement::Spread,
    parameters: &[INCREMENTS, ASLEEP, TABLE_DELAY],
    prepare: Prepare::Ids {
        prepare: |threads, policy, meter| prepare(threads, policy, meter, TABLE_DELAY.ns, false),
        seconds: |threads| CYCLES * threads as f64 * TABLE_DELAY.ns / 1e9,
    },
    unsimulated_seconds: none,
};

/// With 10 ms.
pub const FAST: Kind = Kind {
    name: "cid-intermittent-10ms",
    about: "the same with 10 ms in between",
    parameters: &[INCREMENTS, ASLEEP, SHORT_DELAY],
    prepare: Prepare::Ids {
        prepare: |threads, policy, meter| prepare(threads, policy, meter, SHORT_DELAY.ns, false),
        seconds: |threads| CYCLES * threads as f64 * SHORT_DELAY.ns / 1e9,
    },
    ..SLOW
};

/// While members and allowed CPUs change.
pub const CHANGING: Kind = Kind {
    name: "cid-changing",
    about: "four threads at a time on CPUs that a scheduler picks, while members and allowed CPUs change; bursts as in cid-intermittent-10ms",
    prepare: Prepare::Ids {
        prepare: |threads, policy, meter| prepare(threads, policy, meter, SHORT_DELAY.ns, true),
        seconds: |_| PHASES.len() as f64 * BURSTS as f64 / AT_A_TIME as f64 * SHORT_DELAY.ns / 1e9,
    },
    ..FAST
};

/// Turns of every thread after the warm-up, which takes a little more than one: everybody has touched its area then.
const CYCLES: f64 = 10.5;
const AREA_LINES: usize = 256;
/// The most CPUs that a machine may have: each may have an area, which have to fit.
pub const MAX_CPUS: usize = 768;

/// The phases of `cid-changing`: members, and CPUs that they may run on. Fewer on smaller machines.
pub const PHASES: &[(usize, usize)] = &[
    (8, 384),
    (64, 384),
    (384, 384),
    (384, 24),
    (64, 24),
    (8, 24),
];
/// Bursts of a phase.
const BURSTS: u64 = 1200;
/// Threads that run at a time in `cid-changing`, if there are as many.
const AT_A_TIME: usize = 4;
/// One in so many wake-ups is on another CPU than the last.
const MIGRATES: u64 = 8;

type Ids = IdAllocator<Sim, (&'static [Record<Sim>], &'static [Block<Sim>])>;

/// A line of an area; the first eight of its integers stand for all.
#[repr(C, align(64))]
struct AreaLine(SimU64, [u64; 7]);

struct Intermittent {
    ids: &'static Ids,
    areas: &'static [AreaLine],
    /// What a CPU's thread sleeps on: 1, it is its turn.
    turns: &'static [Turn],
    delay: u64,
    order: RefCell<Order>,
    last_scan: Cell<u64>,
    meter: Rc<RefCell<Meter>>,
}

#[repr(align(128))]
struct Turn(SimU32);

fn prepare(
    threads: usize,
    policy: Policy,
    meter: Rc<RefCell<Meter>>,
    delay: f64,
    changes: bool,
) -> Rc<dyn Body> {
    let cpus = with(|w| w.machine().shape.cpus());
    // Threads beyond the CPUs share them, and hold IDs beyond theirs.
    let capacity = cpus.max(threads).next_multiple_of(BLOCK as usize) + BLOCK as usize;
    let records = crate::place_slice(cpus + threads, |_| Record::new());
    let blocks = crate::place_slice(capacity / BLOCK as usize, |_| Block::new());
    let ids = IdAllocator::new((records, blocks), cpus as u32, policy).expect("it fits");
    let (members, allowed) = if changes { PHASES[0] } else { (threads, cpus) };
    ids.set_members(members.min(threads) as u32);
    ids.set_cpus_allowed(allowed.min(threads).min(cpus) as u32);
    Rc::new(Intermittent {
        ids: crate::place(ids),
        areas: crate::place_slice(capacity * AREA_LINES, |_| AreaLine(SimU64::new(0), [0; 7])),
        turns: crate::place_slice(threads, |_| Turn(SimU32::new(0))),
        delay: delay as u64,
        order: RefCell::new(Order::new(threads, changes)),
        last_scan: Cell::new(0),
        meter,
    })
}

impl Body for Intermittent {
    fn iterate(&self, me: usize) -> u64 {
        let next = self.order.borrow_mut().starts(me);
        if let Some((member, phase)) = next.or_else(|| self.wait_for_turn(me)) {
            self.burst(me, member, phase);
            self.rest();
            self.wake_next(me);
        }
        0
    }
}

impl Intermittent {
    /// `None`: the run is over.
    fn wait_for_turn(&self, me: usize) -> Option<(usize, usize)> {
        let turn = &self.turns[me].0;
        let key = (&raw const *turn).cast();
        while turn.load(Acquire) == 0 {
            Sim::park(key, 0, NEVER, || turn.load(Relaxed));
        }
        turn.store(0, Relaxed);
        let order = self.order.borrow();
        (!is_over()).then(|| order.busy[me].expect("somebody runs where one was woken"))
    }

    fn burst(&self, me: usize, member: usize, phase: usize) {
        let cpu = with(|w| w.current_cpu()) as u32;
        let asked = with(|w| w.now());
        let held = self
            .ids
            .acquire_as(cpu, member as u32)
            .expect("there are IDs enough");
        let id = held.id();
        let since = with(|w| w.now());
        let mut foreign_lines = 0;
        let first = id as usize * AREA_LINES;
        for line in &self.areas[first..first + AREA_LINES] {
            let others = || with(|w| w.traffic.local + w.traffic.remote);
            let before = others();
            line.0.increment();
            let is_foreign = others() != before;
            foreign_lines += is_foreign as u64;
            crate::compute(INCREMENTS.ns + is_foreign as u64 as f64 * ASLEEP.ns);
        }
        let used = Used {
            id,
            foreign_lines,
            waited: since - asked,
        };
        self.meter.borrow_mut().burst(me, phase, since, used);
        self.ids.release(cpu, held);
    }

    /// Sleeps for the delay, and reclaims what is idle every 100 ms.
    fn rest(&self) {
        let until = Sim::now() + self.delay;
        let never = SimU32::new(0);
        loop {
            let scan = self.last_scan.get() + AGE;
            let next = until.min(scan.max(Sim::now()));
            while Sim::now() < next {
                Sim::park((&raw const never).cast(), 0, next, || 0);
            }
            if Sim::now() >= scan {
                self.last_scan.set(Sim::now());
                self.ids.reclaim(Sim::now());
            }
            if Sim::now() >= until {
                return;
            }
        }
    }

    fn wake_next(&self, me: usize) {
        if is_over() {
            // Everybody sees that it is.
            (0..self.turns.len()).for_each(|thread| self.wake(thread));
            return;
        }
        // Ends before anything is simulated: others run then.
        let next = self.order.borrow_mut().next(me);
        if let Some((from, to)) = next.resize {
            (from.members..to.members).for_each(|_| self.ids.join());
            (to.members..from.members).for_each(|m| self.ids.leave_as(m as u32));
            self.ids.set_cpus_allowed(to.cpus as u32);
        }
        if let Some(last) = next.last {
            let cpu = |thread| with(|w| w.cpu_of(thread)) as u32;
            self.ids.migrate(cpu(last), cpu(next.thread));
        }
        self.wake(next.thread);
    }

    fn wake(&self, thread: usize) {
        let turn = &self.turns[thread].0;
        turn.store(1, Release);
        Sim::unpark((&raw const *turn).cast(), 1);
    }
}

fn is_over() -> bool {
    with(|w| w.now() >= w.end)
}

/// Who runs next, and where: a scheduler that takes no time.
struct Order {
    random: u64,
    /// For each thread of the simulation, which stands for a CPU, the member that it runs, and in which phase.
    busy: Vec<Option<(usize, usize)>>,
    /// Threads that run at a time, and of those the ones that have not begun.
    at_a_time: usize,
    fresh: Vec<bool>,
    /// Those that have not had their turn in this cycle.
    left: Vec<usize>,
    /// If members and CPUs change: the CPU where each member ran last, whether it runs, and how many bursts there were.
    last: Vec<Option<usize>>,
    runs: Vec<bool>,
    changes: bool,
    bursts: u64,
}

/// Members, and CPUs that they may run on.
#[derive(Clone, Copy)]
struct Size {
    members: usize,
    cpus: usize,
}

struct Next {
    thread: usize,
    /// Where the member ran last, if that was elsewhere.
    last: Option<usize>,
    resize: Option<(Size, Size)>,
}

impl Order {
    fn new(threads: usize, changes: bool) -> Self {
        Order {
            random: with(|w| w.random()) | 1,
            busy: vec![None; threads],
            at_a_time: if changes {
                AT_A_TIME.min(threads.div_ceil(2))
            } else {
                1
            },
            fresh: vec![true; threads],
            // The first thread begins.
            left: (1..threads).collect(),
            last: vec![None; threads],
            runs: vec![false; threads],
            changes,
            bursts: 0,
        }
    }

    /// Whoever is among the first to run begins.
    fn starts(&mut self, me: usize) -> Option<(usize, usize)> {
        let starts = me < self.at_a_time && std::mem::take(&mut self.fresh[me]);
        starts.then(|| self.assign(me, me))
    }

    fn assign(&mut self, thread: usize, member: usize) -> (usize, usize) {
        self.runs[member] = true;
        let phase = self.phase();
        *self.busy[thread].insert((member, phase))
    }

    fn phase(&self) -> usize {
        if self.changes {
            (self.bursts / BURSTS) as usize % PHASES.len()
        } else {
            0
        }
    }

    /// As large as the machine allows.
    fn size(&self) -> Size {
        let threads = self.busy.len();
        let (members, cpus) = PHASES[self.phase()];
        Size {
            members: members.min(threads),
            cpus: cpus.min(threads),
        }
    }

    /// Thread `me` has run its member.
    fn next(&mut self, me: usize) -> Next {
        let (member, _) = self.busy[me].take().expect("it has run");
        self.runs[member] = false;
        self.last[member] = Some(me);
        if self.changes {
            self.next_anywhere()
        } else {
            self.next_in_turn()
        }
    }

    fn next_in_turn(&mut self) -> Next {
        if self.left.is_empty() {
            self.left = (0..self.busy.len()).collect();
        }
        let place = self.below(self.left.len());
        let thread = self.left.swap_remove(place);
        self.assign(thread, thread);
        Next {
            thread,
            last: None,
            resize: None,
        }
    }

    fn next_anywhere(&mut self) -> Next {
        let before = self.size();
        self.bursts += 1;
        let now = self.size();
        let changed = (before.members, before.cpus) != (now.members, now.cpus);
        let member = loop {
            let member = self.below(now.members);
            if !self.runs[member] {
                break member;
            }
        };
        let last = self.last[member];
        let stays = self.below(MIGRATES as usize) != 0;
        let home = last.filter(|&cpu| stays && cpu < now.cpus && self.busy[cpu].is_none());
        let thread = home.unwrap_or_else(|| {
            loop {
                let cpu = self.below(now.cpus);
                if self.busy[cpu].is_none() {
                    break cpu;
                }
            }
        });
        self.assign(thread, member);
        Next {
            thread,
            last: last.filter(|&last| last != thread),
            resize: changed.then_some((before, now)),
        }
    }

    fn below(&mut self, n: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 16) as usize % n
    }
}
