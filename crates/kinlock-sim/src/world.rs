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
//! 2. `Thread::yielder` is set by the coroutine itself before its first suspension, and the yielder outlives the
//!    coroutine's body, the only place from which it is used.
//! 3. What is placed in the arena is used by the run's coroutines and by its caller before the `World` is dropped only.

mod disturbance;
mod schedule;

use crate::coherence::{Fabric, Kind, Place, Service};
use crate::machine::Machine;
use crate::memory::{Arena, Lines};
use crate::platform::Sim;
use crate::run::Traffic;
use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};
pub use disturbance::{Disruption, Disturbance, Kind as DisruptionKind, Note, Noted, Spot};
use kinlock::config::Tuning;
use kinlock::events::Event as Counted;
use kinlock::platform::NEVER;
use kinlock::raw::waiter::Waiters;
use kinlock::topology::DomainKind;
pub use schedule::Placement;
use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::rc::Rc;

/// Enough for the deepest lock and workload; a coroutine's stack costs only the pages it touches.
const STACK: usize = 64 << 10;
/// Counters of [`Counted`] events.
pub(crate) const COUNTED: usize = Counted::ALL.len();

/// Where and when a thread is.
#[derive(Debug)]
pub(crate) struct Thread {
    /// Its clock.
    pub(crate) now: u64,
    epoch: u32,
    state: State,
    cpu: usize,
    place: Place,
    /// For how long its latest request has travelled already.
    travelled: u64,
    /// When its store buffer is empty.
    drained: u64,
    /// When it must leave its CPU to another thread.
    preempt_at: u64,
    /// Pinned to its CPU.
    pinned: bool,
    yielder: *const Yielder<(), ()>,
    random: u64,
    pub(crate) slot: u16,
    /// Accesses it has made.
    accesses: u32,
    /// It has begun to wait in line; the moment from which on it surely stood there.
    pub(crate) in_line: bool,
    pub(crate) in_line_since: Option<u64>,
    /// It runs an interrupt's handler.
    interrupted: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Running,
    Spinning,
    Queued,
    Parked(usize),
    Ended,
}

#[derive(Debug, Default)]
struct Cpu {
    running: Option<usize>,
    queue: VecDeque<usize>,
    slice_end: u64,
}

/// What is going to happen: at its time; of two at the same time, first the one that was planned first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Event {
    time: u64,
    seq: u64,
    thread: u32,
    epoch: u32,
    what: What,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum What {
    /// The thread goes on.
    Step,
    /// The time limit of its wait is over.
    TimeLimit,
    /// Its time slice is over while it spins.
    SliceEnd,
}

/// A simulation under way.
pub(crate) struct World {
    pub(crate) arena: Arena,
    lines: Lines,
    fabric: Fabric,
    machine: Machine,
    threads: Vec<Thread>,
    cpus: Vec<Cpu>,
    parked: Vec<(usize, usize)>,
    /// Threads in the queues of CPUs that may run on any.
    movable: usize,
    heap: BinaryHeap<Reverse<Event>>,
    seq: u64,
    current: usize,
    in_one_step: bool,
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

type Body = Coroutine<(), (), (), DefaultStack>;

thread_local! {
    static WORLD: Cell<*mut World> = const { Cell::new(std::ptr::null_mut()) };
    /// Stacks of finished coroutines, for the next ones.
    static STACKS: RefCell<Vec<DefaultStack>> = const { RefCell::new(Vec::new()) };
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
    let mut bodies = Bodies(
        (0..setup.threads)
            .map(|thread| spawn(thread, shared.clone(), body))
            .collect(),
    );
    let result = loop {
        match with(World::next) {
            Ok(Some(thread)) => {
                if let CoroutineResult::Return(()) = bodies.0[thread].resume(()) {
                    with(World::end_current);
                }
            }
            Ok(None) => break Ok(()),
            Err(stuck) => break Err(stuck),
        }
    };
    drop(bodies);
    let verdict = judge(&shared, &result);
    (world, result, verdict)
}

/// The coroutines of a run. Those that are suspended when it ends, after a failure, are unwound: what they hold is
/// dropped, also by locks that still wait, which must not suspend again.
struct Bodies(Vec<Body>);

impl Drop for Bodies {
    fn drop(&mut self) {
        with(|w| w.over = true);
        for mut body in self.0.drain(..) {
            body.force_unwind();
            STACKS.with_borrow_mut(|stacks| stacks.push(body.into_stack()));
        }
    }
}

fn spawn<S: 'static>(thread: usize, shared: S, body: impl Fn(&S, usize) + 'static) -> Body {
    let stack = STACKS
        .with_borrow_mut(Vec::pop)
        .unwrap_or_else(|| DefaultStack::new(STACK).expect("there is memory for a stack"));
    Coroutine::with_stack(stack, move |yielder: &Yielder<(), ()>, ()| {
        with(|w| w.threads[thread].yielder = yielder);
        body(&shared, thread);
        let slot = with(|w| w.threads[thread].slot);
        if slot != 0 {
            crate::platform::release_slot(slot);
        }
    })
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

/// One access of the current thread to the line at `address`.
#[inline]
pub(crate) fn access(address: usize, kind: Kind, how: How) {
    if let Some(handler) = with(World::count_access) {
        interrupt(&handler);
    }
    wait_for_turn();
    // A store asks at once: its thread does not wait for the line.
    if how != How::Store && with(|w| w.send_request(address, kind, how)) {
        wait_for_turn();
    }
    with(|w| w.access(address, kind, how));
}

/// Runs a handler on the current thread, as a signal does.
#[cold]
fn interrupt(handler: &Rc<dyn Fn(usize)>) {
    let me = with(|w| w.current);
    with(|w| w.threads[me].interrupted = true);
    handler(me);
    with(|w| w.threads[me].interrupted = false);
}

/// How a write or read-modify-write meets the store buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum How {
    /// A load: the thread waits for it.
    Load,
    /// A store: buffered; the line is asked for meanwhile.
    Store,
    /// A locked read-modify-write: the buffer drains first, and the thread waits.
    Locked,
}

/// Lets everybody go first whose clock is earlier.
#[inline]
pub(crate) fn wait_for_turn() {
    while let Some(yielder) = with(World::must_yield) {
        // SAFETY: invariant 2; no reference into the world is alive (invariant 1).
        unsafe { (*yielder).suspend(()) };
    }
}

/// Suspends the current thread, which has planned how it goes on.
fn suspend() {
    let yielder = with(|w| {
        assert!(!w.over, "nobody may wait after a run");
        w.threads[w.current].yielder
    });
    // SAFETY: invariant 2; no reference into the world is alive (invariant 1).
    unsafe { (*yielder).suspend(()) };
}

/// The current thread computes for `cycles`, slower while the sibling hardware thread is busy.
pub(crate) fn compute(cycles: u64) {
    let mut left = cycles;
    loop {
        // In pieces, so that a time slice can end in between.
        let piece = left.min(with(|w| w.fabric.costs.time_slice));
        with(|w| w.compute(piece));
        left -= piece;
        if left == 0 {
            return;
        }
        wait_for_turn();
    }
}

/// Spins until a write to the line at `address` or until the clock reaches `until`; the caller looks again.
pub(crate) fn spin_on(address: usize, until: u64) {
    with(|w| w.spin(address, until));
    suspend();
}

/// Sleeps at `key` until unparked or until the clock reaches `until`, if `still` holds.
pub(crate) fn park(key: usize, until: u64, still: impl FnOnce() -> bool) {
    with(|w| w.compute_alone(w.fabric.costs.park));
    wait_for_turn();
    if in_one_step(still) {
        let until = with(|w| w.sleep_until(until));
        with(|w| w.park(key, until));
        suspend();
    }
}

/// Wakes up to `n` threads that sleep at `key`, first come first served.
pub(crate) fn unpark(key: usize, n: usize) {
    with(|w| w.compute_alone(w.fabric.costs.unpark));
    wait_for_turn();
    with(|w| w.unpark(key, n));
}

/// Moves everybody who sleeps at `from` to `to`, if `still` holds.
pub(crate) fn requeue(from: usize, to: usize, still: impl FnOnce() -> bool) {
    with(|w| w.compute_alone(w.fabric.costs.unpark));
    wait_for_turn();
    if in_one_step(still) {
        with(|w| {
            if w.by_chance(|d| d.spurious_one_in) {
                w.unpark(from, usize::MAX);
            } else {
                w.requeue(from, to);
            }
        });
    }
}

/// Runs `f` with nobody else in between.
fn in_one_step<R>(f: impl FnOnce() -> R) -> R {
    with(|w| w.in_one_step = true);
    let result = f();
    with(|w| w.in_one_step = false);
    result
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
            heap: BinaryHeap::new(),
            seq: 0,
            current: 0,
            in_one_step: false,
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
            over: false,
        };
        world.start(setup);
        world
    }

    /// The thread to go on; `None` when all have ended.
    fn next(&mut self) -> Result<Option<usize>, Stuck> {
        if self.accesses > self.max_accesses {
            return Err(Stuck::Endless(self.describe()));
        }
        while let Some(Reverse(event)) = self.heap.pop() {
            let id = event.thread as usize;
            if event.epoch != self.threads[id].epoch {
                continue;
            }
            if event.time > self.limit {
                return Err(Stuck::Endless(self.describe()));
            }
            if self.due(id, event) {
                self.switches += 1;
                self.current = id;
                return Ok(Some(id));
            }
        }
        if self.ended == self.threads.len() {
            Ok(None)
        } else {
            Err(Stuck::Deadlock(self.describe()))
        }
    }

    fn plan(&mut self, time: u64, thread: usize, what: What) {
        self.seq += 1;
        self.heap.push(Reverse(Event {
            time,
            seq: self.seq,
            thread: thread as u32,
            epoch: self.threads[thread].epoch,
            what,
        }));
    }

    /// Whether the current thread has to let others go first: then its return is planned.
    #[inline]
    fn must_yield(&mut self) -> Option<*const Yielder<(), ()>> {
        let thread = &self.threads[self.current];
        let now = thread.now;
        let others_first = self.heap.peek().is_some_and(|Reverse(e)| e.time < now);
        let go_on = !others_first && now < thread.preempt_at && self.accesses <= self.max_accesses;
        if go_on || self.in_one_step || thread.yielder.is_null() || self.over {
            return None;
        }
        Some(self.leave_for_now())
    }

    /// Counts an access, and disturbs it: returns the handler of an interrupt that comes now.
    #[inline]
    fn count_access(&mut self) -> Option<Rc<dyn Fn(usize)>> {
        self.accesses += 1;
        if self.disturbance.is_some() {
            self.disturb()
        } else {
            None
        }
    }

    /// Sends a request for a line that is elsewhere. Whether there is one.
    #[inline]
    fn send_request(&mut self, address: usize, kind: Kind, how: How) -> bool {
        let thread = &self.threads[self.current];
        let per_cache = self.machine.shape.cores_per_cache as u16;
        let owner_place = |core: u16| Place {
            core,
            cache: core / per_cache,
        };
        let line = self.lines.at(address);
        let travel = self.fabric.travel(line, kind, thread.place, owner_place);
        let thread = &mut self.threads[self.current];
        if how == How::Locked {
            thread.now = thread.now.max(thread.drained);
        }
        thread.now += travel;
        thread.travelled = travel;
        travel != 0
    }

    #[inline]
    fn access(&mut self, address: usize, kind: Kind, how: How) {
        let thread = &self.threads[self.current];
        let (place, now, drained) = (thread.place, thread.now, thread.drained);
        let from = if how == How::Locked {
            now.max(drained)
        } else {
            now
        };
        let line = self.lines.at(address);
        let per_cache = self.machine.shape.cores_per_cache as u16;
        let owner_place = |core: u16| Place {
            core,
            cache: core / per_cache,
        };
        let (mut done, service) = self.fabric.access(line, kind, place, owner_place, from);
        if how != How::Store {
            done = done
                .saturating_sub(self.threads[self.current].travelled)
                .max(from);
        }
        self.traffic.count(service);
        let mut visible = done;
        let thread = &mut self.threads[self.current];
        match how {
            How::Load => thread.now = done,
            How::Store => {
                // Stores become visible in program order; their requests overlap.
                visible = done.max(drained);
                // Until then nobody sees the value, also not who has not spun on the line before.
                line.delay_until(visible);
                thread.drained = visible;
                thread.now = now + 1;
            }
            How::Locked => thread.now = done + self.fabric.costs.rmw,
        }
        if kind == Kind::Write && !line.spinners.is_empty() {
            self.notify(address, visible);
        }
    }

    /// Everybody who spins on the line reads it again.
    #[cold]
    fn notify(&mut self, address: usize, at: u64) {
        let mut spinners = std::mem::take(&mut self.lines.at(address).spinners);
        for &(id, epoch) in &spinners {
            let id = id as usize;
            if self.threads[id].epoch != epoch {
                continue;
            }
            let pause = self.fabric.costs.pause.max(1);
            let thread = &mut self.threads[id];
            thread.epoch += 1;
            thread.state = State::Running;
            // Nobody knows where in its loop it is.
            let phase = next_random(&mut thread.random) % pause;
            thread.now = thread.now.max(at + phase);
            let now = thread.now;
            self.plan(now, id, What::Step);
        }
        spinners.clear();
        // The allocation is worth keeping.
        self.lines.at(address).spinners = spinners;
    }

    fn spin(&mut self, address: usize, until: u64) {
        let id = self.current;
        let thread = &mut self.threads[id];
        thread.epoch += 1;
        thread.state = State::Spinning;
        let (epoch, now, preempt_at) = (thread.epoch, thread.now, thread.preempt_at);
        self.stand_in_line();
        self.lines.at(address).spinners.push((id as u32, epoch));
        if until != NEVER {
            self.plan(until.max(now), id, What::TimeLimit);
        }
        if preempt_at != NEVER {
            self.plan(preempt_at.max(now), id, What::SliceEnd);
        }
    }

    fn compute(&mut self, cycles: u64) {
        let percent = self.sibling_percent();
        self.threads[self.current].now += cycles * percent / 100;
    }

    fn compute_alone(&mut self, cycles: u64) {
        self.threads[self.current].now += cycles;
    }

    /// How long computing takes, in percent of computing alone on the core.
    fn sibling_percent(&self) -> u64 {
        let per_core = self.machine.shape.threads_per_core;
        if per_core == 1 {
            return 100;
        }
        let mine = self.threads[self.current].cpu;
        let first = mine - mine % per_core;
        let costs = &self.fabric.costs;
        let mut percent = 100;
        for cpu in (first..first + per_core).filter(|&cpu| cpu != mine) {
            percent = percent.max(
                match self.cpus[cpu].running.map(|t| self.threads[t].state) {
                    Some(State::Running) => costs.sibling_computes_pct,
                    Some(State::Spinning) => costs.sibling_spins_pct,
                    _ => 100,
                },
            );
        }
        percent
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
        let cache = self.threads[self.current].place.cache as usize;
        (cache, self.machine.shape.socket(cache))
    }

    pub(crate) fn random(&mut self) -> u64 {
        next_random(&mut self.threads[self.current].random)
    }

    fn describe(&self) -> String {
        let mut text = String::new();
        for (id, thread) in self.threads.iter().enumerate() {
            let what = match thread.state {
                State::Running => "runs",
                State::Spinning => "spins",
                State::Queued => "waits for a CPU",
                State::Parked(_) => "sleeps",
                State::Ended => continue,
            };
            let separator = if text.is_empty() { "" } else { ", " };
            text += &format!("{separator}thread {id} {what}");
        }
        text
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

impl Traffic {
    #[inline]
    fn count(&mut self, service: Service) {
        match service {
            Service::OwnCache => self.own_cache += 1,
            Service::LastLevel => self.last_level += 1,
            Service::Local => self.local += 1,
            Service::Remote => self.remote += 1,
            Service::Memory => self.memory += 1,
        }
    }
}
