//! One schedule: bodies of any kind on the simulated machine, disturbed wherever the contracts
//! allow it. The functions of this module are for the threads of a schedule, and panic elsewhere.

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
    /// How long waiters believe that the ones on which they depend run, in nanoseconds. Mostly
    /// [`NEVER`]: a wake-up that is lost shows only where nobody is woken by a time limit.
    pub patience: u64,
    /// The number of accesses after which a schedule counts as endless.
    pub max_accesses: u64,
    /// Whether to keep a trace.
    pub trace: bool,
}

/// How it went.
#[derive(Clone, Debug)]
pub struct Played {
    /// Whether all threads came to an end.
    pub end: Result<(), Stuck>,
    /// Memory accesses.
    pub accesses: u64,
    /// What the library's locks counted, by [`Event`].
    pub counted: [u64; Event::ALL.len()],
    /// What was disrupted, in the order of the host.
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
    /// `prepare` makes what they share, with [`place`](crate::place) where it is to be simulated
    /// memory. An interrupt runs `handler(shared, thread)` on the thread it interrupts.
    /// `check(shared, end)` inspects what is left, when accesses no longer take time; it must not
    /// wait. Threads that are stuck are unwound before it runs: what their bodies hold is dropped.
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
        // The handler may refer to the arena, so it goes first.
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

/// The moment since which the thread has surely stood in line for a lock, if it does. By then it
/// had queued, or become the pending waiter, and blocked. It may have stood there a little longer.
pub fn in_line_since(thread: usize) -> Option<u64> {
    with(|w| w.thread(thread).in_line_since)
}

/// The calling thread no longer stands in line.
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
