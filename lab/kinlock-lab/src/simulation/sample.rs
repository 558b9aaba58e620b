//! What came out of one simulation, as it is kept.

use std::collections::BTreeMap;

use kinlock_measure::stats::Fairness;
use kinlock_sim::workloads::{Bursts, Waited};
use kinlock_sim::{Handoffs, Outcome, Traffic};
use serde::Serialize;

use super::sampling::Variant;

/// One simulation. All but the `host` fields are the same on every machine.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sample {
    /// With what it ran.
    #[serde(flatten)]
    pub variant: Variant,
    /// Operations of all threads after the warm-up.
    pub ops: u64,
    /// Simulated seconds that they took.
    pub seconds: f64,
    /// Operations per microsecond of simulated time.
    pub ops_per_us: f64,
    /// CPU time of all threads per operation.
    pub cpu_ns_per_op: f64,
    pub fairness: Fairness,
    /// From asking for the lock to having it.
    pub acquire_ns: Acquire,
    /// The longest of these, if some read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub longest_ns: Option<Longest>,
    pub handoffs: Handoffs,
    /// Memory accesses by where they were served from.
    pub traffic: Traffic,
    /// What the library's locks counted.
    pub counters: BTreeMap<String, u64>,
    /// What the lock has counted itself, with the warm-up; only some of the laboratory's do.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub observed: BTreeMap<String, f64>,
    /// What was done under concurrency IDs, one entry; none for locks.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ids: Vec<IdUse>,
    /// How threads waited for each lock of a recorded program; none for other workloads.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub waited: Vec<Waited>,
    /// Memory events simulated, warm-up included.
    pub events: u64,
    /// How long the simulation took on this machine.
    pub host_seconds: f64,
}

/// What was done under concurrency IDs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct IdUse {
    pub bursts: u64,
    /// How long one took, in nanoseconds.
    pub ns_per_burst: f64,
    /// How long its thread waited for its ID, and not counted there.
    pub acquire_ns: f64,
    pub mean_id: f64,
    pub max_id: u32,
    /// How many lines of a burst another core had.
    pub foreign_lines: f64,
    /// How many bursts were the first on their ID's area, over all.
    pub first_touches: f64,
}

/// Quantiles of acquisition times in ns.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Acquire {
    pub p50: u64,
    pub p99: u64,
    pub p999: u64,
    pub max: u64,
}

/// The longest acquisitions in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Longest {
    pub read: u64,
    pub write: u64,
}

impl Longest {
    /// The longest of all, if some read.
    pub fn over<'a>(all: impl Iterator<Item = &'a Sample>) -> Option<Self> {
        all.filter_map(|sample| sample.longest_ns)
            .reduce(|a, b| Self {
                read: a.read.max(b.read),
                write: a.write.max(b.write),
            })
    }
}

impl Sample {
    /// Keeps what reports are made of.
    pub fn new(variant: Variant, outcome: &Outcome) -> Self {
        let waits = &outcome.waits;
        let counters = outcome.counted.iter();
        Self {
            variant,
            ops: outcome.ops,
            seconds: outcome.seconds,
            ops_per_us: outcome.ops_per_us(),
            cpu_ns_per_op: outcome.cpu_ns_per_op(),
            fairness: Fairness::of(&outcome.per_thread),
            acquire_ns: Acquire {
                p50: waits.value_at_quantile(0.5),
                p99: waits.value_at_quantile(0.99),
                p999: waits.value_at_quantile(0.999),
                max: waits.max(),
            },
            longest_ns: outcome.longest.map(|[read, write]| Longest { read, write }),
            handoffs: outcome.handoffs,
            traffic: outcome.traffic,
            counters: counters
                .map(|&(event, count)| (event.name().to_owned(), count))
                .collect(),
            observed: outcome
                .observed
                .iter()
                .map(|&(name, count)| (name.to_owned(), count))
                .collect(),
            ids: outcome.bursts.iter().map(IdUse::of).collect(),
            waited: outcome.waited.clone(),
            events: outcome.events,
            host_seconds: outcome.host_seconds,
        }
    }

    /// Whether it ran with the numbers of the machine's file and the workload.
    pub fn is_usual(&self) -> bool {
        self.variant.remote_factor == 1.0 && self.variant.draw.is_none()
    }
}

impl IdUse {
    fn of(bursts: &Bursts) -> Self {
        Self {
            bursts: bursts.count,
            ns_per_burst: bursts.mean(bursts.nanos),
            acquire_ns: bursts.mean(bursts.waited_nanos),
            mean_id: bursts.mean(bursts.ids as f64),
            max_id: bursts.largest,
            foreign_lines: bursts.mean(bursts.foreign_lines as f64),
            first_touches: bursts.mean(bursts.first_touches as f64),
        }
    }

    /// The same over several runs.
    pub fn over<'a>(all: impl Iterator<Item = &'a Self> + Clone) -> Self {
        let bursts: u64 = all.clone().map(|one| one.bursts).sum();
        let mean = |of: fn(&Self) -> f64| {
            let sum: f64 = all.clone().map(|one| of(one) * one.bursts as f64).sum();
            sum / (bursts as f64).max(1.0)
        };
        Self {
            bursts,
            ns_per_burst: mean(|one| one.ns_per_burst),
            acquire_ns: mean(|one| one.acquire_ns),
            mean_id: mean(|one| one.mean_id),
            max_id: all.clone().map(|one| one.max_id).max().unwrap_or(0),
            foreign_lines: mean(|one| one.foreign_lines),
            first_touches: mean(|one| one.first_touches),
        }
    }
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
