//! The result of one simulation.

use kinlock_sim::workloads::Bursts;
use kinlock_sim::{Outcome, Traffic};
use serde::Serialize;

use super::sampling::Variant;

/// One simulation.
#[derive(Clone, Debug, Serialize)]
pub struct Sample {
    /// The seed and latencies with which it ran.
    #[serde(flatten)]
    pub variant: Variant,
    #[serde(flatten)]
    pub outcome: Outcome,
}

impl Sample {
    /// Whether it ran with unchanged numbers of the machine's file and the workload.
    pub fn is_usual(&self) -> bool {
        self.variant.remote_factor == 1.0 && self.variant.draw.is_none()
    }
}

/// The outcomes of the usual samples.
pub fn usual(samples: &[Sample]) -> impl Iterator<Item = &Outcome> + Clone {
    let usual = samples.iter().filter(|sample| sample.is_usual());
    usual.map(|sample| &sample.outcome)
}

/// The sum of the bursts under concurrency IDs; `None` for locks.
pub fn bursts<'a>(all: impl Iterator<Item = &'a Outcome>) -> Option<Bursts> {
    all.filter_map(|outcome| outcome.ids)
        .reduce(|mut sum, one| {
            sum.add(&one);
            sum
        })
}

/// One of the numbers of a [`Traffic`].
type Count = fn(&Traffic) -> u64;

/// The places that accesses are served from, by their names in reports.
pub const SERVICES: [(&str, Count); 5] = [
    ("own_cache", |traffic| traffic.own_cache),
    ("last_level", |traffic| traffic.last_level),
    ("local", |traffic| traffic.local),
    ("remote", |traffic| traffic.remote),
    ("memory", |traffic| traffic.memory),
];
