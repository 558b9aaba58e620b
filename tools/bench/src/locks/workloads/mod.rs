//! The workloads: what the threads do with the lock.

mod broadcast;
mod computed;
pub mod grid;
mod kv;
mod lru;
mod objects;
mod pingpong;
mod queue;
mod readrandom;
pub mod zipf;

use std::path::Path;

use kinlock_cli::args::Named;
use kinlock_cli::names;
use kinlock_measure::random::Random;

use super::meeting::Meet;
use super::readers::Readers;
use super::round::{Measure, Prepared, Workload};
use computed::Computed;
use objects::Objects;

names! {
    /// A workload of the suite `locks`, in the order in which they run.
    WorkloadName, "workload":
    Empty = "empty", "lock and unlock, nothing else";
    Counter = "counter", "add to four words under the lock, then about 100 ns of private work";
    Long = "long", "about 1 us of work under the lock, then about 100 ns of private work";
    Saturated = "saturated", "about 1 us of work under the lock, nothing else";
    Kv = "kv", "an ordered map of 1 M keys: 80 % reads, 10 % insertions, 10 % removals, keys by \
        Zipf's law";
    Lru = "lru", "an LRU cache of 50,000 entries asked for 1 M keys by Zipf's law; a miss inserts";
    ReadRandom = "readrandom", "random keys of an on-disk LevelDB-format database (100,000 entries \
        of 100 bytes, or --db)";
    PingPong = "pingpong", "two threads alternate through a mutex and a condition variable; an \
        operation is a round trip";
    Broadcast = "broadcast", "one thread publishes to 16 that wait on a condition variable, and \
        waits until all have reported";
    Queue = "queue", "one thread puts jobs of about 1 us into a queue with room for 16, four take \
        them out and do them; an operation is a job";
    Bursts = "bursts", "32 sections of a few ns back to back, then about 2 us of private work";
    Objects = "objects", "100,000 objects, each with a lock of its own and chosen by Zipf's law";
    Readers99 = "readers-99", "readers and writers at the reader-writer lock of each lock's \
        library; 99 % of the operations read";
    Readers90 = "readers-90", "the same with 90 %";
    Readers50 = "readers-50", "the same with 50 %";
    Grid = "grid", "combinations of work under the lock, private work and cache lines touched \
        under the lock: grid-core and grid-wide";
    GridCore = "grid-core", "those with sections of up to 20 us";
    GridWide = "grid-wide", "those with longer, sleeping and unequal sections, and with locks that \
        are rarely found taken";
    + Cell(grid::Cell), "work under the lock / private work / cache lines touched under the lock";
}

/// The number of threads of a workload that has a fixed one. Such a workload needs a condition
/// variable.
pub fn own_threads(workload: WorkloadName) -> Option<usize> {
    match workload {
        WorkloadName::PingPong => Some(pingpong::THREADS),
        WorkloadName::Broadcast => Some(broadcast::THREADS),
        WorkloadName::Queue => Some(queue::THREADS),
        _ => None,
    }
}

/// The parts of the grid that the workload stands for, if it does.
pub fn parts_of_grid(workload: WorkloadName) -> Option<&'static [grid::Part]> {
    grid::parts(workload.name())
}

/// Whether the workload needs a reader-writer lock.
pub fn needs_readers(workload: WorkloadName) -> bool {
    use WorkloadName::*;
    matches!(workload, Readers99 | Readers90 | Readers50)
}

/// Whether the workload runs by default. The others are variations, or take long.
pub fn is_usual(workload: WorkloadName) -> bool {
    use WorkloadName::*;
    let named = matches!(workload, Queue | Bursts | Objects);
    !named && !needs_readers(workload) && parts_of_grid(workload).is_none()
}

/// A thread's next request, drawn before it takes the lock.
pub struct Request {
    rng: Random,
    key: u64,
}

impl Request {
    fn new(rng: Random) -> Self {
        Self { rng, key: 0 }
    }
}

/// Makes a workload ready to be measured under any lock; `db` is a database for `readrandom`.
///
/// # Errors
/// If the workload needs something that is missing.
pub fn prepare(name: WorkloadName, db: Option<&Path>) -> anyhow::Result<Box<dyn Measure>> {
    Ok(match name {
        WorkloadName::Empty => Box::new(Prepared::new(Empty)),
        WorkloadName::Counter => Box::new(Prepared::new(Computed::counter())),
        WorkloadName::Long => Box::new(Prepared::new(Computed::long())),
        WorkloadName::Saturated => Box::new(Prepared::new(Computed::saturated())),
        WorkloadName::Kv => Box::new(Prepared::new(kv::Kv::new())),
        WorkloadName::Lru => Box::new(Prepared::new(lru::Lru::new())),
        WorkloadName::ReadRandom => Box::new(Prepared::new(readrandom::ReadRandom::open(db)?)),
        WorkloadName::PingPong => Box::new(Meet(pingpong::PingPong)),
        WorkloadName::Broadcast => Box::new(Meet(broadcast::Broadcast)),
        WorkloadName::Queue => Box::new(Meet(queue::Queue::new())),
        WorkloadName::Bursts => Box::new(Prepared::new(Computed::bursts())),
        WorkloadName::Objects => Box::new(Objects::new()),
        WorkloadName::Readers99 => Box::new(Readers::new(99)),
        WorkloadName::Readers90 => Box::new(Readers::new(90)),
        WorkloadName::Readers50 => Box::new(Readers::new(50)),
        WorkloadName::Grid | WorkloadName::GridCore | WorkloadName::GridWide => {
            unreachable!("the grid runs as its cells")
        }
        WorkloadName::Cell(cell) => Box::new(Prepared::new(grid::Grid::new(cell))),
    })
}

/// Lock and unlock, nothing else: the price of the lock itself.
struct Empty;

impl Workload for Empty {
    type Shared = ();
    type Local = ();

    fn shared(&self) {}

    fn local(&self, _: Random) {}

    #[inline(always)]
    fn think(&self, (): &mut ()) {}

    #[inline(always)]
    fn section(&self, (): &mut (), (): &mut ()) {}
}
