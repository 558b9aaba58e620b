//! The shape of the JSON report. Field names are a contract: add, never rename.

use std::collections::BTreeMap;

use serde::Serialize;

use super::flags::{self, Flag};
use super::interleave::Extent;
use super::plan::Plan;
use super::runner::Sample;
use super::suite::Measured;
use super::work_loop;
use crate::locks::LockName;
use crate::machine::Machine;
use crate::stats::{Fairness, Summary};

/// One run of the command.
#[derive(Debug, Serialize)]
pub struct Report {
    /// `measured`: on this machine, in this run.
    pub kind: &'static str,
    /// Where.
    pub machine: Machine,
    /// The command line.
    pub command: Vec<String>,
    /// What the command line left open.
    pub parameters: Parameters,
    /// How far the run has come.
    pub extent: Extent,
    /// What to keep in mind when reading the results.
    pub warnings: Vec<String>,
    /// Locks that this build or machine lacks.
    pub unavailable: Vec<Unavailable>,
    /// One entry per lock, workload and number of threads.
    pub results: Vec<Entry>,
}

/// How things were measured.
#[derive(Debug, Serialize)]
pub struct Parameters {
    /// Length of a timed slice.
    pub seconds: f64,
    /// Length of an instrumented slice.
    pub instrumented_seconds: f64,
    /// What runs before each slice.
    pub warm_up_seconds: f64,
    /// Rounds per cell.
    pub rounds: usize,
    /// Start of all random numbers.
    pub seed: u64,
    /// What one iteration of the loop took that stands for work, in ns.
    pub work_loop_ns: f64,
    /// For each number of threads, the CPUs that they were bound to; none if they were not bound.
    pub cpus_by_threads: BTreeMap<usize, Vec<usize>>,
}

/// A lock that could not be measured.
#[derive(Debug, Serialize)]
pub struct Unavailable {
    /// Its name.
    pub lock: &'static str,
    /// How to get it.
    pub remedy: &'static str,
}

/// One lock in one cell.
#[derive(Debug, Serialize)]
pub struct Entry {
    /// `locks`.
    pub suite: &'static str,
    /// Name of the lock.
    pub lock: &'static str,
    /// Name of the workload.
    pub workload: &'static str,
    /// Number of threads.
    pub threads: usize,
    /// Operations of all threads per second.
    pub ops_per_s: Summary,
    /// Nanoseconds from one operation to the next, of whichever thread: 1e9 / `ops_per_s`.
    pub ns_per_op: Summary,
    /// Throughput over the baseline's in the same round.
    pub ratio: Ratio,
    /// Over the operations of all rounds together.
    pub fairness: Fairness,
    /// From asking for the lock to having it, over all rounds.
    pub acquire_ns: Acquire,
    /// The 99.9 % quantile of a round's acquisition times over the baseline's in the same round. Both are known within 1 %; of fewer than a thousand acquisitions
    /// they are the longest.
    pub acquire_p999_ratio: Ratio,
    /// How the lock travelled in the instrumented slices, over all rounds.
    pub handoffs: HandoffCounts,
    /// CPU time of the process per operation.
    pub cpu_ns_per_op: Summary,
    /// What our locks counted on their slow paths while the instrumented slices warmed up (`warm_up_seconds` each), over all rounds; none for others' locks. To be
    /// compared with each other, as with `slow_path`: `handoffs` are of other spans.
    pub events: BTreeMap<&'static str, u64>,
    /// What stands out.
    pub flags: Vec<Flag>,
    /// Raw values, one per round.
    pub rounds: Vec<Round>,
}

/// Compared with the baseline, round by round.
#[derive(Debug, Serialize)]
pub struct Ratio {
    /// The baseline.
    pub to: &'static str,
    /// Over rounds.
    #[serde(flatten)]
    pub over_rounds: Summary,
}

/// Quantiles of acquisition times in ns, from the instrumented slices; upper bounds within 1 %.
#[derive(Debug, Serialize)]
pub struct Acquire {
    /// Median.
    pub p50: u64,
    /// 99 %.
    pub p99: u64,
    /// 99.9 %.
    pub p999: u64,
    /// The longest.
    pub max: u64,
}

/// Hand-offs, from the instrumented slices.
#[derive(Debug, Serialize)]
pub struct HandoffCounts {
    /// To another thread of the same locality domain.
    pub local: u64,
    /// To a thread of another locality domain.
    pub remote: u64,
    /// Acquisitions by the thread that held the lock last: no hand-off.
    pub retaken: u64,
    /// The longest acquisition that took the lock over from another domain.
    pub longest_remote_wait_ns: u64,
    /// The longest time that the lock stayed in one domain before it went to another.
    pub longest_local_run_ns: u64,
}

/// One round of one lock.
#[derive(Debug, Serialize)]
pub struct Round {
    /// The lock's place in the order of the round, from 0.
    pub place: usize,
    /// Length of the timed slice.
    pub seconds: f64,
    /// Throughput.
    pub ops_per_s: f64,
    /// Over the baseline's throughput in this round.
    pub ratio: f64,
    /// Operations of each thread; one number where each operation takes all threads.
    pub ops_per_thread: Vec<u64>,
    /// CPU time of the process per operation.
    pub cpu_ns_per_op: f64,
    /// 99.9 % quantile of the acquisition times of the instrumented slice.
    pub acquire_p999_ns: u64,
    /// Over the baseline's in this round.
    pub acquire_p999_ratio: f64,
    /// Longest acquisition of the instrumented slice.
    pub acquire_max_ns: u64,
}

impl Report {
    /// Draws conclusions from what was measured.
    pub fn new(plan: &Plan, machine: Machine, measured: &[Measured], extent: Extent) -> Self {
        let mut results: Vec<Entry> = measured
            .chunk_by(|a, b| (a.workload, a.threads) == (b.workload, b.threads))
            .flat_map(|cell| {
                let baseline = cell
                    .iter()
                    .find(|measured| measured.lock == plan.baseline)
                    .expect("the plan has the baseline among its locks");
                cell.iter().map(|measured| Entry::new(measured, baseline))
            })
            .collect();
        flags::raise(&mut results, plan);
        Self {
            kind: "measured",
            extent,
            warnings: flags::warnings(&results, plan, &machine, &extent),
            machine,
            command: std::env::args().collect(),
            parameters: Parameters::of(plan),
            unavailable: LockName::ALL
                .iter()
                .filter_map(|lock| {
                    let remedy = lock.unavailable()?;
                    Some(Unavailable {
                        lock: lock.name(),
                        remedy,
                    })
                })
                .collect(),
            results,
        }
    }
}

/// The locks that were measured, in the usual order.
pub fn locks_of(entries: &[Entry]) -> Vec<&'static str> {
    let names = LockName::ALL.iter().map(|lock| lock.name());
    names
        .filter(|name| entries.iter().any(|entry| entry.lock == *name))
        .collect()
}

impl Parameters {
    fn of(plan: &Plan) -> Self {
        let timing = plan.timing();
        Self {
            seconds: timing.timed.as_secs_f64(),
            instrumented_seconds: timing.instrumented.as_secs_f64(),
            warm_up_seconds: timing.warm_up.as_secs_f64(),
            rounds: plan.rounds,
            seed: plan.seed,
            work_loop_ns: work_loop::ns_per_iteration(),
            cpus_by_threads: plan
                .workloads
                .iter()
                .flat_map(|&workload| plan.threads_of(workload))
                .map(|threads| (threads, plan.cpus(threads)))
                .collect(),
        }
    }
}

impl Entry {
    fn new(measured: &Measured, baseline: &Measured) -> Self {
        let rounds = rounds(measured, baseline);
        let ratio = |of_round: fn(&Round) -> f64| Ratio {
            to: baseline.lock.name(),
            over_rounds: Summary::of(rounds.iter().map(of_round)),
        };
        Self {
            suite: "locks",
            lock: measured.lock.name(),
            workload: measured.workload.name(),
            threads: measured.threads,
            ops_per_s: Summary::of(rounds.iter().map(|round| round.ops_per_s)),
            ns_per_op: Summary::of(rounds.iter().map(|round| 1e9 / round.ops_per_s)),
            ratio: ratio(|round| round.ratio),
            fairness: Fairness::over(measured.samples().map(|sample| &sample.ops[..])),
            acquire_ns: Acquire::of(measured),
            acquire_p999_ratio: ratio(|round| round.acquire_p999_ratio),
            handoffs: HandoffCounts::of(measured),
            cpu_ns_per_op: Summary::of(rounds.iter().map(|round| round.cpu_ns_per_op)),
            events: events(measured),
            flags: Vec::new(),
            rounds,
        }
    }
}

fn events(measured: &Measured) -> BTreeMap<&'static str, u64> {
    let mut sums = BTreeMap::new();
    for &(name, count) in measured.samples().flat_map(|sample| &sample.events) {
        *sums.entry(name).or_default() += count;
    }
    sums
}

fn p999(sample: &Sample) -> u64 {
    sample.acquire.value_at_quantile(0.999)
}

fn rounds(measured: &Measured, baseline: &Measured) -> Vec<Round> {
    let samples = measured.samples.iter().zip(baseline.samples());
    samples
        .map(|((place, sample), baseline)| Round {
            place: *place,
            seconds: sample.elapsed.as_secs_f64(),
            ops_per_s: sample.ops_per_s(),
            ratio: sample.ops_per_s() / baseline.ops_per_s(),
            ops_per_thread: sample.ops.clone(),
            cpu_ns_per_op: sample.cpu.as_nanos() as f64 / sample.total_ops(),
            acquire_p999_ns: p999(sample),
            acquire_p999_ratio: p999(sample).max(1) as f64 / p999(baseline).max(1) as f64,
            acquire_max_ns: sample.acquire.max(),
        })
        .collect()
}

impl Acquire {
    fn of(measured: &Measured) -> Self {
        let mut samples = measured.samples();
        let mut all = samples.next().expect("at least one round").acquire.clone();
        for sample in samples {
            all.add(&sample.acquire)
                .expect("the histogram grows by itself");
        }
        Self {
            p50: all.value_at_quantile(0.5),
            p99: all.value_at_quantile(0.99),
            p999: all.value_at_quantile(0.999),
            max: all.max(),
        }
    }
}

impl HandoffCounts {
    /// The share of hand-offs within a locality domain, if there were any.
    pub fn local_share(&self) -> Option<f64> {
        let all = self.local + self.remote;
        (all > 0).then(|| self.local as f64 / all as f64)
    }

    fn of(measured: &Measured) -> Self {
        let mut sum = super::trace::Handoffs::default();
        let mut longest_remote_wait_ns = 0;
        for sample in measured.samples() {
            sum.add(&sample.handoffs);
            longest_remote_wait_ns = longest_remote_wait_ns.max(sample.longest_remote_wait);
        }
        Self {
            local: sum.local,
            remote: sum.remote,
            retaken: sum.retaken,
            longest_remote_wait_ns,
            longest_local_run_ns: sum.longest_local_run,
        }
    }
}
