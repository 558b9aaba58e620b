//! One schedule: any bodies on the simulated machine, disturbed wherever the contracts allow it.
//! The functions of this module are for the threads of a schedule, and panic elsewhere.

use crate::machine::Machine;
use crate::platform::{self, Sim};
use crate::world::{Disruption, Disturbance, Note, Noted, Placement, Setup, Stuck, with};
use kinlock_core::events::Event;
use kinlock_core::platform::{NEVER, Platform};
use std::rc::Rc;

/// What to play.
#[derive(Clone, Debug)]
pub struct Schedule {
    /// The machine.
    pub machine: Machine,
    /// Threads, 1 or more; beyond the machine's CPUs they share them.
    pub threads: usize,
    /// Where threads run.
    pub placement: Placement,
    /// Waiter slots. If there are fewer than threads, some threads wait without one.
    pub slots: usize,
    /// What goes wrong. Its seed also starts the machine's random numbers: starting times, phases
    /// of spin loops, placement.
    pub disturbance: Disturbance,
    /// The waiters' patience, in nanoseconds: how long they assume that the waiters ahead of them
    /// run. Mostly [`NEVER`]: a lost wake-up only shows if no time limit wakes the sleeper.
    pub patience: u64,
    /// The number of accesses after which a schedule counts as endless.
    pub max_accesses: u64,
    /// Whether to keep a trace.
    pub trace: bool,
}

/// The outcome of a schedule.
#[derive(Clone, Debug)]
pub struct Played {
    /// Whether all threads came to an end.
    pub end: Result<(), Stuck>,
    /// Memory accesses.
    pub accesses: u64,
    /// The event counts of the library's locks, by [`Event`].
    pub counted: [u64; Event::ALL.len()],
    /// The disruptions, in the order of the host.
    pub disruptions: Vec<Disruption>,
    /// The trace, if one was kept; in the order of the host.
    pub trace: Vec<Note>,
}

/// The simulated nanoseconds after which a schedule counts as endless.
const MOST_NANOS: f64 = 100e9;

impl Schedule {
    /// A schedule with default limits and without a trace.
    pub fn new(machine: Machine, threads: usize, disturbance: Disturbance) -> Self {
        Schedule {
            machine,
            threads,
            placement: Placement::Random,
            slots: threads + 4,
            disturbance,
            patience: NEVER,
            max_accesses: 1_000_000,
            trace: false,
        }
    }

    /// Runs `body(shared, thread)` on every thread until all have returned, or are stuck.
    ///
    /// `prepare` makes the shared data, with [`place`](crate::place) if it is to be simulated
    /// memory. An interrupt runs `handler(shared, thread)` on the thread it interrupts.
    /// `check(shared, end)` inspects the data at the end, when accesses no longer take time; it
    /// must not wait. Threads that are stuck are unwound before it runs, which drops the values of
    /// their bodies.
    ///
    /// # Panics
    ///
    /// If there are no threads, or if a body panics.
    pub fn play<S: 'static, R>(
        &self,
        prepare: impl FnOnce() -> S,
        body: impl Fn(&S, usize) + Copy + 'static,
        handler: impl Fn(&S, usize) + 'static,
        check: impl FnOnce(&S, &Result<(), Stuck>) -> R,
    ) -> (Played, R) {
        assert!(self.threads > 0, "a schedule has threads");
        let setup = Setup {
            placement: self.placement,
            seed: self.disturbance.seed,
            limit: self.machine.costs.cycles(MOST_NANOS),
            max_accesses: self.max_accesses,
            disturbance: Some(self.disturbance.clone()),
            patience: self.patience,
            ..Setup::new(self.machine.clone(), self.threads)
        };
        let prepare = || {
            let shared = Rc::new(prepare());
            let handled = Rc::clone(&shared);
            with(|w| {
                w.handler = Some(Rc::new(move |thread| handler(&handled, thread)));
                w.notes = self.trace.then(Vec::new);
            });
            shared
        };
        let (mut world, end, verdict) = platform::run(
            &setup,
            self.slots,
            prepare,
            move |shared: &Rc<S>, thread| body(shared, thread),
            |shared, end| check(shared, end),
        );
        // The handler may refer to the arena, so it is dropped first.
        world.handler = None;
        let played = Played {
            end,
            accesses: world.accesses,
            counted: world.counted,
            disruptions: std::mem::take(&mut world.done),
            trace: world.notes.take().unwrap_or_default(),
        };
        (played, verdict)
    }
}

/// How many accesses there have been so far: a clock that advances whenever anything happens.
pub fn moment() -> u64 {
    with(|w| w.accesses)
}

/// The moment from which on the thread has certainly been in line for a lock, if it is. By then it
/// had queued, or become the pending waiter, and blocked. It may have been in line a little longer.
pub fn in_line_since(thread: usize) -> Option<u64> {
    with(|w| w.thread(thread).in_line_since)
}

/// Notes that the calling thread is no longer in line.
pub fn leave_line() {
    with(|w| {
        w.current().in_line = false;
        w.current().in_line_since = None;
    });
}

/// Adds a remark to the trace, if there is one.
pub fn say(what: &'static str) {
    with(|w| w.note(Noted::Said(what)));
}

/// How many waiter slots are in use.
pub fn slots_in_use() -> u32 {
    Sim::waiters().in_use()
}
