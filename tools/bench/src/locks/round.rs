//! One round of one lock: two slices on the same lock.
//!
//! In the *timed* slice the threads only count their operations. In the *instrumented* one they
//! read a clock around every acquisition and note which thread held the lock before. So the cost of
//! the instruments never shows in the throughput. Our locks count the events of their slow paths
//! only in the warm-up of the instrumented slice: that takes about ten nanoseconds an event, which
//! others' locks do not pay, and which must not show in acquisition times.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;
use hdrhistogram::Histogram;
use kinlock_core::events::{self, Event};
use kinlock_linux::topology;
use kinlock_measure::interrupt::{self, State, pause};
use kinlock_measure::random::Random;

use super::Locks;
use super::contenders::{Lock, with_lock};
use super::trace::{Handoffs, Step, Trace};
use crate::harness::slice::{self, Part, Sample, Slice};
use crate::harness::suite::Due;

/// The results of the instrumented slice.
#[derive(Clone, Debug)]
pub struct Watched {
    /// From asking for the lock to having it, in ns.
    pub acquire: Histogram<u64>,
    pub handoffs: Handoffs,
    /// The counts of events on our locks' slow paths, by name. Empty for others' locks.
    pub events: Vec<(&'static str, u64)>,
}

impl Default for Watched {
    fn default() -> Self {
        Self {
            // Two significant digits keep a histogram per thread small, and waits vary more than
            // that.
            acquire: Histogram::new(2).expect("2 digits are supported"),
            handoffs: Handoffs::default(),
            events: Vec::new(),
        }
    }
}

impl Watched {
    #[inline]
    pub fn note(&mut self, ns: u64, step: Step) {
        self.acquire
            .record(ns)
            .expect("the histogram grows by itself");
        self.handoffs.note(step, ns);
    }

    /// Notes that thread number `index` has just waited for this time, if it has waited and the
    /// wait counts.
    #[inline]
    pub fn note_in(&mut self, slice: &Slice, index: usize, waited: Option<u64>) {
        let counts = |_: &u64| slice.is_measured(index) && !slice.is_in(Part::WarmUp);
        if let Some(ns) = waited.filter(counts) {
            self.note(ns, Step::First);
        }
    }

    /// Adds the results of another thread or round, except for its events.
    pub fn add(&mut self, other: &Self) {
        self.acquire
            .add(&other.acquire)
            .expect("the histogram grows by itself");
        self.handoffs.add(&other.handoffs);
    }
}

/// One kind of work: every thread repeats `think`, then `section` under the lock.
pub trait Workload: Send + Sync + Sized + 'static {
    type Shared: Send + 'static;
    /// The private state of a thread.
    type Local: 'static;

    /// Builds the guarded state.
    fn shared(&self) -> Self::Shared;
    /// Builds a thread's own state, on that thread.
    fn local(&self, rng: Random) -> Self::Local;
    fn think(&self, local: &mut Self::Local);
    fn section(&self, shared: &mut Self::Shared, local: &mut Self::Local);
}

/// A workload that can be measured under any lock.
pub trait Measure {
    fn round(&mut self, due: &Due<Locks>) -> anyhow::Result<Sample<Watched>>;
}

/// A workload with its guarded state, which is built at first use and moves from lock to lock, so
/// that all locks work on the same memory.
pub struct Prepared<W: Workload> {
    work: W,
    shared: Option<W::Shared>,
}

impl<W: Workload> Prepared<W> {
    pub fn new(work: W) -> Self {
        Self { work, shared: None }
    }
}

impl<W: Workload> Measure for Prepared<W> {
    fn round(&mut self, due: &Due<Locks>) -> anyhow::Result<Sample<Watched>> {
        let shared = self.shared.take().unwrap_or_else(|| self.work.shared());
        let (sample, shared) = with_lock!(*due.subject, Of => {
            round::<W, Of<Guarded<W::Shared>>>(&self.work, shared, due)
        });
        self.shared = Some(shared);
        sample
    }
}

fn round<W: Workload, L: Lock<Guarded<W::Shared>>>(
    work: &W,
    shared: W::Shared,
    due: &Due<Locks>,
) -> (anyhow::Result<Sample<Watched>>, W::Shared) {
    let team = due.team;
    let domain = |index| team.cpu_of(index).map(topology::domain_of_cpu);
    let arena = Arena {
        lock: CachePadded::new(L::new(Guarded {
            shared,
            trace: Trace::default(),
        })),
        work,
        seed: due.seed,
        epoch: Instant::now(),
        domains: (0..team.size()).map(domain).collect(),
    };
    // A single thread may check rarely whether the slice is over. With many threads an operation
    // can take milliseconds.
    let batch = if team.size() == 1 { 64 } else { 1 };
    let count = |slice: &Slice, index| arena.count_operations(slice, index, batch);
    let watch = |slice: &Slice, index| arena.watch_operations(slice, index);
    let sample = both_slices(due, &count, &watch);
    let lock = CachePadded::into_inner(arena.lock);
    (sample, lock.into_inner().shared)
}

/// Runs the timed slice of a round, in which each thread does `count`, and, unless the round no
/// longer counts, the instrumented slice, which is half as long and in which each thread does
/// `watch`.
pub fn both_slices(
    due: &Due<Locks>,
    count: &(dyn Fn(&Slice, usize) + Sync),
    watch: &(dyn Fn(&Slice, usize) -> Watched + Sync),
) -> anyhow::Result<Sample<Watched>> {
    const ALIVE: &str = "a thread that panics ends the process";
    let Due { team, seconds, .. } = *due;
    let warm_up = slice::warm_up(seconds);
    let sample = slice::run(team, [warm_up, seconds], &mut |_, span| pause(span), count)?;
    let (all, mut events) = (Mutex::new(Watched::default()), Vec::new());
    if interrupt::state() != State::Over {
        let watch = |slice: &Slice, index| {
            let seen = watch(slice, index);
            all.lock().expect(ALIVE).add(&seen);
        };
        let mut pause = |part, span| match part {
            Part::WarmUp if due.subject.is_ours() => events = pause_and_count(span),
            _ => pause(span),
        };
        slice::run(team, [warm_up, seconds / 2.0], &mut pause, &watch)?;
    }
    let watched = all.into_inner().expect(ALIVE);
    Ok(sample.with(Watched { events, ..watched }))
}

fn pause_and_count(span: Duration) -> Vec<(&'static str, u64)> {
    let before = events::snapshot();
    events::set_enabled(true);
    pause(span);
    events::set_enabled(false);
    let counted = events::snapshot().since(&before);
    let all = Event::ALL.iter();
    all.map(|&event| (event.name(), counted.get(event)))
        .collect()
}

/// The value under the lock. The workload's part comes first: it shares the lock's cache line as
/// far as it fits.
#[repr(C)]
struct Guarded<S> {
    shared: S,
    trace: Trace,
}

struct Arena<'a, W, L> {
    lock: CachePadded<L>,
    work: &'a W,
    seed: u64,
    epoch: Instant,
    /// The domains of the threads, if they are bound to a CPU.
    domains: Box<[Option<u16>]>,
}

impl<W: Workload, L: Lock<Guarded<W::Shared>>> Arena<'_, W, L> {
    fn count_operations(&self, slice: &Slice, index: usize, batch: u64) {
        let mut local = self.work.local(Random::stream(self.seed, index as u64));
        slice.repeat(index, || {
            for _ in 0..batch {
                self.work.think(&mut local);
                self.lock
                    .with(|guarded| self.work.section(&mut guarded.shared, &mut local));
            }
            batch
        });
    }

    fn watch_operations(&self, slice: &Slice, index: usize) -> Watched {
        let mut local = self.work.local(Random::stream(self.seed, !(index as u64)));
        let mut watched = Watched::default();
        let (bound, epoch) = (self.domains[index], self.epoch);
        slice.repeat(index, || {
            self.work.think(&mut local);
            let asked = epoch.elapsed().as_nanos() as u64;
            let (had, step) = self.lock.with(|guarded| {
                let now = epoch.elapsed().as_nanos() as u64;
                let domain = bound.unwrap_or_else(topology::current_domain);
                let step = guarded.trace.acquired(index, domain, now);
                self.work.section(&mut guarded.shared, &mut local);
                (now, step)
            });
            // Checked after the acquisition: one that ends after the slice has also waited in it.
            if slice.is_measured(index) && !slice.is_in(Part::WarmUp) {
                watched.note(had.saturating_sub(asked), step);
            }
            1
        });
        watched
    }
}
