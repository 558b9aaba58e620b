//! The shape of the JSON report: that of the suite `locks`, with what concerns sections in the place of what concerns locks. Field names are a contract: add, never rename.

use serde::Serialize;

use super::name::ContenderName;
use super::run::{Measured, Plan};
use crate::bench::interleave::Extent;
use crate::bench::results::{Ratio, Unavailable};
use crate::bench::rounds::{self, Conclusions, Round};
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
    /// What this build or machine lacks.
    pub unavailable: Vec<Unavailable>,
    /// One entry per contender, workload and number of threads.
    pub results: Vec<Entry>,
}

/// How things were measured.
#[derive(Debug, Serialize)]
pub struct Parameters {
    /// Length of a slice.
    pub seconds: f64,
    /// Rounds per cell.
    pub rounds: usize,
    /// Start of all random numbers.
    pub seed: u64,
}

/// One contender in one cell.
#[derive(Debug, Serialize)]
pub struct Entry {
    /// `invalidation`.
    pub suite: &'static str,
    /// Name of the contender.
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
    /// Whether the rounds disagree on which is faster by more than 10 %.
    pub noisy: bool,
    /// Over the operations of all rounds together.
    pub fairness: Fairness,
    /// Stamps that were looked at, in the demonstration.
    pub verified: u64,
    /// Stamps that were lost: the contender is wrong if there are any.
    pub lost: u64,
    /// What our domain counted, over all rounds.
    pub sections: Option<Sections>,
    /// Raw values, one per round.
    pub rounds: Vec<Round>,
}

/// What a domain counted.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Sections {
    /// Beginnings that started over.
    pub begin_restarts: u64,
    /// Ends that did.
    pub end_restarts: u64,
    /// Waits for what had not passed.
    pub waits: u64,
    /// Those that slept.
    pub slow_waits: u64,
    /// The most sections open at a time.
    pub longest_queue: u64,
}

impl Report {
    /// Draws conclusions from what was measured.
    pub fn new(plan: &Plan, machine: Machine, measured: &[Measured], extent: Extent) -> Self {
        let cells = measured.chunk_by(|a, b| (a.workload, a.threads) == (b.workload, b.threads));
        let results: Vec<Entry> = cells
            .flat_map(|cell| {
                let is_baseline = |one: &&Measured| one.contender == plan.baseline;
                // Where the baseline has nothing to do, the first one takes its place.
                let baseline = cell.iter().find(is_baseline).unwrap_or(&cell[0]);
                cell.iter().map(|one| Entry::new(one, baseline))
            })
            .collect();
        Report {
            kind: "measured",
            extent,
            warnings: warnings(&results, &machine, &extent),
            machine,
            command: std::env::args().collect(),
            parameters: Parameters {
                seconds: plan.seconds,
                rounds: plan.rounds,
                seed: plan.seed,
            },
            unavailable: unavailable(),
            results,
        }
    }
}

fn unavailable() -> Vec<Unavailable> {
    let all = ContenderName::ALL.into_iter();
    all.filter_map(|one| {
        Some(Unavailable {
            lock: one.name(),
            remedy: one.unavailable()?,
        })
    })
    .collect()
}

fn warnings(results: &[Entry], machine: &Machine, extent: &Extent) -> Vec<String> {
    let first = [extent.warning(), rounds::busy(machine)];
    let mut warnings: Vec<_> = first.into_iter().flatten().collect();
    for entry in results.iter().filter(|entry| entry.lost > 0) {
        warnings.push(format!(
            "{} LOST {} stamps with {} threads: it is wrong",
            entry.lock, entry.lost, entry.threads
        ));
    }
    warnings.extend(rounds::noisy(results.iter().map(|entry| entry.noisy)));
    for one in unavailable() {
        warnings.push(format!("{} was not measured: {}", one.lock, one.remedy));
    }
    warnings
}

impl Entry {
    fn new(measured: &Measured, baseline: &Measured) -> Self {
        let samples = measured.samples.iter().zip(baseline.samples());
        let rounds = samples.map(|((place, sample), baseline)| {
            Round::new(*place, &sample.ops, sample.elapsed, baseline.ops_per_s())
        });
        let rounds: Vec<_> = rounds.collect();
        let all = Conclusions::of(&rounds);
        Entry {
            suite: "invalidation",
            lock: measured.contender.name(),
            workload: measured.workload.name(),
            threads: measured.threads,
            ops_per_s: all.ops_per_s,
            ns_per_op: all.ns_per_op,
            ratio: Ratio {
                to: baseline.contender.name(),
                over_rounds: all.ratio,
            },
            noisy: all.noisy,
            fairness: all.fairness,
            verified: measured.samples().map(|sample| sample.verified).sum(),
            lost: measured.samples().map(|sample| sample.lost).sum(),
            sections: sections(measured),
            rounds,
        }
    }
}

fn sections(measured: &Measured) -> Option<Sections> {
    let stats: Vec<_> = measured
        .samples()
        .filter_map(|sample| sample.stats)
        .collect();
    let mut sum = Sections::default();
    stats.first()?;
    stats.iter().for_each(|stats| {
        sum.begin_restarts += stats.begin_restarts;
        sum.end_restarts += stats.end_restarts;
        sum.waits += stats.waits;
        sum.slow_waits += stats.slow_waits;
        sum.longest_queue = sum.longest_queue.max(stats.longest_queue);
    });
    Some(sum)
}
