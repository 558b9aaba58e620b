//! The shape of the JSON report. Field names are a contract: add, never rename.

use std::collections::BTreeMap;

use kinlock_measure::machine::MachineEntry;
use kinlock_measure::stats::{Fairness, Summary, geometric_mean};
use kinlock_measure::workloads::grid::Cell;
use kinlock_sim::workloads::{Acquire, Bursts, Longest};
use kinlock_sim::{Handoffs, Outcome, Run, locks};
use serde::Serialize;

use crate::simulation::band::{band, band_of_pairs, median, over, scaled, with_edges};
use crate::simulation::provenance::WorkloadEntry;
use crate::simulation::sample::{SERVICES, Sample, bursts, usual};
use crate::simulation::sampling::Variant;

/// One run of the command. All but the fields with `host` in their names are the same on every
/// machine.
#[derive(Debug, Serialize)]
pub struct Report {
    #[serde(flatten)]
    pub setup: Setup,
    pub host_threads: usize,
    /// The sum of the times of all simulations.
    pub host_seconds: f64,
    /// One entry per lock, workload and number of threads.
    pub results: Vec<Entry>,
    /// One entry per lock and number of threads, over the cells of the grid.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub grid: Vec<Standings>,
}

/// The part of a report about what ran. It does not depend on the host threads.
#[derive(Debug, Serialize)]
pub struct Setup {
    /// `simulated`.
    pub kind: &'static str,
    pub version: &'static str,
    /// Commit that it was built from, if it was built in a checkout.
    pub commit: Option<&'static str>,
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
    pub baseline: &'static str,
    pub threads: Vec<usize>,
    /// How many of the machine's CPUs may be used, if not all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<usize>,
    pub numa: String,
    /// The effect of `numa` on this machine.
    pub reorder: bool,
    pub local_limit: String,
    pub domain: String,
    /// Locality domains of the machine.
    pub domains: usize,
    pub locks: Vec<locks::Kind>,
    /// The workloads and their constants.
    pub workloads: Vec<WorkloadEntry>,
}

/// One lock with one workload and number of threads.
#[derive(Debug, Serialize)]
pub struct Entry {
    /// `locks`, or `ids`.
    pub suite: &'static str,
    pub lock: &'static str,
    pub workload: &'static str,
    pub threads: usize,
    /// Operations of all threads per microsecond of simulated time.
    #[serde(serialize_with = "with_edges")]
    pub ops_per_us: Summary,
    /// Operations per second.
    pub ops_per_s: Summary,
    /// Nanoseconds from one operation to the next, of any thread.
    pub ns_per_op: Summary,
    /// CPU time of all threads per operation.
    pub cpu_ns_per_op: Summary,
    /// Throughput divided by the baseline's with the same seed and latencies.
    pub ratio: Ratio,
    /// Medians over the seeds.
    pub fairness: Fairness,
    /// Medians over the seeds, and the longest time of all seeds.
    pub acquire_ns: Acquire,
    /// The longest for reading and for writing over the seeds, if some read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub longest_ns: Option<Longest>,
    /// The longest over the seeds, of those that ended after the end of the run; 0: none.
    pub unended_ns: Longest,
    /// How the lock travelled, over all seeds.
    pub handoffs: Handoffs,
    /// Accesses per operation, over all seeds.
    pub traffic: BTreeMap<&'static str, f64>,
    /// The bursts under concurrency IDs, over all seeds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ids: Option<Bursts>,
    /// The event counts of the library's locks, over all seeds.
    pub counters: BTreeMap<&'static str, u64>,
    /// Memory events simulated, over all runs.
    pub events: u64,
    /// Memory events per second of this machine.
    pub events_per_host_second: f64,
    /// Every run: the seeds first, then the other latencies.
    pub runs: Vec<Simulated>,
}

#[derive(Debug, Serialize)]
pub struct Ratio {
    pub to: &'static str,
    /// The median over seeds, and the extremes over all runs.
    #[serde(flatten)]
    pub over_runs: Summary,
}

#[derive(Debug, Serialize)]
pub struct Simulated {
    /// Throughput divided by the baseline's.
    pub ratio: f64,
    #[serde(flatten)]
    pub sample: Sample,
}

impl Report {
    /// The report on all samples of the runs, in order: each run has a sample for each variant.
    pub fn new(setup: Setup, host_threads: usize, runs: &[Run], samples: Vec<Sample>) -> Self {
        let per_run = setup.parameters.variants.len();
        let cells = runs.chunks(setup.parameters.locks.len());
        let mut rest = &samples[..];
        let mut results = Vec::new();
        for cell in cells {
            let (own, others) = rest.split_at(cell.len() * per_run);
            rest = others;
            let by_run = || cell.iter().zip(own.chunks(per_run));
            let is_base = |(run, _): &(&Run, _)| run.lock.name == setup.parameters.baseline;
            let base = by_run().find(is_base);
            let base = base.expect("the baseline is one of the locks");
            results.extend(by_run().map(|run| Entry::new(base, run)));
        }
        Self {
            host_threads,
            host_seconds: samples.iter().map(|s| s.outcome.host_seconds).sum(),
            grid: standings(&results),
            results,
            setup,
        }
    }
}

impl Entry {
    fn new(base: (&Run, &[Sample]), (run, samples): (&Run, &[Sample])) -> Self {
        let usual = || usual(samples);
        let pairs = samples.iter().zip(base.1);
        let runs: Vec<_> = pairs
            .map(|(sample, base)| Simulated {
                ratio: over(sample.outcome.ops_per_us, base.outcome.ops_per_us),
                sample: sample.clone(),
            })
            .collect();
        let ratios = band_of_pairs(runs.iter().map(|run| (&run.sample, run.ratio)));
        let ops_per_us = band(samples, |outcome| outcome.ops_per_us);
        let mut counters = BTreeMap::new();
        for (&name, count) in usual().flat_map(|outcome| &outcome.counters) {
            *counters.entry(name).or_default() += count;
        }
        let ids = bursts(usual());
        let events = samples.iter().map(|sample| sample.outcome.events).sum();
        let host_seconds: f64 = samples.iter().map(|s| s.outcome.host_seconds).sum();
        Self {
            suite: if ids.is_some() { "ids" } else { "locks" },
            lock: run.lock.name,
            workload: run.workload.name,
            threads: run.threads,
            ops_per_us,
            ops_per_s: scaled(ops_per_us, 1e6),
            ns_per_op: band(samples, |outcome| over(1e3, outcome.ops_per_us)),
            cpu_ns_per_op: band(samples, |outcome| outcome.cpu_ns_per_op),
            ratio: Ratio {
                to: base.0.lock.name,
                over_runs: ratios,
            },
            fairness: Fairness {
                jain: median(usual().map(|outcome| outcome.fairness.jain)),
                min_over_mean: median(usual().map(|outcome| outcome.fairness.min_over_mean)),
            },
            acquire_ns: acquire(usual()),
            longest_ns: usual()
                .filter_map(|outcome| outcome.longest_ns)
                .reduce(longer),
            unended_ns: usual()
                .map(|outcome| outcome.unended_ns)
                .fold(Longest::default(), longer),
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

fn longer(a: Longest, b: Longest) -> Longest {
    Longest {
        read: a.read.max(b.read),
        write: a.write.max(b.write),
    }
}

fn handoffs<'a>(all: impl Iterator<Item = &'a Outcome>) -> Handoffs {
    all.fold(Handoffs::default(), |sum, outcome| Handoffs {
        local: sum.local + outcome.handoffs.local,
        remote: sum.remote + outcome.handoffs.remote,
        retaken: sum.retaken + outcome.handoffs.retaken,
    })
}

fn traffic_per_op<'a>(
    all: impl Iterator<Item = &'a Outcome> + Clone,
) -> BTreeMap<&'static str, f64> {
    let ops: u64 = all.clone().map(|outcome| outcome.ops).sum();
    let per_op = |(name, of): (&'static str, fn(&_) -> u64)| {
        let count: u64 = all.clone().map(|outcome| of(&outcome.traffic)).sum();
        (name, count as f64 / (ops as f64).max(1.0))
    };
    SERVICES.into_iter().map(per_op).collect()
}

fn acquire<'a>(all: impl Iterator<Item = &'a Outcome> + Clone) -> Acquire {
    let quantile = |of: fn(&Acquire) -> u64| {
        let values = all.clone();
        median(values.map(|outcome| of(&outcome.acquire_ns) as f64)).round() as u64
    };
    Acquire {
        p50: quantile(|waits| waits.p50),
        p99: quantile(|waits| waits.p99),
        p999: quantile(|waits| waits.p999),
        max: all.clone().map(|o| o.acquire_ns.max).max().unwrap_or(0),
    }
}

/// A lock compared with the baseline, over all cells of a number of threads.
#[derive(Debug, Serialize)]
pub struct Standings {
    pub threads: usize,
    pub lock: &'static str,
    /// Geometric mean of the ratios of throughput.
    pub ratio: f64,
    /// Geometric means of the ratios of the 99 % waits, and of the CPU times per operation.
    pub p99_ratio: f64,
    pub cpu_ratio: f64,
    pub cells: usize,
    /// How many ratios are below [`ENOUGH`].
    pub cells_below: usize,
    pub least: f64,
    /// The cell of the least ratio.
    pub least_cell: &'static str,
}

/// No cell should have less than this share of the baseline's throughput.
pub const ENOUGH: f64 = 0.9;

/// Whether the workload is a cell.
pub fn is_cell(workload: &str) -> bool {
    Cell::find(workload).is_some()
}

/// How all locks except the baseline compare, by number of threads.
fn standings(results: &[Entry]) -> Vec<Standings> {
    let mut groups: Vec<Vec<(&Entry, &Entry)>> = Vec::new();
    for own in results
        .iter()
        .filter(|e| is_cell(e.workload) && e.lock != e.ratio.to)
    {
        let is_base = |e: &&Entry| {
            (e.workload, e.threads, e.lock) == (own.workload, own.threads, own.ratio.to)
        };
        let base = results.iter().find(is_base);
        let pair = (own, base.expect("each cell has the baseline"));
        let is_of = |group: &&mut Vec<(&Entry, &Entry)>| {
            (group[0].0.threads, group[0].0.lock) == (own.threads, own.lock)
        };
        match groups.iter_mut().find(is_of) {
            Some(group) => group.push(pair),
            None => groups.push(vec![pair]),
        }
    }
    // The sort is stable, so locks stay in their order.
    groups.sort_by_key(|group| group[0].0.threads);
    groups.iter().map(|group| Standings::of(group)).collect()
}

impl Standings {
    /// The standings of a lock, from at least one of its entries, each with the baseline's.
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
            lock: least.lock,
            ratio: geometric_mean(entries.iter().map(ratio)),
            p99_ratio: mean(|e| e.acquire_ns.p99 as f64),
            cpu_ratio: mean(|e| e.cpu_ns_per_op.median),
            cells: entries.len(),
            cells_below: entries.iter().filter(|e| ratio(e) < ENOUGH).count(),
            least: ratio(least),
            least_cell: least.workload,
        }
    }
}
