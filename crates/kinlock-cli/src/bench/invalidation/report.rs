//! How the results are shown.

use std::ops::Range;

use super::name::WorkloadName;
use super::plot;
use super::results::{Entry, Report, Sections};
use crate::bench::interleave::if_fewer;
use crate::report::cells::{Cells, Compared, Usual};
use crate::report::table::Columns;
use crate::report::{Flags, Plot};

impl Cells for Report {
    type Entry = Entry;

    const FLAGS: Flags<Self> = Flags {
        json: "Write the full report, raw rounds included, as JSON (- for stdout)",
        csv: "Write one line per contender and cell as CSV (- for stdout)",
        plot: Some(Plot {
            help: "Draw throughput over threads, and the time of the small operations; the name ends in .svg or .png",
            size: plot::size,
            draw: plot::draw,
        }),
    };
    const NAMES: &'static str = "";

    fn entries(&self) -> &[Entry] {
        &self.results
    }

    fn columns(&self, _entry: &Entry) -> Columns<Entry> {
        let of_sections = |text: fn(&Sections) -> String| {
            move |entry: &Entry| entry.sections.as_ref().map_or("-".to_owned(), text)
        };
        Columns::<Entry>::new()
            .speed()
            .ratio("ratio")
            .spread("spread", |usual| usual.ratio)
            .jain()
            .add(
                "begin restarts",
                of_sections(|s| s.begin_restarts.to_string()),
            )
            .add("end restarts", of_sections(|s| s.end_restarts.to_string()))
            .add(
                "waits (slept)",
                of_sections(|s| format!("{} ({})", s.waits, s.slow_waits)),
            )
            .add("queue", of_sections(|s| s.longest_queue.to_string()))
    }

    fn csv_columns() -> Columns<Entry> {
        let of_sections = |count: fn(Sections) -> u64| {
            move |entry: &Entry| count(entry.sections.unwrap_or_default())
        };
        Columns::<Entry>::new()
            .csv_key()
            .csv_ops("ops_per_s", ["min", "max"], 1)
            .csv_ns_per_op()
            .csv_ratio()
            .add("begin_restarts", of_sections(|s| s.begin_restarts))
            .add("end_restarts", of_sections(|s| s.end_restarts))
            .add("waits", of_sections(|s| s.waits))
            .add("slow_waits", of_sections(|s| s.slow_waits))
            .add("longest_queue", of_sections(|s| s.longest_queue))
            .add("verified", |e| e.verified)
            .add("lost", |e| e.lost)
            .add("rounds", |e| e.rounds.len())
    }

    fn heading(&self) -> String {
        self.machine.summary()
    }

    fn markdown_heading(&self) -> String {
        let rounds = self.extent.rounds_per_cell(self.parameters.rounds);
        let seconds = self.parameters.seconds;
        format!(
            "Measured on {}.\n{rounds} of {seconds:.3} s.",
            self.machine.summary()
        )
    }

    fn about(&self, workload: &str) -> Option<String> {
        let summary = workload.parse().map_or("", WorkloadName::summary);
        Some(summary.to_owned())
    }

    fn title(&self, entry: &Entry) -> String {
        let (cell, to) = (entry.usual().cell(), entry.ratio.to);
        let fewer = if_fewer(entry.rounds.len(), self.parameters.rounds);
        format!("{cell} (ratio to {to}){fewer}")
    }

    /// None.
    fn right(_columns: usize) -> Range<usize> {
        0..0
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
            lock: self.lock,
            ops: self.ops_per_s,
            ns_per_op: self.ns_per_op,
            baseline: self.ratio.to,
            ratio: self.ratio.over_rounds,
            noisy: self.noisy,
            fairness: self.fairness,
        }
    }
}
