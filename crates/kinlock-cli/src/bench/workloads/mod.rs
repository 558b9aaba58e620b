//! What the threads do with the lock.

mod broadcast;
mod counter;
mod empty;
mod kv;
mod long;
mod lru;
mod name;
mod pingpong;
mod readrandom;
mod zipf;

pub use name::WorkloadName;

use std::path::Path;

use super::meeting::Meet;
use super::rng::Rng;
use super::runner::{Measure, Prepared};

/// One kind of work: every thread repeats `think`, then `section` under the lock.
pub trait Workload: Send + Sync + Sized + 'static {
    /// What the lock guards.
    type Shared: Send + 'static;
    /// What a thread keeps to itself.
    type Local: 'static;

    /// Builds the guarded state.
    fn shared(&self) -> Self::Shared;
    /// Builds a thread's own state, on that thread.
    fn local(&self, rng: Rng) -> Self::Local;
    /// Work before the lock is taken.
    fn think(&self, local: &mut Self::Local);
    /// Work under the lock.
    fn section(&self, shared: &mut Self::Shared, local: &mut Self::Local);
}

/// Makes a workload ready to be measured under any lock; `db` is somebody's own database for `readrandom`.
///
/// # Errors
/// If the workload needs something that is not there.
pub fn prepare(name: WorkloadName, db: Option<&Path>) -> anyhow::Result<Box<dyn Measure>> {
    Ok(match name {
        WorkloadName::Empty => Box::new(Prepared::new(empty::Empty)),
        WorkloadName::Counter => Box::new(Prepared::new(counter::Counter::new())),
        WorkloadName::Long => Box::new(Prepared::new(long::Long::new())),
        WorkloadName::Saturated => Box::new(Prepared::new(long::Long::saturated())),
        WorkloadName::Kv => Box::new(Prepared::new(kv::Kv::new())),
        WorkloadName::Lru => Box::new(Prepared::new(lru::Lru::new())),
        WorkloadName::ReadRandom => Box::new(Prepared::new(readrandom::ReadRandom::open(db)?)),
        WorkloadName::PingPong => Box::new(Meet(pingpong::PingPong)),
        WorkloadName::Broadcast => Box::new(Meet(broadcast::Broadcast)),
    })
}
