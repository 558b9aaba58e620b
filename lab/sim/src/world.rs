//! One simulation: virtual CPUs, the threads on them, and the order in which things happen.
//!
//! A thread is a coroutine with a clock of its own, in cycles. It runs until its clock is later
//! than the earliest event of any other thread; then it is suspended, and the thread of that event
//! goes on. So accesses happen in the order of time, values are sequentially consistent, and the
//! same seed gives the same run on every host.
//!
//! | file | what |
//! | --- | --- |
//! | `coroutine` | how a thread is made, suspended and unwound |
//! | `events` | what happens next |
//! | `access` | memory accesses of a thread |
//! | `actions` | other actions of a thread: compute, spin, sleep, wake others |
//! | `cpus` | which thread runs on which CPU |
//! | `disturbance` | random preemptions, interrupts and spurious wake-ups |
//!
//! # States of a thread
//!
//! | state | has a CPU | leaves it by |
//! | --- | --- | --- |
//! | `Running` | yes | spinning, parking, ending, or the end of its time slice |
//! | `Spinning` on a line | yes | a write to the line, its time limit, or the end of its slice |
//! | `Queued` | no | its CPU becoming free |
//! | `Parked` at a key | no | unpark, or its time limit |
//! | `Ended` | no | |
//!
//! Each wait has an **epoch**: events and spinners' entries from an earlier epoch are void.
//!
//! # Invariants
//!
//! 1. A `World` and its coroutines live on one host thread, and `WORLD` points at the `World` for
//!    exactly as long as [`run`] executes. No reference into the `World` is held across a
//!    suspension.
//! 2. Only the run's coroutines and its caller use values in the arena, and only before the `World`
//!    is dropped.

mod access;
mod actions;
mod coroutine;
mod cpus;
mod disturbance;
mod events;

pub(crate) use crate::coherence::How;
use crate::coherence::{Fabric, Place, Traffic};
use crate::machine::{Costs, Machine};
use crate::memory::{Arena, Lines};
use crate::trace::{Part, Recorder, Recording, Whereabouts};
use access::Pending;
pub(crate) use access::access;
pub(crate) use actions::{compute, leave_spin, park, requeue_but, spin, unpark, unpark_some};
use corosensei::Yielder;
use coroutine::Bodies;
pub(crate) use coroutine::wait_for_turn;
pub use cpus::Placement;
use disturbance::Unseen;
pub use disturbance::{
    Disruption, Disturbance, FencesDisturbed, Kind as DisruptionKind, Note, Noted, Spot,
};
use events::{Events, What};
use kinlock_core::config::Tuning;
use kinlock_core::events::Event as Counted;
use kinlock_core::fence_calls::FenceCalls;
use kinlock_core::platform::NEVER;
use kinlock_linux::topology::DomainKind;
use kinlock_measure::random::Random;
use std::any::Any;
use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;

/// Counters of [`Counted`] events.
pub(crate) const COUNTED: usize = Counted::ALL.len();

/// Where and when a thread is. The fields that most accesses read come first, in one line of the
/// host.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Thread {
    /// Its clock.
    pub(crate) now: u64,
    /// When it must leave its CPU to another thread.
    preempt_at: u64,
    /// When the system's timer interrupts it next.
    next_tick: u64,
    /// When its store buffer is empty.
    drained: u64,
    /// The line that its last load has fetched, and when the line arrived.
    fetched: (usize, u64),
    yielder: *const Yielder<(), ()>,
    /// The access in which it is suspended.
    pending: Pending,
    place: Place,
    epoch: u32,
    state: State,
    /// Whether it has begun to wait in line for a lock.
    pub(crate) in_line: bool,
    /// The moment from which on it has certainly been in line.
    pub(crate) in_line_since: Option<u64>,
    random: Random,
    cpu: usize,
    /// The first CPU of its core.
    first_sibling: usize,
    /// Accesses it has made.
    accesses: u32,
    pub(crate) slot: u16,
    /// Its row in the visible readers table.
    pub(crate) row: Option<usize>,
    /// Whether it is pinned to its CPU.
    pinned: bool,
    /// Whether its last sleep ended without a wake-up.
    overslept: bool,
    /// Whether it runs an interrupt's handler.
    interrupted: bool,
}

impl Thread {
    /// Changes its state. Events and spinners' entries of the previous state become void.
    fn enter(&mut self, state: State) {
        self.epoch += 1;
        self.state = state;
    }
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
    /// When it began to run the current thread, including the switch to it.
    since: u64,
    /// Whether threads may run on it.
    usable: bool,
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
    pub(crate) setup: Setup,
    threads: Vec<Thread>,
    cpus: Vec<Cpu>,
    parked: Vec<Sleeper>,
    /// Threads in the queues of CPUs that may run on any CPU.
    movable: usize,
    events: Events,
    current: usize,
    in_one_step: bool,
    ended: usize,
    /// The table of waiter slots; `platform` knows its type.
    pub(crate) waiters: Option<&'static dyn Any>,
    /// The visible readers table, likewise.
    pub(crate) announced: Option<&'static dyn Any>,
    /// How many CPUs threads may run on.
    pub(crate) usable_cpus: usize,
    /// How long CPUs were busy after the warm-up, in cycles, all together.
    pub(crate) busy: u64,
    pub(crate) accesses: u64,
    pub(crate) traffic: Traffic,
    pub(crate) counted: [u64; COUNTED],
    /// The writes that each thread may miss, if the disturbance includes that.
    unseen: Vec<Unseen>,
    /// The heavy fences of the process, if the disturbance does not say otherwise.
    pub(crate) fences: Rc<FenceCalls>,
    pub(crate) done: Vec<Disruption>,
    /// The trace, if one is kept.
    pub(crate) notes: Option<Vec<Note>>,
    /// The recorder of hand-offs, if they are traced.
    pub(crate) recorder: Recording,
    /// Whether no access is simple, because accesses are disturbed or recorded.
    watched: bool,
    pub(crate) handler: Option<Rc<dyn Fn(usize)>>,
    /// Whether the next event comes after the limit.
    too_late: bool,
    /// Whether all coroutines have ended or are being unwound: then accesses take no time, and no
    /// thread may wait.
    over: bool,
}

/// The parameters of a world.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) machine: Machine,
    pub(crate) threads: usize,
    pub(crate) placement: Placement,
    pub(crate) tuning: Tuning,
    pub(crate) domain: DomainKind,
    pub(crate) seed: u64,
    /// How many of the machine's CPUs may be used; `None`: all.
    pub(crate) cpus: Option<usize>,
    /// When the warm-up ends, in cycles.
    pub(crate) start: u64,
    /// When workloads are to end, in cycles.
    pub(crate) end: u64,
    /// When a run counts as stuck, in cycles.
    pub(crate) limit: u64,
    /// After how many accesses a run counts as stuck.
    pub(crate) max_accesses: u64,
    pub(crate) disturbance: Option<Disturbance>,
    /// The waiters' patience, in nanoseconds: how long they assume that the waiters ahead of them
    /// run.
    pub(crate) patience: u64,
    /// Factors for constants of the workload, by name.
    pub(crate) factors: Vec<(&'static str, f64)>,
    /// Whether hand-offs are traced.
    pub(crate) trace: bool,
}

impl Setup {
    /// An undisturbed run without an end, on the first CPUs.
    pub(crate) fn new(machine: Machine, threads: usize) -> Self {
        Setup {
            machine,
            threads,
            placement: Placement::Compact,
            tuning: Tuning::DEFAULT,
            domain: DomainKind::Node,
            seed: 1,
            cpus: None,
            start: 0,
            end: 0,
            limit: u64::MAX,
            max_accesses: u64::MAX,
            disturbance: None,
            patience: NEVER,
            factors: Vec::new(),
            trace: false,
        }
    }
}

/// Why a run was given up.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Stuck {
    /// All threads that have not ended wait, and none is left to wake them.
    #[error("deadlock: {0}")]
    Deadlock(String),
    /// The run went on for far longer than it should.
    #[error("no end in sight: {0}")]
    Endless(String),
}

thread_local! {
    static WORLD: Cell<*mut World> = const { Cell::new(std::ptr::null_mut()) };
}

/// Runs `body(shared, thread)` on every thread until all have returned. `prepare` places the shared
/// data; `check` inspects it at the end.
///
/// # Errors
///
/// If not all of them return. The returned world is in the state of that moment.
pub(crate) fn run<S: Clone + 'static, R>(
    setup: &Setup,
    prepare: impl FnOnce() -> S,
    body: impl Fn(&S, usize) + Copy + 'static,
    check: impl FnOnce(&S, &Result<(), Stuck>) -> R,
) -> (Box<World>, Result<(), Stuck>, R) {
    let mut world = Box::new(World::new(setup));
    WORLD.set(&raw mut *world);
    let _unset = Unset;
    let shared = prepare();
    let mut bodies = Bodies::spawn(setup.threads, &shared, body);
    while let Some(thread) = with(World::next) {
        if bodies.resume(thread) {
            with(World::end_current);
        }
    }
    let result = with(|w| w.verdict());
    drop(bodies);
    let verdict = check(&shared, &result);
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
            setup: setup.clone(),
            threads: Vec::new(),
            cpus: (0..shape.cpus()).map(|_| Cpu::default()).collect(),
            parked: Vec::new(),
            movable: 0,
            events: Events::new(),
            current: 0,
            in_one_step: false,
            ended: 0,
            busy: 0,
            usable_cpus: 0,
            waiters: None,
            announced: None,
            accesses: 0,
            traffic: Traffic::default(),
            counted: [0; COUNTED],
            unseen: Vec::new(),
            fences: Rc::new(FenceCalls::NONE),
            done: Vec::new(),
            notes: None,
            recorder: Recording(
                setup
                    .trace
                    .then(|| Box::new(Recorder::new(setup.threads, setup.start..setup.end))),
            ),
            watched: setup.disturbance.is_some() || setup.trace,
            handler: None,
            too_late: false,
            over: false,
        };
        world.start(setup);
        world
    }

    pub(crate) fn now(&self) -> u64 {
        self.threads[self.current].now
    }

    pub(crate) fn costs(&self) -> &Costs {
        &self.fabric.costs
    }

    pub(crate) fn thread(&self, thread: usize) -> &Thread {
        &self.threads[thread]
    }

    pub(crate) fn current(&mut self) -> &mut Thread {
        &mut self.threads[self.current]
    }

    /// The last-level cache and the socket of the current thread.
    pub(crate) fn here(&self) -> Whereabouts {
        let cache = self.threads[self.current].place.cache;
        let socket = self.fabric.socket(cache) as usize;
        let cache = cache as usize;
        Whereabouts { cache, socket }
    }

    /// Records that the current thread, which asked for the lock under test at time `asked`, has
    /// it.
    pub(crate) fn trace_acquired(&mut self, asked: u64) {
        let (me, here, now) = (self.current, self.here(), self.now());
        let shape = &self.setup.machine.shape;
        let far = |before: Whereabouts| shape.distance(before.cache, here.cache);
        (self.recorder).tell(|recorder| recorder.acquired((me, here), asked, now, far));
    }

    /// Records that the current thread releases the lock under test.
    pub(crate) fn trace_released(&mut self) {
        let (me, here, now) = (self.current, self.here(), self.now());
        (self.recorder).tell(|recorder| recorder.released((me, here), now));
    }

    /// Sets the part to which later placements belong.
    pub(crate) fn place_part(&mut self, part: Part) {
        self.recorder.tell(|recorder| recorder.placing = part);
    }

    /// Records that `n` values of `size` bytes, or a single one, have been placed at `address`.
    pub(crate) fn placed(&mut self, address: usize, size: usize, n: Option<usize>) {
        (self.recorder).tell(|recorder| recorder.placed(address, size, n));
    }

    /// The CPU of the current thread.
    pub(crate) fn current_cpu(&self) -> usize {
        self.threads[self.current].cpu
    }

    /// How long the current thread's stores are still under way.
    pub(crate) fn undrained(&self) -> u64 {
        let thread = &self.threads[self.current];
        thread.drained.saturating_sub(thread.now)
    }

    pub(crate) fn random(&mut self) -> u64 {
        self.threads[self.current].random.next()
    }
}
