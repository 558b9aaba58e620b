//! The shape of the JSON report. Field names are a contract: add, never rename.

use std::collections::BTreeMap;

use kinlock_measure::machine::MachineEntry;
use kinlock_measure::stats::{Fairness, Summary, geometric_mean};
use kinlock_measure::workloads::grid::Cell;
use kinlock_sim::Handoffs;
use serde::Serialize;

use crate::simulation::band::{Band, median, over};
use crate::simulation::provenance::{LockEntry, WorkloadEntry};
use crate::simulation::sample::{Acquire, IdUse, Longest, SERVICES, Sample};
use crate::simulation::sampling::Variant;

/// One run of the command. All but the fields with `host` in their names are the same on every
/// machine.
#[derive(Debug, Serialize)]
pub struct Report {
    #[serde(flatten)]
    pub setup: Setup,
    pub host_threads: usize,
    /// What all simulations took, one after the other.
    pub host_seconds: f64,
    /// One entry per lock, workload and number of threads.
    pub results: Vec<Entry>,
    /// One entry per lock and number of threads, over the cells of the grid.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub grid: Vec<Standings>,
}

/// All that a report says about what ran. It is the same with other host threads.
#[derive(Debug, Serialize)]
pub struct Setup {
    /// `simulated`.
    pub kind: String,
    pub version: String,
    /// Commit that it was built from, if it was built in a checkout.
    pub commit: Option<String>,
    /// A command that gives these results, with nothing left to defaults.
    pub command: Vec<String>,
    pub machine: MachineEntry,
    pub parameters: Parameters,
    pub seeds: Vec<u64>,
}

#[derive(Debug, Serialize)]
pub struct Parameters {
    /// Simulated seconds per run, after the warm-up.
    pub seconds: f64,
    pub variants: Vec<Variant>,
    /// The lock that the others are compared with.
    pub baseline: String,
    pub threads: Vec<usize>,
    /// How many of the machine's CPUs may be used, if not all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<usize>,
    pub numa: String,
    /// What `numa` came to on this machine.
    pub reorder: bool,
    pub local_limit: String,
    pub domain: String,
    /// Locality domains of the machine.
    pub domains: usize,
    pub locks: Vec<LockEntry>,
    /// The workloads and their constants.
    pub workloads: Vec<WorkloadEntry>,
}

impl Setup {
    /// How many simulations there are.
    pub fn simulations(&self) -> usize {
        self.cells().count() * self.parameters.locks.len() * self.parameters.variants.len()
    }

    /// Workloads and numbers of threads, in order.
    pub fn cells(&self) -> impl Iterator<Item = (&str, usize)> {
        let parameters = &self.parameters;
        let workloads = parameters.workloads.iter();
        workloads.flat_map(|workload| {
            let name = workload.name.as_str();
            parameters.threads.iter().map(move |&n| (name, n))
        })
    }
}

/// One lock with one workload and number of threads.
#[derive(Debug, Serialize)]
pub struct Entry {
    /// `locks`, or `ids`.
    pub suite: &'static str,
    pub lock: String,
    pub workload: String,
    pub threads: usize,
    /// Operations of all threads per microsecond of simulated time.
    pub ops_per_us: Band,
    /// The same per second.
    pub ops_per_s: Summary,
    /// Nanoseconds from one operation to the next, of any thread.
    pub ns_per_op: Summary,
    /// CPU time of all threads per operation.
    pub cpu_ns_per_op: Summary,
    /// Throughput over the baseline's with the same seed and latencies.
    pub ratio: Ratio,
    /// Medians over the seeds.
    pub fairness: Fairness,
    /// Medians over the seeds, the longest of all.
    pub acquire_ns: Acquire,
    /// The longest for reading and for writing over the seeds, if some read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub longest_ns: Option<Longest>,
    /// How the lock travelled, over all seeds.
    pub handoffs: Handoffs,
    /// Accesses per operation, over all seeds.
    pub traffic: BTreeMap<&'static str, f64>,
    /// What was done under concurrency IDs, over all seeds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ids: Option<IdUse>,
    /// What the library's locks counted, over all seeds.
    pub counters: BTreeMap<String, u64>,
    /// Memory events simulated, over all runs.
    pub events: u64,
    /// The same per second of this machine.
    pub events_per_host_second: f64,
    /// Every run: the seeds first, then the other latencies.
    pub runs: Vec<Simulated>,
}

#[derive(Debug, Serialize)]
pub struct Ratio {
    pub to: String,
    /// The median over seeds, the extremes over all runs.
    #[serde(flatten)]
    pub over_runs: Summary,
}

#[derive(Debug, Serialize)]
pub struct Simulated {
    /// Throughput over the baseline's.
    pub ratio: f64,
    #[serde(flatten)]
    pub sample: Sample,
}

impl Report {
    /// Of all samples of a run, in order.
    pub fn new(setup: Setup, host_threads: usize, samples: Vec<Sample>) -> Self {
        assert_eq!(samples.len(), setup.simulations());
        let per_lock = setup.parameters.variants.len();
        let locks = &setup.parameters.locks;
        let mut results = Vec::new();
        let cells = samples.chunks(per_lock * locks.len());
        for ((workload, threads), cell) in setup.cells().zip(cells) {
            let by_lock = || locks.iter().zip(cell.chunks(per_lock));
            let baseline = &setup.parameters.baseline;
            let (_, base) = by_lock()
                .find(|(lock, _)| lock.name == *baseline)
                .expect("the baseline is one of the locks");
            for (lock, samples) in by_lock() {
                let mut entry = Entry::new(baseline, base, samples);
                (entry.lock, entry.workload) = (lock.name.clone(), workload.to_owned());
                results.push(Entry { threads, ..entry });
            }
        }
        Self {
            host_threads,
            host_seconds: samples.iter().map(|sample| sample.host_seconds).sum(),
            grid: standings(&results),
            results,
            setup,
        }
    }
}

impl Entry {
    /// Without the names of its cell.
    fn new(baseline: &str, base: &[Sample], samples: &[Sample]) -> Self {
        let usual = || samples.iter().filter(|sample| sample.is_usual());
        let pairs = samples.iter().zip(base);
        let runs: Vec<_> = pairs
            .map(|(sample, base)| Simulated {
                ratio: over(sample.ops_per_us, base.ops_per_us),
                sample: sample.clone(),
            })
            .collect();
        let ratios = Band::of_pairs(runs.iter().map(|run| (&run.sample, run.ratio)));
        let ops_per_us = Band::of(samples, |sample| sample.ops_per_us);
        let mut counters = BTreeMap::new();
        for (name, count) in usual().flat_map(|sample| &sample.counters) {
            *counters.entry(name.clone()).or_default() += count;
        }
        let has_ids = samples.iter().any(|sample| !sample.ids.is_empty());
        let ids = has_ids.then(|| IdUse::over(usual().flat_map(|sample| &sample.ids)));
        let events = samples.iter().map(|sample| sample.events).sum();
        let host_seconds: f64 = samples.iter().map(|sample| sample.host_seconds).sum();
        Self {
            suite: if ids.is_some() { "ids" } else { "locks" },
            lock: String::new(),
            workload: String::new(),
            threads: 0,
            ops_per_us,
            ops_per_s: ops_per_us.times(1e6).into(),
            ns_per_op: Band::of(samples, |sample| over(1e3, sample.ops_per_us)).into(),
            cpu_ns_per_op: Band::of(samples, |sample| sample.cpu_ns_per_op).into(),
            ratio: Ratio {
                to: baseline.to_owned(),
                over_runs: ratios.into(),
            },
            fairness: Fairness {
                jain: median(usual().map(|sample| sample.fairness.jain)),
                min_over_mean: median(usual().map(|sample| sample.fairness.min_over_mean)),
            },
            acquire_ns: acquire(usual()),
            longest_ns: Longest::over(usual()),
            handoffs: handoffs(usual()),
            traffic: traffic_per_op(usual()),
            ids,
            counters,
            events,
            events_per_host_second: over(events as f64, host_seconds),
            runs,
        }
    }
}

fn handoffs<'a>(samples: impl Iterator<Item = &'a Sample>) -> Handoffs {
    samples.fold(Handoffs::default(), |sum, sample| Handoffs {
        local: sum.local + sample.handoffs.local,
        remote: sum.remote + sample.handoffs.remote,
        retaken: sum.retaken + sample.handoffs.retaken,
    })
}

fn traffic_per_op<'a>(
    samples: impl Iterator<Item = &'a Sample> + Clone,
) -> BTreeMap<&'static str, f64> {
    let ops: u64 = samples.clone().map(|sample| sample.ops).sum();
    let per_op = |(name, of): (&'static str, fn(&_) -> u64)| {
        let count: u64 = samples.clone().map(|sample| of(&sample.traffic)).sum();
        (name, count as f64 / (ops as f64).max(1.0))
    };
    SERVICES.into_iter().map(per_op).collect()
}

fn acquire<'a>(samples: impl Iterator<Item = &'a Sample> + Clone) -> Acquire {
    let quantile = |of: fn(&Acquire) -> u64| {
        let values = samples.clone();
        median(values.map(|sample| of(&sample.acquire_ns) as f64)).round() as u64
    };
    Acquire {
        p50: quantile(|waits| waits.p50),
        p99: quantile(|waits| waits.p99),
        p999: quantile(|waits| waits.p999),
        max: samples.clone().map(|s| s.acquire_ns.max).max().unwrap_or(0),
    }
}

/// A lock in all cells of a number of threads, over the baseline in the same cells.
#[derive(Debug, Serialize)]
pub struct Standings {
    pub threads: usize,
    pub lock: String,
    /// Geometric mean of the ratios of throughput.
    pub ratio: f64,
    /// The same of the 99 % waits, and of the CPU time per operation.
    pub p99_ratio: f64,
    pub cpu_ratio: f64,
    pub cells: usize,
    /// How many ratios are below [`ENOUGH`].
    pub cells_below: usize,
    pub least: f64,
    /// The cell of the least ratio.
    pub least_cell: String,
}

/// No cell should have less than this share of the baseline's throughput.
pub const ENOUGH: f64 = 0.9;

/// Whether the workload is a cell.
pub fn is_cell(workload: &str) -> bool {
    Cell::find(workload).is_some()
}

/// How all locks but the baseline stand, by number of threads.
fn standings(results: &[Entry]) -> Vec<Standings> {
    let mut groups: Vec<Vec<(&Entry, &Entry)>> = Vec::new();
    for own in results
        .iter()
        .filter(|e| is_cell(&e.workload) && e.lock != e.ratio.to)
    {
        let is_base = |e: &&Entry| {
            (&e.workload, e.threads, &e.lock) == (&own.workload, own.threads, &own.ratio.to)
        };
        let base = results.iter().find(is_base);
        let pair = (own, base.expect("each cell has the baseline"));
        let is_of = |group: &&mut Vec<(&Entry, &Entry)>| {
            (group[0].0.threads, &group[0].0.lock) == (own.threads, &own.lock)
        };
        match groups.iter_mut().find(is_of) {
            Some(group) => group.push(pair),
            None => groups.push(vec![pair]),
        }
    }
    // Stable: locks stay in their order.
    groups.sort_by_key(|group| group[0].0.threads);
    groups.iter().map(|group| Standings::of(group)).collect()
}

impl Standings {
    /// Of a lock's entries, at least one, each with the baseline's.
    fn of(pairs: &[(&Entry, &Entry)]) -> Self {
        let entries: Vec<_> = pairs.iter().map(|(own, _)| *own).collect();
        let mean = |of: fn(&Entry) -> f64| {
            let ratios = pairs
                .iter()
                .map(|(own, base)| of(own).max(1.0) / of(base).max(1.0));
            geometric_mean(ratios)
        };
        let ratio = |e: &&Entry| e.ratio.over_runs.median;
        let least = entries
            .iter()
            .min_by(|a, b| ratio(a).total_cmp(&ratio(b)))
            .expect("there is a cell");
        Self {
            threads: least.threads,
            lock: least.lock.clone(),
            ratio: geometric_mean(entries.iter().map(ratio)),
            p99_ratio: mean(|e| e.acquire_ns.p99 as f64),
            cpu_ratio: mean(|e| e.cpu_ns_per_op.median),
            cells: entries.len(),
            cells_below: entries.iter().filter(|e| ratio(e) < ENOUGH).count(),
            least: ratio(least),
            least_cell: least.workload.clone(),
        }
    }
}
