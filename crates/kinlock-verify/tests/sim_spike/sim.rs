//! A coroutine simulator in small: virtual CPUs on one host thread, each atomic access a point where another CPU may run.
//!
//! It explores schedules at random, repeatably by seed. Values are sequentially consistent, so it says nothing about
//! memory ordering; time advances with each access. What it shows is that [`Platform`] can be implemented this way:
//! a CPU that waits is blocked on the cache line and costs nothing until somebody writes to it.
//!
//! # Invariants
//!
//! 1. A `World` and its coroutines live on one host thread, and [`WORLD`] points at the `World` for exactly as long
//!    as [`run`] executes. No reference into the `World` is held across a suspension.
//! 2. `Cpu::yielder` is set by the coroutine itself before its first suspension, and the yielder outlives the
//!    coroutine's body, the only place from which it is used.

mod platform;

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};
use kinlock::platform::{NEVER, Platform};
pub use platform::{Sim, SimU32};
use std::cell::Cell;
use std::mem::ManuallyDrop;
use std::rc::Rc;

/// A run that takes more accesses than this makes no progress.
const STEP_LIMIT: u64 = 4_000_000;
/// For how many steps a CPU is lost to another program, now and then: longer than anybody spins.
const TIME_SLICE: u64 = 1000;

/// What a run was like.
#[derive(Debug, Default)]
pub struct Report {
    /// Atomic accesses executed.
    pub steps: u64,
    /// Times the running CPU was taken off, blocked or not.
    pub switches: u64,
    /// Times a CPU slept in `park`.
    pub parks: u64,
}

/// Runs `body(cpu)` on each of `cpus` virtual CPUs until all have returned.
///
/// `Err` says who was stuck where, if nobody could run any more or nobody finished in time.
pub fn run(seed: u64, cpus: usize, body: impl Fn(usize) + 'static) -> Result<Report, String> {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut world = World {
        now: 0,
        // From "nobody ever runs out of time" to "even the longest limits matter".
        nanos_per_step: [10, 1_000, 20_000][random.below(3)],
        // From "at every access" to "rarely", and CPUs of unequal speed: different bugs like different schedules.
        switch_one_in: [1, 2, 8, 32][random.below(4)],
        preempt_one_in: [16, 128, 1024][random.below(3)],
        cpus: (0..cpus)
            .map(|_| Cpu::new([1, 4, 64][random.below(3)]))
            .collect(),
        current: 0,
        atomic_section: false,
        report: Report::default(),
        random,
    };
    WORLD.set(&raw mut world);
    let _unset = Unset;
    // A failed run may have left slots claimed.
    Sim::waiters().reset_in_child(0);
    let body = Rc::new(body);
    // Dropping a suspended coroutine would unwind it, through locks that still wait. After a failure they are leaked.
    let mut bodies: ManuallyDrop<Vec<_>> =
        ManuallyDrop::new((0..cpus).map(|cpu| spawn(cpu, Rc::clone(&body))).collect());

    while let Some(next) = with_world(World::pick)? {
        if let CoroutineResult::Return(()) = bodies[next].resume(()) {
            with_world(|w| w.cpus[next].state = State::Finished);
        }
    }
    drop(ManuallyDrop::into_inner(bodies));
    Ok(with_world(|w| std::mem::take(&mut w.report)))
}

type Body = Coroutine<(), (), ()>;

fn spawn(cpu: usize, body: Rc<impl Fn(usize) + 'static>) -> Body {
    Coroutine::with_stack(
        DefaultStack::default(),
        move |yielder: &Yielder<(), ()>, ()| {
            with_world(|w| w.cpus[cpu].yielder = yielder);
            body(cpu);
            let slot = with_world(|w| w.cpus[cpu].kept_slot);
            if slot != 0 {
                Sim::waiters().release(slot);
            }
        },
    )
}

struct World {
    now: u64,
    nanos_per_step: u64,
    random: Random,
    switch_one_in: usize,
    preempt_one_in: usize,
    cpus: Vec<Cpu>,
    current: usize,
    /// Accesses are not preemption points: a comparison and falling asleep are one step.
    atomic_section: bool,
    report: Report,
}

struct Cpu {
    state: State,
    weight: usize,
    yielder: *const Yielder<(), ()>,
    kept_slot: u16,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum State {
    Ready,
    /// Waits for a write to the line, at most until the time.
    OnLine(usize, u64),
    /// Taken off its CPU until the time.
    Preempted(u64),
    /// Sleeps on the address, at most until the time.
    Parked(usize, u64),
    Finished,
}

impl Cpu {
    fn new(weight: usize) -> Self {
        Cpu {
            state: State::Ready,
            weight,
            yielder: std::ptr::null(),
            kept_slot: 0,
        }
    }
}

impl World {
    /// The CPU to run next; `None` when all have finished.
    fn pick(&mut self) -> Result<Option<usize>, String> {
        if self.report.steps > STEP_LIMIT {
            return Err(format!(
                "no end after {STEP_LIMIT} accesses: {}",
                self.states()
            ));
        }
        self.wake_expired();
        let total: usize = self.ready().map(|(_, c)| c.weight).sum();
        if total == 0 {
            let Some(next_deadline) = self.cpus.iter().filter_map(|c| c.state.deadline()).min()
            else {
                let finished = self.cpus.iter().all(|c| c.state == State::Finished);
                return if finished {
                    Ok(None)
                } else {
                    Err(format!("deadlock: {}", self.states()))
                };
            };
            self.now = next_deadline;
            return self.pick();
        }
        let mut ticket = self.random.below(total);
        let chosen = self.ready().find(|(_, c)| {
            let mine = ticket < c.weight;
            ticket = ticket.wrapping_sub(c.weight);
            mine
        });
        self.current = chosen.expect("a ticket below the sum of the weights").0;
        Ok(Some(self.current))
    }

    fn ready(&self) -> impl Iterator<Item = (usize, &Cpu)> {
        self.cpus
            .iter()
            .enumerate()
            .filter(|(_, c)| c.state == State::Ready)
    }

    fn wake_expired(&mut self) {
        let now = self.now;
        for cpu in &mut self.cpus {
            if cpu.state.deadline().is_some_and(|d| d <= now) {
                cpu.state = State::Ready;
            }
        }
    }

    fn wake_line(&mut self, line: usize) {
        for cpu in &mut self.cpus {
            if matches!(cpu.state, State::OnLine(l, _) if l == line) {
                cpu.state = State::Ready;
            }
        }
    }

    fn states(&self) -> String {
        self.cpus
            .iter()
            .enumerate()
            .map(|(i, c)| format!("cpu {i} {:?}; ", c.state))
            .collect()
    }
}

impl State {
    fn deadline(self) -> Option<u64> {
        match self {
            State::Preempted(until) => Some(until),
            State::OnLine(_, until) | State::Parked(_, until) if until != NEVER => Some(until),
            _ => None,
        }
    }
}

/// Some time up to `steps` steps, in nanoseconds.
pub fn some_time(steps: usize) -> u64 {
    with_world(|w| w.random.below(steps + 1) as u64 * w.nanos_per_step)
}

/// Counts an access and, now and then, lets another CPU run before it.
fn step() {
    let gap = with_world(|w| {
        w.report.steps += 1;
        w.now += w.nanos_per_step;
        // Before the first CPU runs there is nobody to preempt.
        let running = !w.cpus[w.current].yielder.is_null();
        if !running || w.atomic_section || w.random.below(w.switch_one_in) != 0 {
            None
        } else if w.random.below(w.preempt_one_in) == 0 {
            Some(State::Preempted(w.now + TIME_SLICE * w.nanos_per_step))
        } else {
            Some(State::Ready)
        }
    });
    if let Some(gap) = gap {
        suspend(gap);
    }
}

fn suspend(state: State) {
    let yielder = with_world(|w| {
        w.report.switches += 1;
        let cpu = &mut w.cpus[w.current];
        cpu.state = state;
        cpu.yielder
    });
    // SAFETY: invariant 2; no reference into the world is alive (invariant 1).
    unsafe { (*yielder).suspend(()) };
}

thread_local! {
    static WORLD: Cell<*mut World> = const { Cell::new(std::ptr::null_mut()) };
}

/// Clears [`WORLD`] when a run ends, also by a panic.
struct Unset;

impl Drop for Unset {
    fn drop(&mut self) {
        WORLD.set(std::ptr::null_mut());
    }
}

fn with_world<R>(f: impl FnOnce(&mut World) -> R) -> R {
    let world = WORLD.get();
    assert!(
        !world.is_null(),
        "a simulated atomic is used outside of a run"
    );
    // SAFETY: invariant 1; `f` neither suspends nor calls back into this function.
    f(unsafe { &mut *world })
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
}
