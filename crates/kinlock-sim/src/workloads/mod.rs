//! What locks are put to: one file each.
//!
//! To add one: write a file with a type that implements [`Body`] and a function that prepares it, and a line in [`ALL`].

mod cid;
mod cid_changing;
mod cid_intermittent;
mod invalidation;
mod leveldb_readrandom;
mod lock2;
mod locktorture;
mod mutex_spinners;
mod open1;
mod osq;

use crate::locks::{Genre, Lock};
use crate::run::{Handoffs, Traffic};
use crate::world::{COUNTED, Placement, with};
use hdrhistogram::Histogram;
use kinlock_ids::raw::Policy;
use std::cell::RefCell;
use std::rc::Rc;

/// A workload in a simulation.
pub trait Body {
    /// One turn of the loop that each thread runs. Returns how many operations it completed.
    fn iterate(&self, me: usize) -> u64;
}

/// A kind of workload.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// Its name on the command line.
    pub name: &'static str,
    /// One line about it.
    pub about: &'static str,
    /// Where its threads run, as it was measured.
    pub placement: Placement,
    /// Its constants, with where they come from.
    pub parameters: &'static [Constant],
    /// What it is put to, and how.
    pub prepare: Prepare,
    /// What the operations took besides the simulated time, in seconds.
    pub unsimulated_seconds: fn(&Meter, threads: usize) -> f64,
}

/// What a workload is put to. Each function places its data in the simulation under way.
#[derive(Clone, Copy, Debug)]
pub enum Prepare {
    /// A lock.
    Lock(fn(threads: usize, lock: Metered) -> Rc<dyn Body>),
    /// A policy for concurrency IDs. Threads mostly sleep: operations are counted and timed by themselves.
    Ids {
        /// Prepares.
        prepare: fn(threads: usize, policy: Policy, meter: SharedMeter) -> Rc<dyn Body>,
        /// How many seconds a run lasts at least.
        seconds: fn(threads: usize) -> f64,
    },
}

/// The meter of a run.
pub type SharedMeter = Rc<RefCell<Meter>>;

/// A constant of a workload.
#[derive(Clone, Copy, Debug)]
pub struct Constant {
    /// What it is.
    pub name: &'static str,
    /// Its value, in nanoseconds.
    pub ns: f64,
    /// Published, fitted or assumed.
    pub origin: &'static str,
    /// The source, what it was fitted on, or why it is assumed.
    pub source: &'static str,
}

/// All kinds.
pub const ALL: &[Kind] = &[
    locktorture::KIND,
    lock2::KIND,
    open1::KIND,
    leveldb_readrandom::KIND,
    mutex_spinners::KIND,
    osq::KIND,
    invalidation::KIND,
];

/// All kinds for concurrency IDs.
pub const IDS: &[Kind] = &[
    cid_intermittent::SLOW,
    cid_intermittent::FAST,
    cid_changing::KIND,
];

pub use cid::MAX_CPUS as MAX_CPUS_FOR_IDS;
pub use cid_changing::PHASES;

/// The kind called `name`.
pub fn by_name(name: &str) -> Option<Kind> {
    let mut all = ALL.iter().chain(IDS).copied();
    all.find(|kind| kind.name == name)
}

impl Kind {
    /// What it is put to.
    pub fn takes(&self) -> Genre {
        match self.prepare {
            Prepare::Ids { .. } => Genre::Policy,
            // What begins and ends sections excludes nobody.
            Prepare::Lock(_) if self.name == invalidation::KIND.name => Genre::Sections,
            Prepare::Lock(_) => Genre::Lock,
        }
    }
}

/// Nothing but simulated time.
fn none(_: &Meter, _: usize) -> f64 {
    0.0
}

/// Computes for about so long: uniformly within [`SPREAD`] of it. What real code does is never equally long twice, and with
/// equal lengths threads fall into step.
fn work(nanos: f64) {
    let chance = (with(|w| w.random()) % 1024) as f64 / 512.0 - 1.0;
    crate::compute(nanos * (1.0 + SPREAD * chance));
}

/// By how much a piece of work is longer or shorter than usual, at most.
const SPREAD: f64 = 0.1;

/// What is measured while a simulation runs.
#[derive(Debug)]
pub struct Meter {
    pub(crate) per_thread: Vec<u64>,
    pub(crate) waits: Histogram<u64>,
    pub(crate) handoffs: Handoffs,
    pub(crate) acquisitions: u64,
    pub(crate) bursts: Vec<Bursts>,
    last: Option<(usize, u16)>,
    /// What the world had counted when the warm-up was over.
    warm_up: Option<(Traffic, [u64; COUNTED])>,
    start: u64,
    end: u64,
}

impl Meter {
    pub(crate) fn new(threads: usize, start: u64, end: u64) -> Self {
        Meter {
            per_thread: vec![0; threads],
            waits: Histogram::new(3).expect("three digits are allowed"),
            handoffs: Handoffs::default(),
            acquisitions: 0,
            bursts: Vec::new(),
            last: None,
            warm_up: None,
            start,
            end,
        }
    }

    pub(crate) fn add(&mut self, me: usize, ops: u64) {
        let now = with(|w| w.now());
        if now > self.start {
            self.opens();
            if now <= self.end {
                self.per_thread[me] += ops;
            }
        }
    }

    /// From now on what happens counts, if it has not before.
    fn opens(&mut self) {
        self.warm_up
            .get_or_insert_with(|| with(|w| (w.traffic, w.counted)));
    }

    /// What the world had counted when the warm-up was over.
    pub(crate) fn warm_up(&self) -> (Traffic, [u64; COUNTED]) {
        self.warm_up.unwrap_or((Traffic::default(), [0; COUNTED]))
    }

    /// Whether something that began at `since` and has just ended lies between the warm-up and the end.
    fn is_open(&self, since: u64) -> bool {
        since >= self.start && with(|w| w.now()) <= self.end
    }

    /// A thread has done something under a concurrency ID, since the time `since`, in a phase of the workload.
    fn burst(&mut self, me: usize, phase: usize, since: u64, used: Used) {
        let now = with(|w| w.now());
        self.per_thread[me] += 1;
        if self.bursts.len() <= phase {
            self.bursts.resize(phase + 1, Bursts::default());
        }
        let sum = &mut self.bursts[phase];
        sum.count += 1;
        sum.nanos += with(|w| w.costs().nanos(now - since));
        sum.ids += used.id as u64;
        sum.largest = sum.largest.max(used.id);
        sum.foreign_lines += used.foreign_lines;
        sum.waited_nanos += with(|w| w.costs().nanos(used.waited));
    }

    fn acquired(&mut self, me: usize, since: u64) {
        let (now, nanos) = with(|w| (w.now(), w.costs().nanos(w.now() - since)));
        let domain = <crate::Sim as kinlock_core::platform::Platform>::domain();
        let last = self.last.replace((me, domain));
        if now <= self.start {
            return;
        }
        // A wait that outlasts the run counts: it may be the longest.
        self.waits
            .record(nanos as u64)
            .expect("the histogram grows");
        if now > self.end {
            return;
        }
        self.acquisitions += 1;
        match last {
            Some((thread, _)) if thread == me => self.handoffs.retaken += 1,
            Some((_, from)) if from == domain => self.handoffs.local += 1,
            _ => self.handoffs.remote += 1,
        }
    }
}

/// What was done under concurrency IDs.
#[derive(Clone, Copy, Default, PartialEq, Debug)]
pub struct Bursts {
    /// How many bursts.
    pub count: u64,
    /// How long they took together, in nanoseconds.
    pub nanos: f64,
    /// The sum of their IDs.
    pub ids: u64,
    /// The largest ID.
    pub largest: u32,
    /// How long their threads waited for their IDs together, in nanoseconds; not in `nanos`.
    pub waited_nanos: f64,
    /// How many lines came from elsewhere than the core's own caches.
    pub foreign_lines: u64,
}

impl Bursts {
    /// Both.
    #[must_use]
    pub fn and(self, other: &Bursts) -> Bursts {
        Bursts {
            count: self.count + other.count,
            nanos: self.nanos + other.nanos,
            ids: self.ids + other.ids,
            largest: self.largest.max(other.largest),
            waited_nanos: self.waited_nanos + other.waited_nanos,
            foreign_lines: self.foreign_lines + other.foreign_lines,
        }
    }

    /// Of a sum over bursts, the mean; 0 if there were none.
    pub fn mean(&self, sum: f64) -> f64 {
        sum / (self.count as f64).max(1.0)
    }
}

/// What one burst used.
#[derive(Clone, Copy, Debug)]
struct Used {
    id: u32,
    foreign_lines: u64,
    waited: u64,
}

/// The lock under test, with a meter on it. Measuring takes no simulated time.
#[derive(Clone)]
pub struct Metered {
    lock: &'static dyn Lock,
    meter: Rc<RefCell<Meter>>,
}

impl Metered {
    pub(crate) fn new(lock: &'static dyn Lock, meter: Rc<RefCell<Meter>>) -> Self {
        Metered { lock, meter }
    }

    /// Takes the lock.
    pub fn lock(&self, me: usize) {
        let since = with(|w| w.now());
        self.lock.lock(me);
        self.meter.borrow_mut().acquired(me, since);
    }

    /// Releases it.
    pub fn unlock(&self, me: usize) {
        self.lock.unlock(me);
    }
}
