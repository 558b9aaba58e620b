//! `cid-changing`: four threads run at a time, on CPUs that a scheduler picks, while members and allowed CPUs change from phase to phase: what does locality cost in density?
//!
//! They work on the areas of their IDs as in `cid-intermittent-10ms`; here nobody is the first to touch one, and what is idle is reclaimed every 100 ms.

use super::cid::{Areas, COLD, FORGOTTEN, HOT, Lots, OVERLAP, sleep_until};
use super::{Body, Constant, Kind, Meter, Prepare, Used, none};
use crate::Sim;
use crate::platform::SimU32;
use crate::world::{Placement, with};
use kinlock_core::platform::{Atomic, NEVER, Ordering::*, Platform};
use kinlock_ids::raw::{AGE, Policy};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

const DELAY: Constant = Constant {
    name: "delay between a thread's burst and the next one's on its CPU",
    ns: 10e6,
    origin: "assumed",
    source: "the shorter one of cid-intermittent",
};

/// While members and allowed CPUs change.
pub const KIND: Kind = Kind {
    name: "cid-changing",
    about: "four threads at a time on CPUs that a scheduler picks, while members and allowed CPUs change; bursts as in cid-intermittent-10ms",
    placement: Placement::Spread,
    parameters: &[HOT, COLD, FORGOTTEN, OVERLAP, DELAY],
    prepare: Prepare::Ids {
        prepare,
        seconds: |_| PHASES.len() as f64 * BURSTS as f64 / AT_A_TIME as f64 * DELAY.ns / 1e9,
    },
    unsimulated_seconds: none,
};

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

struct Changing {
    areas: Areas,
    /// What a CPU's thread sleeps on: 1, it is its turn.
    turns: &'static [Turn],
    order: RefCell<Order>,
    last_scan: Cell<u64>,
    meter: Rc<RefCell<Meter>>,
}

#[repr(align(128))]
struct Turn(SimU32);

fn prepare(threads: usize, policy: Policy, meter: Rc<RefCell<Meter>>) -> Rc<dyn Body> {
    let areas = Areas::new(threads, policy);
    let (members, cpus) = PHASES[0];
    areas.set_size(members.min(threads), cpus.min(threads));
    Rc::new(Changing {
        areas,
        turns: crate::place_slice(threads, |_| Turn(SimU32::new(0))),
        order: RefCell::new(Order::new(threads)),
        last_scan: Cell::new(0),
        meter,
    })
}

impl Body for Changing {
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

impl Changing {
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
        let (held, waited) = self.areas.acquire(member);
        let since = with(|w| w.now());
        let foreign_lines = self.areas.burst(held.id(), true, 0.0);
        let used = Used {
            id: held.id(),
            foreign_lines,
            waited,
        };
        let mut meter = self.meter.borrow_mut();
        if meter.is_open(since) {
            meter.burst(me, phase, since, used);
        }
        drop(meter);
        self.areas.release(held);
    }

    /// Sleeps for the delay, and reclaims what is idle every 100 ms.
    fn rest(&self) {
        let until = Sim::now() + DELAY.ns as u64;
        loop {
            let scan = self.last_scan.get() + AGE;
            sleep_until(until.min(scan));
            if Sim::now() >= scan {
                self.last_scan.set(Sim::now());
                self.areas.ids.reclaim(Sim::now());
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
            (from.members..to.members).for_each(|_| self.areas.ids.join());
            (to.members..from.members).for_each(|m| self.areas.ids.leave_as(m as u32));
            self.areas.ids.set_cpus_allowed(to.cpus as u32);
        }
        if let Some(last) = next.last {
            let cpu = |thread| with(|w| w.cpu_of(thread)) as u32;
            self.areas.ids.migrate(cpu(last), cpu(next.thread));
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
    lots: Lots,
    /// For each thread of the simulation, which stands for a CPU, the member that it runs, and in which phase.
    busy: Vec<Option<(usize, usize)>>,
    /// Threads that run at a time, and of those the ones that have not begun.
    at_a_time: usize,
    fresh: Vec<bool>,
    /// The CPU where each member ran last, and whether it runs.
    last: Vec<Option<usize>>,
    runs: Vec<bool>,
    /// How many there were.
    bursts: u64,
}

/// Members, and CPUs that they may run on.
#[derive(Clone, Copy, PartialEq)]
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
    fn new(threads: usize) -> Self {
        Order {
            lots: Lots::new(),
            busy: vec![None; threads],
            at_a_time: AT_A_TIME.min(threads.div_ceil(2)),
            fresh: vec![true; threads],
            last: vec![None; threads],
            runs: vec![false; threads],
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
        (self.bursts / BURSTS) as usize % PHASES.len()
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
        let before = self.size();
        self.bursts += 1;
        let now = self.size();
        let member = loop {
            let member = self.lots.below(now.members);
            if !self.runs[member] {
                break member;
            }
        };
        let last = self.last[member];
        let stays = self.lots.below(MIGRATES as usize) != 0;
        let home = last.filter(|&cpu| stays && cpu < now.cpus && self.busy[cpu].is_none());
        let thread = home.unwrap_or_else(|| {
            loop {
                let cpu = self.lots.below(now.cpus);
                if self.busy[cpu].is_none() {
                    break cpu;
                }
            }
        });
        self.assign(thread, member);
        Next {
            thread,
            last: last.filter(|&last| last != thread),
            resize: (before != now).then_some((before, now)),
        }
    }
}
