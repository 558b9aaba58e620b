//! The parts that workloads for concurrency IDs share: the areas of the IDs, and the cost of a
//! burst of work on one.

use super::{Bursts, Constant};
use crate::platform::{Sim, SimU64};
use crate::world::{self, with};
use kinlock_core::platform::{Atomic, Platform};
use kinlock_ids::raw::{BLOCK, Block, Held, IdAllocator, Policy, Record};
use kinlock_measure::random::Random;
use std::cell::Cell;

pub(super) const HOT: Constant = Constant::assumed(
    1.1,
    "64 increments on a line in the first-level cache",
    "four loads, adds and stores of 16 bytes in 4 cycles",
);
pub(super) const COLD: Constant = Constant::fitted(
    1.68,
    "a line after the core has slept for 80 ms: beyond that",
    "chosen knowing the result: cid-10ms, per_cpu with 8 cores",
);
pub(super) const COOLING: Constant = Constant::fitted(
    2.67,
    "and for each tenfold of that time, less for less",
    "chosen knowing the result: cid-200ms, per_cpu with 8 cores",
);
pub(super) const OVERLAP: Constant = Constant::assumed(
    10.0,
    "lines that a core fetches at a time (a number, not a time)",
    "old cores have 10 line fill buffers, newer ones more",
);

/// The sleep that [`COLD`] is for, in nanoseconds.
const COLD_AFTER: f64 = 80e6;
pub(super) const AREA_LINES: usize = 256;
const PAGE_LINES: usize = 64;
/// The most CPUs that a machine may have: each may have an area, and all areas have to fit.
pub const MAX_CPUS: usize = 768;

type Ids = IdAllocator<Sim, (&'static [Record<Sim>], &'static [Block<Sim>])>;

/// A line of an area. Its first eight integers represent all of them.
#[repr(C, align(64))]
struct AreaLine(SimU64, [u64; 7]);

/// IDs, and an area of 16,384 eight-bit integers for each. The areas are simulated lines.
pub(super) struct Areas {
    pub(super) ids: &'static Ids,
    lines: &'static [AreaLine],
    /// Whether each area has been written.
    touched: Vec<Cell<bool>>,
    /// When each CPU has ended its last burst, in nanoseconds.
    stopped: Vec<Cell<u64>>,
}

impl Areas {
    pub(super) fn new(threads: usize, policy: Policy) -> Self {
        let capacity = capacity(threads);
        Self::on(
            crate::place_slice(capacity * AREA_LINES, |_| AreaLine(SimU64::new(0), [0; 7])),
            threads,
            policy,
        )
    }

    /// Untouched areas on the same lines, and unused IDs.
    pub(super) fn anew(&self, threads: usize) -> Self {
        Self::on(self.lines, threads, self.ids.policy())
    }

    fn on(lines: &'static [AreaLine], threads: usize, policy: Policy) -> Self {
        let (cpus, capacity) = (with(|w| w.setup.machine.shape.cpus()), capacity(threads));
        let records = crate::place_slice(cpus + threads, |_| Record::new());
        let blocks = crate::place_slice(capacity / BLOCK as usize, |_| Block::new());
        let ids = IdAllocator::new((records, blocks), cpus as u32, policy);
        Areas {
            ids: crate::place(ids),
            lines,
            touched: vec![Cell::new(false); capacity],
            stopped: vec![Cell::new(0); cpus],
        }
    }

    pub(super) fn set_size(&self, members: usize, cpus: usize) {
        self.ids.set_members(members as u32);
        self.ids.set_cpus_allowed(cpus as u32);
    }

    /// Acquires an ID for the current thread, as a kernel does when it switches to the thread. Also
    /// returns the cycles that took.
    pub(super) fn acquire(&self, member: usize) -> (Held, u64) {
        let (cpu, asked) = with(|w| (w.current_cpu() as u32, w.now()));
        let held = self.ids.acquire_as(cpu, member as u32);
        let held = held.expect("there are IDs enough");
        (held, with(|w| w.now()) - asked)
    }

    /// Called when the current thread stops: its CPU keeps the ID.
    pub(super) fn release(&self, held: Held) {
        let cpu = with(|w| w.current_cpu() as u32);
        self.ids.release(cpu, held);
        self.ids.mark_idle(cpu, Sim::now());
    }

    /// A burst: increments the integers of the area of an ID. `first_touch`: the cost of the first
    /// write to a page of it, in nanoseconds.
    pub(super) fn burst(&self, (held, waited): &(Held, u64), first_touch: f64) -> Bursts {
        let (id, since) = (held.id(), with(|w| w.now()));
        let touched = self.touched[id as usize].replace(true);
        let stopped = &self.stopped[with(|w| w.current_cpu())];
        let slept = Sim::now().saturating_sub(stopped.get()).max(1) as f64;
        let cold = COLD.ns + COOLING.ns * (slept / COLD_AFTER).log10();
        let nanos = HOT.ns + cold.max(0.0);
        let first = id as usize * AREA_LINES;
        let mut foreign_lines = 0;
        for (i, line) in self.lines[first..first + AREA_LINES].iter().enumerate() {
            if !touched && i % PAGE_LINES == 0 {
                crate::compute(first_touch);
            }
            let others = || with(|w| w.traffic.local + w.traffic.remote);
            let before = others();
            line.0.increment();
            foreign_lines += (others() != before) as u64;
            crate::compute(nanos);
            if (i + 1) % OVERLAP.ns as usize == 0 {
                world::compute(with(|w| w.undrained()));
            }
        }
        stopped.set(Sim::now());
        let nanos = |cycles| with(|w| w.costs().nanos(cycles));
        Bursts {
            count: 1,
            nanos: nanos(with(|w| w.now()) - since),
            ids: u64::from(id),
            largest: id,
            waited_nanos: nanos(*waited),
            foreign_lines,
            first_touches: u64::from(!touched),
        }
    }
}

/// The number of IDs. Threads beyond the number of CPUs share CPUs, and hold IDs beyond that
/// number.
fn capacity(threads: usize) -> usize {
    let cpus = with(|w| w.setup.machine.shape.cpus());
    cpus.max(threads).next_multiple_of(BLOCK as usize) + BLOCK as usize
}

/// Sleeps until the clock shows `until`.
pub(super) fn sleep_until(until: u64) {
    let never = crate::platform::SimU32::new(0);
    while Sim::now() < until {
        Sim::park((&raw const never).cast(), 0, until, || 0);
    }
}

/// Random numbers for decisions outside the simulated machine.
pub(super) struct Draws(Random);

impl Draws {
    pub(super) fn new() -> Self {
        Draws(Random::new(with(|w| w.random()) | 1))
    }

    pub(super) fn below(&mut self, n: usize) -> usize {
        // The published tables were simulated without the final multiplication.
        (self.0.step() >> 16) as usize % n
    }
}
