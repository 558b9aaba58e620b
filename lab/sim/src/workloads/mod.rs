//! The workloads, one file each.
//!
//! To add a workload, write a file with a type that implements [`Body`] and a function that
//! prepares it, and add a line to [`ALL`].

mod cid;
mod cid_intermittent;
pub mod counter;
pub mod grid;
mod invalidation;
mod leveldb_readrandom;
mod lock2;
mod locktorture;
mod meter;
mod mutex_spinners;
mod open1;
mod osq;
mod readers;
pub mod recorded;

pub use cid::MAX_CPUS as MAX_CPUS_FOR_IDS;
pub use meter::{Acquire, Bursts, Handoffs, Longest, Meter, Metered, SharedMeter, Waited};

use crate::locks::Genre;
use crate::machine::Origin;
use crate::platform::compute;
use crate::world::{Placement, with};
use kinlock_ids::raw::Policy;
use std::rc::Rc;

/// A workload in a simulation.
pub trait Body {
    /// One iteration of the loop that each thread runs. Returns how many operations it completed.
    fn iterate(&self, me: usize) -> u64;
}

impl<F: Fn(usize) -> u64> Body for F {
    fn iterate(&self, me: usize) -> u64 {
        self(me)
    }
}

/// A kind of workload.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// Its name on the command line.
    pub name: &'static str,
    /// One line about it.
    pub about: &'static str,
    /// Where its threads ran when it was measured.
    pub placement: Placement,
    /// Its constants, with where they come from.
    pub parameters: &'static [Constant],
    /// What kind of lock it takes, and how it is prepared.
    pub prepare: Prepare,
    /// The seconds that operations take in addition to the simulated time.
    pub unsimulated_seconds: fn(&Meter, threads: usize) -> f64,
}

/// What kind of lock a workload takes. Each function places the workload's data in the simulation
/// under way.
#[derive(Clone, Copy, Debug)]
pub enum Prepare {
    /// A lock.
    Lock(fn(threads: usize, lock: Metered) -> Rc<dyn Body>),
    /// A reader-writer lock.
    ReaderWriter(fn(threads: usize, lock: Metered) -> Rc<dyn Body>),
    /// A cell of the [grid] with this number of locks, of which each operation takes one.
    Cell(grid::Cell, usize),
    /// A lock for each lock of a [recorded] program.
    Recorded(&'static recorded::Replay),
    /// A policy for concurrency IDs. Threads mostly sleep, so the workload itself counts and times
    /// its operations.
    Ids {
        /// Prepares the workload.
        prepare: fn(threads: usize, policy: Policy, meter: SharedMeter) -> Rc<dyn Body>,
        /// The least number of seconds of a run.
        seconds: fn(threads: usize) -> f64,
    },
}

/// A constant of a workload.
#[derive(Clone, Copy, Debug)]
pub struct Constant {
    /// Its name.
    pub name: &'static str,
    /// Its value, in nanoseconds.
    pub ns: f64,
    /// Where it comes from.
    pub origin: Origin,
    /// The source, what it was fitted to, or why it is assumed.
    pub source: &'static str,
}

impl Constant {
    /// Its value in the simulation under way, in nanoseconds: see
    /// [`Run::factors`](crate::Run::factors).
    pub(crate) fn value(&self) -> f64 {
        let factor = with(|w| {
            w.setup
                .factors
                .iter()
                .find(|(name, _)| *name == self.name)
                .map(|f| f.1)
        });
        self.ns * factor.unwrap_or(1.0)
    }

    const fn published(ns: f64, name: &'static str, source: &'static str) -> Self {
        Self::new(Origin::Published, ns, name, source)
    }

    const fn fitted(ns: f64, name: &'static str, source: &'static str) -> Self {
        Self::new(Origin::Fitted, ns, name, source)
    }

    const fn assumed(ns: f64, name: &'static str, source: &'static str) -> Self {
        Self::new(Origin::Assumed, ns, name, source)
    }

    const fn new(origin: Origin, ns: f64, name: &'static str, source: &'static str) -> Self {
        Constant {
            name,
            ns,
            origin,
            source,
        }
    }
}

/// All kinds that take locks or backends of delayed invalidation.
pub static ALL: &[Kind] = &[
    locktorture::KIND,
    lock2::KIND,
    open1::KIND,
    leveldb_readrandom::KIND,
    mutex_spinners::KIND,
    osq::KIND,
    counter::KIND,
    invalidation::KIND,
    readers::ONLY,
    readers::MOST,
    readers::MANY,
    readers::HALF,
];

/// All kinds that take policies for concurrency IDs.
pub static IDS: &[Kind] = &[cid_intermittent::SLOW, cid_intermittent::FAST];

/// The kind called `name`, a cell of the [grid] included.
pub fn by_name(name: &str) -> Option<Kind> {
    let mut all = ALL.iter().chain(IDS).copied();
    let found = all.find(|kind| kind.name == name);
    found.or_else(|| grid::by_name(name))
}

impl Kind {
    /// A workload that takes a lock, with simulated time only.
    const fn new(
        name: &'static str,
        placement: Placement,
        parameters: &'static [Constant],
        prepare: fn(usize, Metered) -> Rc<dyn Body>,
        about: &'static str,
    ) -> Self {
        Kind {
            name,
            about,
            placement,
            parameters,
            prepare: Prepare::Lock(prepare),
            unsimulated_seconds: none,
        }
    }

    /// The recording that it replays, if it is one.
    pub fn replay(&self) -> Option<&'static recorded::Replay> {
        match self.prepare {
            Prepare::Recorded(replay) => Some(replay),
            _ => None,
        }
    }

    /// Whether its threads take several locks.
    pub fn has_many_locks(&self) -> bool {
        matches!(self.prepare, Prepare::Recorded(_) | Prepare::Cell(_, 2..))
    }

    /// The genre that it takes.
    pub fn takes(&self) -> Genre {
        match self.prepare {
            Prepare::Ids { .. } => Genre::Policy,
            Prepare::ReaderWriter(_) => Genre::ReaderWriter,
            Prepare::Lock(_) if self.name == invalidation::KIND.name => Genre::Invalidation,
            Prepare::Lock(_) | Prepare::Cell(..) | Prepare::Recorded(_) => Genre::Lock,
        }
    }
}

/// No time in addition to the simulated time.
fn none(_: &Meter, _: usize) -> f64 {
    0.0
}

/// Computes for about this time, uniformly within [`SPREAD`] of it. Real code never takes exactly
/// the same time twice, and threads with equal times would fall into step.
fn work(nanos: f64) {
    let chance = (with(|w| w.random()) % 1024) as f64 / 512.0 - 1.0;
    compute(nanos * (1.0 + SPREAD * chance));
}

/// The most by which a piece of work is longer or shorter than its mean, as a fraction.
const SPREAD: f64 = 0.1;
