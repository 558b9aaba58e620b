//! Timing one lock under one workload with one team of threads.
//!
//! A round has two slices on the same lock: a *timed* one, in which the threads only count their operations, and an
//! *instrumented* one, in which they read a clock around every acquisition and note who held the lock before. So what
//! the instruments cost never shows in the throughput. Our locks count what their slow paths do while the instrumented
//! slice warms up: some ten nanoseconds an event, which others' locks do not pay, never show in an acquisition time.
//!
//! Invariant:
//! 1. The C library writes only through the pointers it is given, and they point to locals.

use std::sync::atomic::{
    AtomicU8, AtomicU64,
    Ordering::{Relaxed, Release},
};
use std::sync::{Arc, Barrier, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;
use hdrhistogram::Histogram;
use kinlock_core::events::{self, Event};
use kinlock_core::topology;

use super::interrupt::{self, State, pause};
use super::rng::Rng;
use super::team::{Job, Team};
use super::trace::{Handoffs, Step, Trace};
use super::workloads::Workload;
use crate::locks::{Family, Lock, LockName, Visit};

/// How long the parts of a round take.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// Runs before each slice, not counted.
    pub warm_up: Duration,
    /// The timed slice.
    pub timed: Duration,
    /// The instrumented slice.
    pub instrumented: Duration,
}

/// What one round of one lock gave.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Length of the timed slice, as measured.
    pub elapsed: Duration,
    /// Operations of each thread in it; one number if each takes all threads.
    pub ops: Vec<u64>,
    /// CPU time of the process in it.
    pub cpu: Duration,
    /// From asking for the lock to having it, in ns; instrumented slice.
    pub acquire: Histogram<u64>,
    /// How the lock travelled; instrumented slice.
    pub handoffs: Handoffs,
    /// The longest acquisition that took the lock over from another domain, in ns; instrumented slice.
    pub longest_remote_wait: u64,
    /// What our locks counted on their slow paths, by name, while the instrumented slice warmed up. Empty for others' locks.
    pub events: Vec<(&'static str, u64)>,
}

impl Sample {
    /// Operations of all threads in the timed slice, taken to be at least one: a lock that is so slow has not shown
    /// what it can do, but it can be divided by.
    pub fn total_ops(&self) -> f64 {
        self.ops.iter().sum::<u64>().max(1) as f64
    }

    /// Operations of all threads per second.
    pub fn ops_per_s(&self) -> f64 {
        self.total_ops() / self.elapsed.as_secs_f64()
    }
}

/// A workload that can be measured under any lock.
pub trait Measure {
    /// Runs one round.
    fn round(&mut self, lock: LockName, team: &Team, timing: &Timing, seed: u64) -> Sample;
}

/// A workload with its guarded state, which is built at first use and wanders from lock to lock: all of them work on
/// the same memory.
pub struct Prepared<W: Workload> {
    work: Arc<W>,
    shared: Option<W::Shared>,
}

impl<W: Workload> Prepared<W> {
    /// A workload that has not run yet.
    pub fn new(work: W) -> Self {
        Self {
            work: Arc::new(work),
            shared: None,
        }
    }
}

impl<W: Workload> Measure for Prepared<W> {
    fn round(&mut self, lock: LockName, team: &Team, timing: &Timing, seed: u64) -> Sample {
        let shared = self.shared.take().unwrap_or_else(|| self.work.shared());
        let (sample, shared) = lock.dispatch(Round {
            ours: lock.is_ours(),
            work: self.work.clone(),
            shared,
            team,
            timing,
            seed,
        });
        self.shared = Some(shared);
        sample
    }
}

struct Round<'a, W: Workload> {
    ours: bool,
    work: Arc<W>,
    shared: W::Shared,
    team: &'a Team,
    timing: &'a Timing,
    seed: u64,
}

impl<W: Workload> Visit for Round<'_, W> {
    type Output = (Sample, W::Shared);

    fn visit<F: Family>(self) -> Self::Output {
        let threads = self.team.size();
        let arena = Arc::new(Arena::<W, F> {
            lock: CachePadded::new(F::Of::new(Guarded {
                shared: self.shared,
                trace: Trace::default(),
            })),
            phase: CachePadded::new(AtomicU8::new(WARM_UP)),
            work: self.work,
            seed: self.seed,
            start: Barrier::new(threads + 1),
            ops: (0..threads).map(|_| CachePadded::default()).collect(),
            waits: Mutex::new(Waits::new()),
            epoch: Instant::now(),
            domains: (0..threads)
                .map(|index| self.team.cpu_of(index).map(topology::domain_of_cpu))
                .collect(),
        });

        let timed = timed_slice(&arena, self.team, self.timing);
        let events = match interrupt::state() {
            // The round does not count any more.
            State::Over => Vec::new(),
            _ => instrumented_slice(&arena, self.team, self.timing, self.ours),
        };

        let arena =
            Arc::into_inner(arena).expect("the team lets go of a job before it reports back");
        let shared = CachePadded::into_inner(arena.lock).into_inner().shared;
        let waits = arena
            .waits
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        let sample = Sample {
            elapsed: timed.elapsed,
            ops: timed.ops,
            cpu: timed.cpu,
            acquire: waits.all,
            handoffs: waits.handoffs,
            longest_remote_wait: waits.longest_remote,
            events,
        };
        (sample, shared)
    }
}

/// The value under the lock. The workload's part comes first: it shares the lock's cache line as far as it fits.
#[repr(C)]
struct Guarded<S> {
    shared: S,
    trace: Trace,
}

const WARM_UP: u8 = 0;
const RECORD: u8 = 1;
const STOP: u8 = 2;

struct Arena<W: Workload, F: Family> {
    lock: CachePadded<F::Of<Guarded<W::Shared>>>,
    phase: CachePadded<AtomicU8>,
    work: Arc<W>,
    seed: u64,
    start: Barrier,
    ops: Box<[CachePadded<AtomicU64>]>,
    waits: Mutex<Waits>,
    epoch: Instant,
    /// The domains of threads that are bound to a CPU.
    domains: Box<[Option<u16>]>,
}

/// Acquisition times, of one thread or merged from all.
struct Waits {
    all: Histogram<u64>,
    longest_remote: u64,
    handoffs: Handoffs,
}

struct Timed {
    elapsed: Duration,
    ops: Vec<u64>,
    cpu: Duration,
}

fn timed_slice<W: Workload, F: Family>(
    arena: &Arc<Arena<W, F>>,
    team: &Team,
    timing: &Timing,
) -> Timed {
    let members = arena.clone();
    // Alone, a thread may look at the clock-keeper's flag rarely. In a crowd one operation can take milliseconds.
    let job: Job = if team.size() == 1 {
        Arc::new(move |index| members.count_operations::<64>(index))
    } else {
        Arc::new(move |index| members.count_operations::<1>(index))
    };
    arena.phase.store(WARM_UP, Relaxed);
    team.begin(&job);
    drop(job);
    arena.start.wait();
    pause(timing.warm_up);
    let (begin, cpu, before) = (Instant::now(), process_cpu_time(), arena.read_ops());
    pause(timing.timed);
    let (elapsed, cpu, after) = (begin.elapsed(), process_cpu_time() - cpu, arena.read_ops());
    arena.phase.store(STOP, Relaxed);
    team.wait();
    Timed {
        elapsed,
        ops: after.iter().zip(&before).map(|(a, b)| a - b).collect(),
        cpu,
    }
}

fn instrumented_slice<W: Workload, F: Family>(
    arena: &Arc<Arena<W, F>>,
    team: &Team,
    timing: &Timing,
    ours: bool,
) -> Vec<(&'static str, u64)> {
    let members = arena.clone();
    let job: Job = Arc::new(move |index| members.watch_operations(index));
    arena.phase.store(WARM_UP, Relaxed);
    team.begin(&job);
    drop(job);
    arena.start.wait();
    let events = pause_and_count(timing.warm_up, ours);
    arena.phase.store(RECORD, Relaxed);
    pause(timing.instrumented);
    arena.phase.store(STOP, Relaxed);
    team.wait();
    events
}

/// Lets the threads of a slice run for `span`; what our locks count meanwhile, if one of them runs.
pub(super) fn pause_and_count(span: Duration, ours: bool) -> Vec<(&'static str, u64)> {
    if !ours {
        pause(span);
        return Vec::new();
    }
    let before = events::snapshot();
    events::set_enabled(true);
    pause(span);
    events::set_enabled(false);
    let counted = events::snapshot().since(&before);
    let all = Event::ALL.iter();
    all.map(|&event| (event.name(), counted.get(event)))
        .collect()
}

impl<W: Workload, F: Family> Arena<W, F> {
    /// The loop of the timed slice.
    fn count_operations<const BATCH: u64>(&self, index: usize) {
        let mut local = self.work.local(Rng::new(self.seed, index as u64));
        let ops = &*self.ops[index];
        let mut done = 0;
        self.start.wait();
        while self.phase.load(Relaxed) != STOP {
            for _ in 0..BATCH {
                self.work.think(&mut local);
                self.lock
                    .with(|guarded| self.work.section(&mut guarded.shared, &mut local));
            }
            done += BATCH;
            // Only this thread writes the counter; release keeps it behind the operations that it counts.
            ops.store(done, Release);
        }
    }

    /// The loop of the instrumented slice.
    fn watch_operations(&self, index: usize) {
        let mut local = self.work.local(Rng::new(self.seed, !(index as u64)));
        let mut waits = Waits::new();
        let bound = self.domains[index];
        self.start.wait();
        while self.phase.load(Relaxed) != STOP {
            self.work.think(&mut local);
            let asked = self.epoch.elapsed().as_nanos() as u64;
            let (had, step) = self.lock.with(|guarded| {
                let now = self.epoch.elapsed().as_nanos() as u64;
                let domain = bound.unwrap_or_else(topology::current_domain);
                let step = guarded.trace.acquired(index, domain, now);
                self.work.section(&mut guarded.shared, &mut local);
                (now, step)
            });
            // Looked at again: whoever waits when the slice ends has waited in it.
            if self.phase.load(Relaxed) != WARM_UP {
                waits.note(had.saturating_sub(asked), step);
            }
        }
        self.waits
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .merge(&waits);
    }

    fn read_ops(&self) -> Vec<u64> {
        self.ops.iter().map(|ops| ops.load(Relaxed)).collect()
    }
}

impl Waits {
    fn new() -> Self {
        Self {
            // Two significant digits: a histogram per thread stays small, and waits are not that reproducible.
            all: Histogram::new(2).expect("2 digits are supported"),
            longest_remote: 0,
            handoffs: Handoffs::default(),
        }
    }

    #[inline]
    fn note(&mut self, ns: u64, step: Step) {
        self.all.record(ns).expect("the histogram grows by itself");
        self.handoffs.note(step);
        if matches!(step, Step::Remote { .. }) {
            self.longest_remote = self.longest_remote.max(ns);
        }
    }

    fn merge(&mut self, other: &Self) {
        self.all
            .add(&other.all)
            .expect("the histogram grows by itself");
        self.longest_remote = self.longest_remote.max(other.longest_remote);
        self.handoffs.add(&other.handoffs);
    }
}

/// CPU time used by all threads of this process.
pub(super) fn process_cpu_time() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: invariant 1: the pointer is to a local.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
