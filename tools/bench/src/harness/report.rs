//! The report of a suite: an overview, and a table for each cell.

use std::io::Write;

use comfy_table::Cell;
use kinlock_cli::args::Named;
use kinlock_cli::report::Flags;
use kinlock_cli::report::cells::{Cells, Compared};
use kinlock_cli::report::html::Page;
use kinlock_cli::report::table::Columns;
use kinlock_measure::rounds::if_fewer;

use super::overview;
use super::results::{Report, Shown};
use super::suite::Entry;

impl<S: Shown> Cells for Report<S> {
    type Entry = Entry<S>;

    const FLAGS: Flags = Flags {
        json: "Write the full report, raw rounds included, as JSON (- for stdout)",
        csv: "Write one line per subject and cell as CSV (- for stdout)",
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

    fn page_title(&self) -> String {
        format!("kinlock bench {}", S::NAME)
    }

    fn heading(&self) -> String {
        self.where_measured("\n")
    }

    fn markdown_heading(&self) -> String {
        let (plan, machine) = (&self.parameters.plan, &self.machine);
        let commit = machine.commit.map(|commit| format!(" ({commit})"));
        format!(
            "Measured on {}.\n{} of {}; kinlock {}{}.",
            self.where_measured("; "),
            self.extent.rounds_per_cell(plan.rounds),
            plan.slice(),
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
        let fewer = if_fewer(entry.rounds.len(), self.parameters.plan.rounds);
        format!("{cell} (compared with {to}){fewer}")
    }

    fn paint(heading: &str, text: &str) -> Cell {
        S::paint(heading, text)
    }

    fn overview(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        overview::write(self, out)
    }

    fn page_overview(&self, page: &mut Page) -> anyhow::Result<()> {
        overview::page(self, page)
    }

    fn warnings(&self) -> &[String] {
        &self.warnings
    }
}
