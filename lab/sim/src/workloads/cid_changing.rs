//! `cid-changing`: what does locality cost in density?
//!
//! Four threads run at a time, on CPUs that a scheduler picks. Members and allowed CPUs change from
//! phase to phase. Threads work on the areas of their IDs as in `cid-intermittent-10ms`, but no
//! first touch of a page costs extra, and idle IDs are reclaimed every 100 ms.

use super::cid::{Areas, COLD, COOLING, Draws, HOT, OVERLAP, sleep_until};
use super::{Body, Constant, Kind, Prepare, SharedMeter, none};
use crate::platform::{Sim, SimU32};
use crate::world::{Placement, with};
use kinlock_core::platform::{Atomic, NEVER, Ordering::*, Platform};
use kinlock_ids::raw::{AGE, Policy};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

const DELAY: Constant = Constant::assumed(
    10e6,
    "delay between a thread's burst and the next one's on its CPU",
    "the shorter one of cid-intermittent",
);

/// While members and allowed CPUs change.
pub const KIND: Kind = Kind {
    name: "cid-changing",
    about: "four threads at a time on CPUs that a scheduler picks, while members and allowed CPUs \
        change; bursts as in cid-intermittent-10ms",
    placement: Placement::Spread,
    parameters: &[HOT, COLD, COOLING, OVERLAP, DELAY],
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
/// One in `MIGRATES` wake-ups is on another CPU than the last one.
const MIGRATES: u64 = 8;

struct Changing {
    areas: Areas,
    /// What each CPU's thread sleeps on: 1 when it is to run.
    wakeups: &'static [Wakeup],
    order: RefCell<Order>,
    last_scan: Cell<u64>,
    meter: SharedMeter,
}

#[repr(align(128))]
struct Wakeup(SimU32);

fn prepare(threads: usize, policy: Policy, meter: SharedMeter) -> Rc<dyn Body> {
    let areas = Areas::new(threads, policy);
    let (members, cpus) = PHASES[0];
    areas.set_size(members.min(threads), cpus.min(threads));
    Rc::new(Changing {
        areas,
        wakeups: crate::place_slice(threads, |_| Wakeup(SimU32::new(0))),
        order: RefCell::new(Order::new(threads)),
        last_scan: Cell::new(0),
        meter,
    })
}

impl Body for Changing {
    fn iterate(&self, me: usize) -> u64 {
        let next = self.order.borrow_mut().starts(me);
        if let Some((member, phase)) = next.or_else(|| self.wait_for_wakeup(me)) {
            self.burst(me, member, phase);
            self.rest();
            self.wake_next(me);
        }
        0
    }
}

impl Changing {
    /// `None`: the run is over.
    fn wait_for_wakeup(&self, me: usize) -> Option<(usize, usize)> {
        let wakeup = &self.wakeups[me].0;
        let key = (&raw const *wakeup).cast();
        while wakeup.load(Acquire) == 0 {
            Sim::park(key, 0, NEVER, || wakeup.load(Relaxed));
        }
        wakeup.store(0, Relaxed);
        let order = self.order.borrow();
        (!is_over()).then(|| order.busy[me].expect("a woken CPU has a member"))
    }

    fn burst(&self, me: usize, member: usize, phase: usize) {
        let acquired = self.areas.acquire(member);
        let burst = self.areas.burst(&acquired, 0.0);
        let mut meter = self.meter.borrow_mut();
        if meter.covers(burst.since) {
            meter.burst(me, phase, burst);
        }
        drop(meter);
        self.areas.release(acquired.0);
    }

    /// Sleeps for the delay, and reclaims idle IDs every 100 ms.
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
            // All threads wake to see it.
            (0..self.wakeups.len()).for_each(|thread| self.wake(thread));
            return;
        }
        // This borrow ends before any access is simulated, since other threads run then.
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
        let wakeup = &self.wakeups[thread].0;
        wakeup.store(1, Release);
        Sim::unpark((&raw const *wakeup).cast(), 1);
    }
}

fn is_over() -> bool {
    with(|w| w.now() >= w.end)
}

/// A scheduler that takes no time: which member runs next, and where.
struct Order {
    draws: Draws,
    /// For each thread of the simulation, which stands for a CPU: the member that it runs, and the
    /// phase.
    busy: Vec<Option<(usize, usize)>>,
    /// Threads that run at a time.
    at_a_time: usize,
    /// Threads that have not begun.
    fresh: Vec<bool>,
    /// The CPU where each member ran last.
    last: Vec<Option<usize>>,
    /// Whether each member runs.
    runs: Vec<bool>,
    /// How many bursts there were.
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
            draws: Draws::new(),
            busy: vec![None; threads],
            at_a_time: AT_A_TIME.min(threads.div_ceil(2)),
            fresh: vec![true; threads],
            last: vec![None; threads],
            runs: vec![false; threads],
            bursts: 0,
        }
    }

    /// What thread `me` begins with, if it is one of the first to run.
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
            let member = self.draws.below(now.members);
            if !self.runs[member] {
                break member;
            }
        };
        let last = self.last[member];
        let stays = self.draws.below(MIGRATES as usize) != 0;
        let home = last.filter(|&cpu| stays && cpu < now.cpus && self.busy[cpu].is_none());
        let thread = home.unwrap_or_else(|| {
            loop {
                let cpu = self.draws.below(now.cpus);
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
