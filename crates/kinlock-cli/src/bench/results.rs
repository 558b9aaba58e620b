//! The shape of the JSON report. Field names are a contract: add, never rename.

use serde::Serialize;

use super::plan::Plan;
use super::stats::{Fairness, Summary};
use super::suite::Measured;

/// One run of the command.
#[derive(Debug, Serialize)]
pub struct Report {
    /// `measured`: on this machine, in this run.
    pub kind: &'static str,
    /// The command line.
    pub command: Vec<String>,
    /// One entry per lock, workload and number of threads.
    pub results: Vec<Entry>,
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
    /// Median over rounds.
    pub fairness: Fairness,
    /// From asking for the lock to having it, over all rounds.
    pub acquire_ns: Acquire,
    /// How the lock travelled, over all rounds.
    pub handoffs: HandoffCounts,
    /// CPU time of the process per operation.
    pub cpu_ns_per_op: Summary,
    /// Raw values, one per round.
    pub rounds: Vec<Round>,
}

/// Throughput compared.
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
    /// Operations of each thread.
    pub ops_per_thread: Vec<u64>,
    /// CPU time of the process per operation.
    pub cpu_ns_per_op: f64,
    /// Longest acquisition of the instrumented slice.
    pub acquire_max_ns: u64,
}

impl Report {
    /// Draws conclusions from what was measured.
    pub fn new(plan: &Plan, measured: &[Measured]) -> Self {
        let results = measured
            .chunk_by(|a, b| (a.workload, a.threads) == (b.workload, b.threads))
            .flat_map(|cell| {
                let baseline = cell
                    .iter()
                    .find(|measured| measured.lock == plan.baseline)
                    .expect("the plan has the baseline among its locks");
                cell.iter().map(|measured| Entry::new(measured, baseline))
            })
            .collect();
        Self {
            kind: "measured",
            command: std::env::args().collect(),
            results,
        }
    }
}

impl Entry {
    fn new(measured: &Measured, baseline: &Measured) -> Self {
        let rounds = rounds(measured, baseline);
        let fairness: Vec<_> = measured
            .samples
            .iter()
            .map(|sample| Fairness::of(&sample.ops))
            .collect();
        Self {
            suite: "locks",
            lock: measured.lock.name(),
            workload: measured.workload.name(),
            threads: measured.threads,
            ops_per_s: Summary::of(rounds.iter().map(|round| round.ops_per_s)),
            ns_per_op: Summary::of(rounds.iter().map(|round| 1e9 / round.ops_per_s)),
            ratio: Ratio {
                to: baseline.lock.name(),
                over_rounds: Summary::of(rounds.iter().map(|round| round.ratio)),
            },
            fairness: Fairness {
                jain: Summary::of(fairness.iter().map(|fairness| fairness.jain)).median,
                min_over_mean: Summary::of(fairness.iter().map(|f| f.min_over_mean)).median,
            },
            acquire_ns: Acquire::of(measured),
            handoffs: HandoffCounts::of(measured),
            cpu_ns_per_op: Summary::of(rounds.iter().map(|round| round.cpu_ns_per_op)),
            rounds,
        }
    }
}

fn rounds(measured: &Measured, baseline: &Measured) -> Vec<Round> {
    let samples = measured.samples.iter().zip(&baseline.samples);
    samples
        .zip(&measured.places)
        .map(|((sample, baseline), &place)| Round {
            place,
            seconds: sample.elapsed.as_secs_f64(),
            ops_per_s: sample.ops_per_s(),
            ratio: sample.ops_per_s() / baseline.ops_per_s(),
            ops_per_thread: sample.ops.clone(),
            cpu_ns_per_op: sample.cpu.as_nanos() as f64 / sample.total_ops(),
            acquire_max_ns: sample.acquire.max(),
        })
        .collect()
}

impl Acquire {
    fn of(measured: &Measured) -> Self {
        let mut samples = measured.samples.iter();
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
    fn of(measured: &Measured) -> Self {
        let mut sum = super::trace::Handoffs::default();
        let mut longest_remote_wait_ns = 0;
        for sample in &measured.samples {
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
