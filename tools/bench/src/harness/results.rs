//! The results of a run. Field names of their JSON are a contract: add, never rename.

use std::collections::BTreeMap;
use std::io::Write;

use comfy_table::Cell;
use kinlock_cli::args::keep_first;
use kinlock_cli::machine::Machine;
use kinlock_cli::report::table::Columns;
use kinlock_measure::rounds::Extent;
use serde::Serialize;
use serde_json::Value;

use super::suite::{Entry, Plan, Suite, Unavailable, cpus};

/// How the results of a suite are shown.
pub trait Shown: Suite {
    /// The heading of the column of subjects.
    const SUBJECTS: &'static str;
    /// Our subjects in order of preference: the summary is about the first one that was measured.
    const OURS: &'static [&'static str];

    /// The columns of the detailed table to which `entry` belongs.
    fn columns(report: &Report<Self>, entry: &Entry<Self>) -> Columns<Entry<Self>>;
    fn csv_columns() -> Columns<Entry<Self>>;
    /// Remarks on a subject, such as `unfair`.
    fn remarks(_entry: &Entry<Self>) -> Vec<String> {
        Vec::new()
    }
    /// Whether the cell of an entry has a row of its own in the overview.
    fn has_row(_report: &Report<Self>, _entry: &Entry<Self>) -> bool {
        true
    }
    /// Writes what follows the rows of the overview.
    fn write_more(_report: &Report<Self>, _out: &mut dyn Write) -> anyhow::Result<()> {
        Ok(())
    }
    /// A cell of a detailed table on stdout.
    fn paint(_heading: &str, text: &str) -> Cell {
        Cell::new(text)
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
    /// How things were measured, including what the command line left open.
    pub parameters: Parameters<S>,
    pub extent: Extent,
    /// What to keep in mind when reading the results.
    pub warnings: Vec<String>,
    /// What this build or machine lacks.
    pub unavailable: Vec<Unavailable>,
    /// A summary of all results.
    #[serde(flatten)]
    pub summary: BTreeMap<&'static str, Value>,
    /// One entry per subject, workload and number of threads.
    pub results: Vec<Entry<S>>,
    /// Whether people see the detailed tables.
    #[serde(skip)]
    pub details: bool,
}

/// How things were measured.
#[derive(Serialize)]
#[serde(bound = "")]
pub struct Parameters<S: Suite> {
    #[serde(flatten)]
    pub plan: Plan<S>,
    #[serde(flatten)]
    more: Value,
}

impl<S: Suite> Report<S> {
    /// Draws conclusions from what was measured; `disturbed` is a warning.
    pub fn new(
        suite: &S,
        plan: Plan<S>,
        machine: Machine,
        mut results: Vec<Entry<S>>,
        extent: Extent,
        disturbed: Option<String>,
        details: bool,
    ) -> Self {
        suite.conclude(&plan, &mut results);
        let usual = [
            extent.warning(),
            machine.is_busy(),
            machine.is_scaled(),
            disturbed,
        ];
        let mut warnings: Vec<_> = usual.into_iter().flatten().collect();
        let noisy = results.iter().filter(|entry| entry.noisy).count();
        if noisy > 0 {
            let all = results.len();
            warnings.push(format!(
                "{noisy} of {all} ratios mean nothing (marked ~): rounds differ too much; try more \
                 --rounds or --seconds"
            ));
        }
        warnings.extend(suite.warnings(&plan, &results));
        for Unavailable { lock, remedy } in S::unavailable() {
            warnings.push(format!("{lock} was not measured: {remedy}"));
        }
        Report {
            kind: "measured",
            machine,
            facts: S::facts(),
            command: std::env::args().collect(),
            parameters: Parameters {
                more: suite.parameters(&plan),
                plan,
            },
            extent,
            warnings,
            unavailable: S::unavailable(),
            summary: S::summary(&results),
            results,
            details,
        }
    }

    /// The machine, further facts about it, and the background load.
    pub fn where_measured(&self, between: &str) -> String {
        let facts = self.facts.iter();
        let facts = facts.map(|(name, value)| format!("{between}{name} sequences: {value}"));
        let plan = &self.parameters.plan;
        let hogs = match plan.hogs {
            0 => String::new(),
            1 => format!("{between}1 other busy process meanwhile"),
            n => format!("{between}{n} other busy processes meanwhile"),
        };
        let background = plan.background.filter(|one| one.is_thread());
        let background = background.map(|one| format!("{between}{} meanwhile", one.about()));
        let quota = plan.quota_percent.map(|percent| {
            let cpus = cpus();
            format!("{between}in a control group that may use {percent} % of {cpus} CPUs")
        });
        let more = [
            hogs,
            background.unwrap_or_default(),
            quota.unwrap_or_default(),
        ];
        self.machine.summary() + &facts.collect::<String>() + &more.concat()
    }
}

/// The names of all subjects, in the order in which they appear.
pub fn names<S: Suite>(entries: &[Entry<S>]) -> Vec<&str> {
    let mut names: Vec<&str> = entries.iter().map(|entry| &*entry.lock).collect();
    keep_first(&mut names, |name| *name);
    names
}
