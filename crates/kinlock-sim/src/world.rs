//! One simulation: virtual CPUs, the threads on them, and the order in which things happen.
//!
//! A thread is a coroutine with a clock of its own, in cycles. It runs until its clock is later than the earliest
//! event of anybody else; then it is suspended and the earliest goes on. So every access happens in the order of time, values
//! are sequentially consistent, and the same seed gives the same run on every host.
//!
//! # States of a thread
//!
//! | state | has a CPU | leaves it by |
//! | --- | --- | --- |
//! | `Running` | yes | its own doing: spins, parks, ends; or its time slice is over |
//! | `Spinning` on a line | yes | a write to the line, its time limit, or its time slice is over (it looks again when it runs) |
//! | `Queued` | no | its CPU becomes free |
//! | `Parked` at a key | no | unpark, its time limit |
//! | `Ended` | no | |
//!
//! Each wait has an **epoch**: an event or a spinner's entry from an earlier one is void.
//!
//! # Invariants
//!
//! 1. A `World` and its coroutines live on one host thread, and `WORLD` points at the `World` for exactly as long as
//!    [`run`] executes. No reference into the `World` is held across a suspension.
//! 2. What is placed in the arena is used by the run's coroutines and by its caller before the `World` is dropped only.
//! 3. `Thread::look` is set when its thread is about to be suspended in `spin_on`, whose closure it names, and taken before
//!    the thread goes on. The closure is called in between only, while the run goes on; it does not suspend, for it runs in one step.

mod access;
mod coroutine;
mod disturbance;
mod doing;
mod events;
mod schedule;

use crate::coherence::{Fabric, Place};
use crate::machine::Machine;
use crate::memory::{Arena, Lines};
use crate::platform::Sim;
use crate::run::Traffic;
use access::Pending;
pub(crate) use access::{How, access};
use corosensei::Yielder;
use coroutine::Bodies;
pub use disturbance::{Disruption, Disturbance, Kind as DisruptionKind, Note, Noted, Spot};
use doing::{Look, content_with_spinning};
pub(crate) use doing::{compute, park, requeue_but, spin_on, unpark, unpark_some};
use events::{Events, What};
use kinlock_core::config::Tuning;
use kinlock_core::events::Event as Counted;
use kinlock_core::raw::waiter::Waiters;
use kinlock_core::topology::DomainKind;
pub use schedule::Placement;
use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;

/// Counters of [`Counted`] events.
pub(crate) const COUNTED: usize = Counted::ALL.len();

/// Where and when a thread is. What most accesses look at comes first, in one line of the host.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Thread {
    /// Its clock.
    pub(crate) now: u64,
    /// When it must leave its CPU to another thread.
    preempt_at: u64,
    /// When its store buffer is empty.
    drained: u64,
    yielder: *const Yielder<(), ()>,
    /// The access it is at while it is suspended.
    pending: Pending,
    place: Place,
    epoch: u32,
    state: State,
    /// It has begun to wait in line; the moment from which on it surely stood there.
    pub(crate) in_line: bool,
    /// Who looked for it was content.
    content: bool,
    pub(crate) in_line_since: Option<u64>,
    random: u64,
    /// How to look for it while it spins.
    look: Option<Look>,
    cpu: usize,
    /// The first CPU of its core.
    first_sibling: usize,
    /// Accesses it has made.
    accesses: u32,
    pub(crate) slot: u16,
    /// Pinned to its CPU.
    pinned: bool,
    /// Its last sleep ended without a wake-up.
    overslept: bool,
    /// It runs an interrupt's handler.
    interrupted: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Running,
    Spinning,
    Queued,
    Parked,
    Ended,
}

#[derive(Debug, Default)]
struct Cpu {
    running: Option<usize>,
    queue: VecDeque<usize>,
    slice_end: u64,
}

/// A thread that sleeps.
#[derive(Debug)]
struct Sleeper {
    key: usize,
    id: usize,
    sets: u32,
}

/// A simulation under way.
pub(crate) struct World {
    pub(crate) arena: Arena,
    lines: Lines,
    fabric: Fabric,
    machine: Machine,
    threads: Vec<Thread>,
    cpus: Vec<Cpu>,
    parked: Vec<Sleeper>,
    /// Threads in the queues of CPUs that may run on any.
    movable: usize,
    events: Events,
    current: usize,
    in_one_step: bool,
    /// The next access has been made already.
    read_already: bool,
    ended: usize,
    limit: u64,
    pub(crate) end: u64,
    pub(crate) tuning: Tuning,
    pub(crate) domain: DomainKind,
    pub(crate) waiters: Option<&'static Waiters<Sim>>,
    pub(crate) accesses: u64,
    pub(crate) switches: u64,
    pub(crate) traffic: Traffic,
    pub(crate) counted: [u64; COUNTED],
    pub(crate) disturbance: Option<Disturbance>,
    pub(crate) done: Vec<Disruption>,
    /// What happened, if that is to be remembered.
    pub(crate) notes: Option<Vec<Note>>,
    pub(crate) handler: Option<Rc<dyn Fn(usize)>>,
    max_accesses: u64,
    /// The next event comes after `limit`.
    too_late: bool,
    /// All coroutines have ended or are being unwound: accesses take no time, and nobody waits.
    over: bool,
}

/// What a world is made from.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) machine: Machine,
    pub(crate) threads: usize,
    pub(crate) placement: Placement,
    pub(crate) tuning: Tuning,
    pub(crate) domain: DomainKind,
    pub(crate) seed: u64,
    /// When workloads are to end, in cycles.
    pub(crate) end: u64,
    /// When a run counts as stuck, in cycles.
    pub(crate) limit: u64,
    /// The same, in accesses.
    pub(crate) max_accesses: u64,
    pub(crate) disturbance: Option<Disturbance>,
}

/// Nobody can go on, or it takes too long.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Stuck {
    /// All threads that have not ended wait, and nobody is going to wake them.
    #[error("deadlock: {0}")]
    Deadlock(String),
    /// The run went on for far longer than it should.
    #[error("no end in sight: {0}")]
    Endless(String),
}

thread_local! {
    static WORLD: Cell<*mut World> = const { Cell::new(std::ptr::null_mut()) };
}

/// Runs `body(thread)` on every thread until all have returned. `prepare` places what they share; `judge` looks at it
/// in the end.
///
/// # Errors
///
/// If they do not all return: with the world as it was then.
pub(crate) fn run<S: Clone + 'static, R>(
    setup: &Setup,
    prepare: impl FnOnce() -> S,
    body: impl Fn(&S, usize) + Copy + 'static,
    judge: impl FnOnce(&S, &Result<(), Stuck>) -> R,
) -> (Box<World>, Result<(), Stuck>, R) {
    let mut world = Box::new(World::new(setup));
    WORLD.set(&raw mut *world);
    let _unset = Unset;
    let shared = prepare();
    let mut bodies = Bodies::spawn(setup.threads, &shared, body);
    while let Some(thread) = with(World::next) {
        if content_with_spinning() && bodies.resume(thread) {
            with(World::end_current);
        }
    }
    let result = with(|w| w.verdict());
    drop(bodies);
    let verdict = judge(&shared, &result);
    (world, result, verdict)
}

/// Clears `WORLD` when a run ends, also by a panic.
struct Unset;

impl Drop for Unset {
    fn drop(&mut self) {
        WORLD.set(std::ptr::null_mut());
    }
}

/// The simulation under way on this host thread.
///
/// # Panics
///
/// If there is none.
#[inline]
pub(crate) fn with<R>(f: impl FnOnce(&mut World) -> R) -> R {
    let world = WORLD.get();
    assert!(
        !world.is_null(),
        "simulated memory is used outside of a run"
    );
    // SAFETY: invariant 1; `f` neither suspends nor calls back into this function.
    f(unsafe { &mut *world })
}

impl World {
    fn new(setup: &Setup) -> Self {
        let arena = Arena::new();
        let lines = Lines::new(&arena);
        let shape = &setup.machine.shape;
        let mut world = World {
            lines,
            arena,
            fabric: Fabric::new(shape, &setup.machine.costs),
            machine: setup.machine.clone(),
            threads: Vec::new(),
            cpus: (0..shape.cpus()).map(|_| Cpu::default()).collect(),
            parked: Vec::new(),
            movable: 0,
            events: Events::new(),
            current: 0,
            in_one_step: false,
            read_already: false,
            ended: 0,
            limit: setup.limit,
            end: setup.end,
            tuning: setup.tuning,
            domain: setup.domain,
            waiters: None,
            accesses: 0,
            switches: 0,
            traffic: Traffic::default(),
            counted: [0; COUNTED],
            disturbance: setup.disturbance.clone(),
            done: Vec::new(),
            notes: None,
            handler: None,
            max_accesses: setup.max_accesses,
            too_late: false,
            over: false,
        };
        world.start(setup);
        world
    }

    pub(crate) fn now(&self) -> u64 {
        self.threads[self.current].now
    }

    pub(crate) fn costs(&self) -> &crate::machine::Costs {
        &self.fabric.costs
    }

    pub(crate) fn machine(&self) -> &Machine {
        &self.machine
    }

    pub(crate) fn thread(&self, thread: usize) -> &Thread {
        &self.threads[thread]
    }

    pub(crate) fn current(&mut self) -> &mut Thread {
        &mut self.threads[self.current]
    }

    /// The last-level cache and the socket of the current thread.
    pub(crate) fn whereabouts(&self) -> (usize, usize) {
        let cache = self.threads[self.current].place.cache;
        (cache as usize, self.fabric.socket(cache) as usize)
    }

    /// The CPU of a pinned thread.
    pub(crate) fn cpu_of(&self, thread: usize) -> usize {
        self.threads[thread].cpu
    }

    /// The CPU of the current thread.
    pub(crate) fn current_cpu(&self) -> usize {
        self.threads[self.current].cpu
    }

    /// For how long the current thread's stores are still under way.
    pub(crate) fn undrained(&self) -> u64 {
        let thread = &self.threads[self.current];
        thread.drained.saturating_sub(thread.now)
    }

    pub(crate) fn random(&mut self) -> u64 {
        next_random(&mut self.threads[self.current].random)
    }
}

/// xorshift64*: the upper bits are good.
#[inline]
fn next_random(state: &mut u64) -> u64 {
    // A state of 0 would stay 0.
    *state |= (*state == 0) as u64;
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
}
