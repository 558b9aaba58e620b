//! The report of a suite. Field names of its JSON are a contract: add, never rename.

use std::collections::BTreeMap;
use std::io::Write;
use std::ops::Range;

use comfy_table::Cell;
use serde::Serialize;
use serde_json::Value;

use super::rounds::{Extent, Placed, if_fewer};
use super::slice::Sample;
use super::suite::{Plan, Suite};
use super::{overview, plot};
use crate::args::{Available, Named};
use crate::machine::Machine;
use crate::report::cells::{Cells, Compared, Usual};
use crate::report::plot::{Area, Drawn};
use crate::report::table::Columns;
use crate::report::{Flags, Plot};
use crate::stats::{Fairness, Summary, is_noisy};

/// How the results of a suite are shown.
pub trait Shown: Suite {
    /// What stands over the names of subjects.
    const SUBJECTS: &'static str;
    /// Our subjects, the one that the summary is about first. The first that was measured counts.
    const OURS: &'static [&'static str];
    /// What `--plot` draws.
    const PLOT: &'static str;

    /// The columns of a detailed table, to which `entry` belongs.
    fn columns(report: &Report<Self>, entry: &Entry<Self>) -> Columns<Entry<Self>>;
    fn csv_columns() -> Columns<Entry<Self>>;
    /// A subject's remarks on itself, as `unfair`.
    fn remarks(_entry: &Entry<Self>) -> Vec<&'static str> {
        Vec::new()
    }
    /// Whether the cell of an entry has a row of its own in the overview.
    fn has_row(_report: &Report<Self>, _entry: &Entry<Self>) -> bool {
        true
    }
    /// Writes what follows these rows.
    fn write_more(_report: &Report<Self>, _out: &mut dyn Write) -> anyhow::Result<()> {
        Ok(())
    }
    /// A cell of a detailed table on stdout.
    fn paint(_heading: &str, text: &str) -> Cell {
        Cell::new(text)
    }
    /// Whether the picture has curves over numbers of threads.
    const CURVES: bool = true;
    fn plot_size(report: &Report<Self>) -> (u32, u32) {
        plot::size(report)
    }
    fn draw(report: &Report<Self>, area: &Area) -> Drawn {
        plot::draw(report, area)
    }
}

/// One run of a suite.
#[derive(Serialize)]
#[serde(bound = "")]
pub struct Report<S: Suite> {
    /// `measured`: on this machine, in this run.
    pub kind: &'static str,
    pub machine: Machine,
    /// More about the machine.
    #[serde(flatten)]
    pub facts: BTreeMap<&'static str, String>,
    pub command: Vec<String>,
    /// What the command line left open.
    pub parameters: Parameters,
    pub extent: Extent,
    /// What to keep in mind when reading the results.
    pub warnings: Vec<String>,
    /// What this build or machine lacks.
    pub unavailable: Vec<Unavailable>,
    /// What all results together say.
    #[serde(flatten)]
    pub summary: BTreeMap<&'static str, Value>,
    /// One entry per subject, workload and number of threads.
    pub results: Vec<Entry<S>>,
    /// Whether people see the detailed tables.
    #[serde(skip)]
    details: bool,
}

/// How things were measured.
#[derive(Serialize)]
pub struct Parameters {
    /// Length of a timed slice, the shortest if they differ.
    pub seconds: f64,
    /// The same in words.
    #[serde(skip)]
    slice: String,
    pub rounds: usize,
    pub seed: u64,
    /// Other busy processes meanwhile.
    pub hogs: usize,
    #[serde(flatten)]
    more: Value,
}

/// A subject that could not be measured.
#[derive(Serialize)]
pub struct Unavailable {
    pub lock: &'static str,
    pub remedy: &'static str,
}

impl Unavailable {
    /// All that are not there.
    pub fn all<T: Available>() -> Vec<Self> {
        let missing = |one: T| Some((one.name(), one.unavailable()?));
        let missing = T::all().into_iter().filter_map(missing);
        missing
            .map(|(lock, remedy)| Self { lock, remedy })
            .collect()
    }
}

/// One subject in one cell.
#[derive(Serialize)]
#[serde(bound = "")]
pub struct Entry<S: Suite> {
    /// `locks`, for example.
    pub suite: &'static str,
    /// Name of the subject, under the name that all suites use.
    pub lock: String,
    pub workload: &'static str,
    pub threads: usize,
    /// Operations of all threads per second.
    pub ops_per_s: Summary,
    /// Nanoseconds from one operation of any thread to the next: 1e9 / `ops_per_s`.
    pub ns_per_op: Summary,
    /// CPU time of the process per operation.
    pub cpu_ns_per_op: Summary,
    /// Throughput over the baseline's in the same round.
    pub ratio: Ratio,
    /// Over the operations of all rounds together.
    pub fairness: Fairness,
    /// Whether the rounds disagree on which is faster, by more than 10 %.
    pub noisy: bool,
    /// What only this suite knows.
    #[serde(flatten)]
    pub detail: S::Detail,
    /// Raw values, one per round.
    pub rounds: Vec<Round>,
}

/// Compared with the baseline, round by round.
#[derive(Serialize)]
pub struct Ratio {
    pub to: String,
    #[serde(flatten)]
    pub over_rounds: Summary,
}

/// One round of one subject.
#[derive(Serialize)]
pub struct Round {
    /// Its place in the order of the round, from 0.
    pub place: usize,
    pub seconds: f64,
    pub ops_per_s: f64,
    /// Over the baseline's throughput in this round.
    pub ratio: f64,
    /// Operations of each thread; one number where each operation takes all threads.
    pub ops_per_thread: Vec<u64>,
    /// CPU time of the process per operation.
    pub cpu_ns_per_op: f64,
    /// What only this suite knows.
    #[serde(flatten)]
    detail: Value,
}

/// A subject with the samples of its rounds.
pub type Measured<'a, S> = (
    &'a <S as Suite>::Subject,
    Vec<Placed<Sample<<S as Suite>::Extra>>>,
);

impl<S: Suite> Entry<S> {
    /// The entries of a cell. A cell without a complete round has none.
    pub fn of_cell(
        suite: &S,
        workload: S::Workload,
        threads: usize,
        cell: &[Measured<S>],
    ) -> Vec<Self> {
        // A baseline that does not take part here is replaced by the first subject.
        let is_baseline =
            |(subject, _): &&Measured<S>| S::name(subject) == suite.baseline(workload);
        let Some(baseline) = cell.iter().find(is_baseline).or(cell.first()) else {
            return Vec::new();
        };
        let cell = cell.iter().filter(|(_, samples)| !samples.is_empty());
        cell.map(|own| Self::new(suite, workload, threads, own, baseline))
            .collect()
    }

    fn new(
        suite: &S,
        workload: S::Workload,
        threads: usize,
        (subject, own): &Measured<S>,
        (baseline, others): &Measured<S>,
    ) -> Self {
        let pairs = own.iter().zip(others);
        let rounds = pairs.map(|((place, own), (_, other))| Round {
            place: *place,
            seconds: own.elapsed.as_secs_f64(),
            ops_per_s: own.ops_per_s(),
            ratio: own.ops_per_s() / other.ops_per_s(),
            ops_per_thread: own.ops.clone(),
            cpu_ns_per_op: own.cpu.as_nanos() as f64 / own.total_ops(),
            detail: S::round_detail(own, other),
        });
        let rounds: Vec<Round> = rounds.collect();
        let over = |value: fn(&Round) -> f64| Summary::of(rounds.iter().map(value));
        let own: Vec<_> = own.iter().map(|(_, sample)| sample).collect();
        let others: Vec<_> = others.iter().map(|(_, sample)| sample).collect();
        Entry {
            suite: S::NAME,
            lock: S::name(subject),
            workload: workload.name(),
            threads,
            ops_per_s: over(|round| round.ops_per_s),
            ns_per_op: over(|round| 1e9 / round.ops_per_s),
            cpu_ns_per_op: over(|round| round.cpu_ns_per_op),
            ratio: Ratio {
                to: S::name(baseline),
                over_rounds: over(|round| round.ratio),
            },
            fairness: Fairness::over(own.iter().map(|sample| &sample.ops[..])),
            noisy: is_noisy(rounds.iter().map(|round| round.ratio)),
            detail: suite.detail(subject, &own, &others),
            rounds,
        }
    }
}

impl<S: Suite> Report<S> {
    /// Draws conclusions from what was measured; `disturbed` is a warning.
    pub fn new(
        suite: &S,
        plan: &Plan<S>,
        machine: Machine,
        mut results: Vec<Entry<S>>,
        extent: Extent,
        disturbed: Option<String>,
        details: bool,
    ) -> Self {
        suite.conclude(plan, &mut results);
        let usual = [
            extent.warning(),
            machine.is_busy(),
            machine.is_scaled(),
            disturbed,
        ];
        let mut warnings: Vec<_> = usual.into_iter().flatten().collect();
        warnings.extend(noisy(results.iter().map(|entry| entry.noisy)));
        warnings.extend(suite.warnings(plan, &results));
        for Unavailable { lock, remedy } in S::unavailable() {
            warnings.push(format!("{lock} was not measured: {remedy}"));
        }
        Report {
            kind: "measured",
            machine,
            facts: S::facts(),
            command: std::env::args().collect(),
            parameters: Parameters {
                seconds: plan.seconds,
                slice: plan.slice(),
                rounds: plan.rounds,
                seed: plan.seed,
                hogs: plan.hogs,
                more: suite.parameters(plan),
            },
            extent,
            warnings,
            unavailable: S::unavailable(),
            summary: S::summary(&results),
            results,
            details,
        }
    }

    /// The machine, what else is known about it, and how busy it was kept.
    pub fn where_measured(&self, between: &str) -> String {
        let facts = self.facts.iter();
        let facts = facts.map(|(name, value)| format!("{between}{name} sequences: {value}"));
        let hogs = match self.parameters.hogs {
            0 => String::new(),
            1 => format!("{between}1 other busy process meanwhile"),
            n => format!("{between}{n} other busy processes meanwhile"),
        };
        self.machine.summary() + &facts.collect::<String>() + &hogs
    }
}

fn noisy(ratios: impl ExactSizeIterator<Item = bool>) -> Option<String> {
    let all = ratios.len();
    let noisy = ratios.filter(|&noisy| noisy).count();
    (noisy > 0).then(|| {
        format!(
            "{noisy} of {all} ratios mean nothing (marked ~): rounds differ too much; try more \
            --rounds or --seconds"
        )
    })
}

impl<S: Shown> Cells for Report<S> {
    type Entry = Entry<S>;

    const FLAGS: Flags<Self> = Flags {
        json: "Write the full report, raw rounds included, as JSON (- for stdout)",
        csv: "Write one line per subject and cell as CSV (- for stdout)",
        plot: Some(Plot {
            help: S::PLOT,
            size: S::plot_size,
            draw: |report, _, area| S::draw(report, area),
        }),
    };
    const NAMES: &'static str = S::SUBJECTS;

    fn entries(&self) -> &[Entry<S>] {
        &self.results
    }

    fn columns(&self, entry: &Entry<S>) -> Columns<Entry<S>> {
        S::columns(self, entry)
    }

    fn csv_columns() -> Columns<Entry<S>> {
        S::csv_columns()
    }

    fn heading(&self) -> String {
        self.where_measured("\n")
    }

    fn markdown_heading(&self) -> String {
        let (parameters, machine) = (&self.parameters, &self.machine);
        let commit = machine.commit.map(|commit| format!(" ({commit})"));
        format!(
            "Measured on {}.\n{} of {}; kinlock {}{}.",
            self.where_measured("; "),
            self.extent.rounds_per_cell(parameters.rounds),
            parameters.slice,
            machine.version,
            commit.unwrap_or_default(),
        )
    }

    fn shows_tables(&self) -> bool {
        self.details
    }

    fn about(&self, workload: &str) -> Option<String> {
        Some(S::Workload::find(workload)?.summary().to_owned())
    }

    fn title(&self, entry: &Entry<S>) -> String {
        let (cell, to) = (entry.usual().cell(), &entry.ratio.to);
        let fewer = if_fewer(entry.rounds.len(), self.parameters.rounds);
        format!("{cell} (compared with {to}){fewer}")
    }

    fn right(columns: usize) -> Range<usize> {
        1..columns
    }

    fn paint(heading: &str, text: &str) -> Cell {
        S::paint(heading, text)
    }

    fn overview(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        overview::write(self, out)
    }

    fn warnings(&self) -> &[String] {
        &self.warnings
    }
}

impl<S: Suite> Compared for Entry<S> {
    fn usual(&self) -> Usual<'_> {
        Usual {
            suite: self.suite,
            workload: self.workload,
            threads: self.threads,
            lock: &self.lock,
            ops: self.ops_per_s,
            ns_per_op: self.ns_per_op,
            baseline: &self.ratio.to,
            ratio: self.ratio.over_rounds,
            noisy: self.noisy,
            fairness: self.fairness,
        }
    }
}
