//! What came out, and how it is shown.

use serde::Serialize;

use super::subjects::Workload;
use super::{Measured, Plan, plot};
use crate::bench::interleave::{Extent, if_fewer};
use crate::bench::results::Ratio;
use crate::bench::rounds::{self, Conclusions, Round};
use crate::bench::stats::{Fairness, Summary};
use crate::machine::Machine;
use crate::output::cells::{Cells, Compared, Usual};
use crate::output::report::{Flags, Plot};
use crate::output::table::Columns;
use crate::output::units::time;

/// One run of the command.
#[derive(Debug, Serialize)]
pub struct Report {
    /// `measured`: on this machine, in this run.
    pub kind: &'static str,
    /// Where.
    pub machine: Machine,
    /// Whether this machine has restartable sequences with a concurrency ID; if not, why.
    pub restartable: String,
    /// The command line.
    pub command: Vec<String>,
    /// What the command line left open.
    pub parameters: Parameters,
    /// How far the run has come.
    pub extent: Extent,
    /// What to keep in mind when reading the results.
    pub warnings: Vec<String>,
    /// One entry per subject, workload and number of threads.
    pub results: Vec<Entry>,
}

/// How things were measured.
#[derive(Debug, Serialize)]
pub struct Parameters {
    /// Length of a timed slice.
    pub seconds: f64,
    /// Rounds per cell.
    pub rounds: usize,
    /// Between two bursts of `intermittent`.
    pub delay_seconds: f64,
    /// Start of all random numbers.
    pub seed: u64,
}

/// One subject in one cell.
#[derive(Debug, Serialize)]
pub struct Entry {
    /// `ids`.
    pub suite: &'static str,
    /// Name of the subject, under the name that all suites use.
    pub lock: String,
    /// The policy of leases.
    pub policy: Option<&'static str>,
    /// Name of the workload.
    pub workload: &'static str,
    /// Number of threads.
    pub threads: usize,
    /// Operations of all threads per second; for `intermittent`, of the time inside bursts.
    pub ops_per_s: Summary,
    /// Nanoseconds from one operation to the next, of whichever thread: 1e9 / `ops_per_s`.
    pub ns_per_op: Summary,
    /// CPU time of the process per operation: what an operation costs whoever does it.
    pub cpu_ns_per_op: Summary,
    /// Throughput over the baseline's in the same round.
    pub ratio: Ratio,
    /// Over the operations of all rounds together.
    pub fairness: Fairness,
    /// Whether the rounds disagree on which is faster, by more than 10 %.
    pub noisy: bool,
    /// Raw values.
    pub rounds: Vec<Round>,
}

impl Report {
    /// Draws conclusions from what was measured.
    pub fn new(plan: &Plan, machine: Machine, measured: &[Measured], extent: Extent) -> Self {
        let cells = measured.chunk_by(|a, b| (a.workload, a.threads) == (b.workload, b.threads));
        let results: Vec<_> = cells
            .flat_map(|cell| {
                let name = cell[0].workload.baseline();
                let baseline = cell.iter().find(|measured| measured.name == name);
                let baseline =
                    baseline.expect("every workload has its baseline among its subjects");
                cell.iter().map(|measured| Entry::new(measured, baseline))
            })
            .collect();
        let available = kinlock_ids::Backend::Restartable.available();
        Report {
            kind: "measured",
            extent,
            warnings: warnings(&results, &machine, &extent),
            machine,
            restartable: available.map_or_else(|why| why.to_string(), |()| "available".to_owned()),
            command: std::env::args().collect(),
            parameters: Parameters {
                seconds: plan.seconds,
                rounds: plan.rounds,
                delay_seconds: plan.delay,
                seed: plan.seed,
            },
            results,
        }
    }
}

fn warnings(results: &[Entry], machine: &Machine, extent: &Extent) -> Vec<String> {
    let noisy = rounds::noisy(results.iter().map(|entry| entry.noisy));
    let all = [extent.warning(), rounds::busy(machine), noisy];
    all.into_iter().flatten().collect()
}

impl Entry {
    fn new(measured: &Measured, baseline: &Measured) -> Self {
        let pairs = measured.samples.iter().zip(&baseline.samples);
        let rounds = pairs.map(|((place, sample), (_, baseline))| {
            let baseline = baseline.ops_per_s();
            Round::new(*place, &sample.ops, sample.elapsed, baseline)
        });
        let rounds: Vec<_> = rounds.collect();
        let all = Conclusions::of(&rounds);
        let samples = measured.samples.iter().map(|(_, sample)| sample);
        let cpu = samples.map(|sample| sample.cpu.as_nanos() as f64 / sample.total());
        Entry {
            suite: "ids",
            lock: measured.name.clone(),
            policy: measured.policy.map(|policy| policy.name()),
            workload: measured.workload.name(),
            threads: measured.threads,
            ops_per_s: all.ops_per_s,
            ns_per_op: all.ns_per_op,
            cpu_ns_per_op: Summary::of(cpu),
            ratio: Ratio {
                to: measured.workload.baseline(),
                over_rounds: all.ratio,
            },
            fairness: all.fairness,
            noisy: all.noisy,
            rounds,
        }
    }
}

impl Cells for Report {
    type Entry = Entry;

    const FLAGS: Flags<Self> = Flags {
        json: "Write the full report, raw rounds included, as JSON (- for stdout)",
        csv: "Write one line per subject and cell as CSV (- for stdout)",
        plot: Some(Plot {
            help: "Draw the time per operation; the name ends in .svg or .png",
            size: plot::size,
            draw: plot::draw,
        }),
    };
    const NAMES: &'static str = "what";

    fn entries(&self) -> &[Entry] {
        &self.results
    }

    fn columns(&self, _entry: &Entry) -> Columns<Entry> {
        Columns::<Entry>::new()
            .speed()
            .add("cpu/op", |e| time(e.cpu_ns_per_op.median))
            .ratio("x baseline")
            .spread("spread", |usual| usual.ratio)
            .min_over_mean()
    }

    fn csv_columns() -> Columns<Entry> {
        Columns::<Entry>::new()
            .csv_key()
            .add("policy", |e| e.policy.unwrap_or(""))
            .csv_ops("ops_per_s", ["min", "max"], 1)
            .csv_ns_per_op()
            .number("cpu_ns_per_op", 3, |e| e.cpu_ns_per_op.median)
            .csv_ratio()
            .csv_min_over_mean()
            .add("noisy", |e| e.noisy)
            .add("rounds", |e| e.rounds.len())
    }

    fn heading(&self) -> String {
        let (summary, restartable) = (self.machine.summary(), &self.restartable);
        format!("{summary}\nrestartable sequences: {restartable}")
    }

    fn markdown_heading(&self) -> String {
        format!(
            "Measured on {}; restartable sequences: {}.\n{} of {:.3} s; kinlock {}.",
            self.machine.summary(),
            self.restartable,
            self.extent.rounds_per_cell(self.parameters.rounds),
            self.parameters.seconds,
            self.machine.version,
        )
    }

    /// With what is done there.
    fn title(&self, entry: &Entry) -> String {
        let summary = entry.workload.parse().map_or("", Workload::summary);
        let (cell, to) = (entry.usual().cell(), entry.ratio.to);
        let fewer = if_fewer(entry.rounds.len(), self.parameters.rounds);
        format!("{cell}: {summary}; baseline {to}{fewer}")
    }

    fn warnings(&self) -> &[String] {
        &self.warnings
    }
}

impl Compared for Entry {
    fn usual(&self) -> Usual<'_> {
        Usual {
            suite: self.suite,
            workload: self.workload,
            threads: self.threads,
            lock: &self.lock,
            ops: self.ops_per_s,
            ns_per_op: self.ns_per_op,
            baseline: self.ratio.to,
            ratio: self.ratio.over_rounds,
            noisy: self.noisy,
            fairness: self.fairness,
        }
    }
}
