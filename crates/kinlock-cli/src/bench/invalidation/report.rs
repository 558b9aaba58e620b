//! How the results are shown.

use std::io::Write;
use std::path::PathBuf;

use super::name::WorkloadName;
use super::results::{Entry, Report};
use crate::output::files::Outputs;
use crate::output::units::{rate, three_digits};
use crate::output::{table, write_json};

/// The destinations as given on the command line. `-` is stdout.
#[derive(clap::Args, Debug, Default)]
pub struct Destinations {
    /// Write the full report, raw rounds included, as JSON (- for stdout)
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write one line per contender and cell as CSV (- for stdout)
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Write the tables as Markdown (- for stdout)
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
}

impl Destinations {
    /// Opens everything. Without a destination on stdout, the tables for people go there.
    ///
    /// # Errors
    /// If a file cannot be written, or two destinations are the same.
    pub fn open(&self) -> anyhow::Result<Outputs<Report>> {
        let mut outputs = Outputs::new();
        outputs.add(self.json.as_deref(), |report, out| write_json(report, out))?;
        outputs.add(self.csv.as_deref(), |report, out| csv(report, out))?;
        outputs.add(self.markdown.as_deref(), |report, out| {
            markdown(report, out)
        })?;
        outputs.for_people(|report, out| people(report, out));
        Ok(outputs)
    }
}

const HEADINGS: [&str; 9] = [
    "ops/s",
    "ns/op",
    "ratio",
    "spread",
    "jain",
    "begin restarts",
    "end restarts",
    "waits (slept)",
    "queue",
];

fn texts(entry: &Entry) -> [String; 9] {
    let ratio = &entry.ratio.over_rounds;
    let of_sections = |text: fn(&super::results::Sections) -> String| {
        entry.sections.as_ref().map_or("-".to_owned(), text)
    };
    [
        rate(entry.ops_per_s.median),
        three_digits(entry.ns_per_op.median),
        format!(
            "{}{}",
            if entry.noisy { "~" } else { "" },
            three_digits(ratio.median)
        ),
        format!("{}..{}", three_digits(ratio.min), three_digits(ratio.max)),
        format!("{:.2}", entry.fairness.jain),
        of_sections(|s| s.begin_restarts.to_string()),
        of_sections(|s| s.end_restarts.to_string()),
        of_sections(|s| format!("{} ({})", s.waits, s.slow_waits)),
        of_sections(|s| s.longest_queue.to_string()),
    ]
}

fn best_first(cell: &[Entry]) -> Vec<&Entry> {
    let mut entries: Vec<&Entry> = cell.iter().collect();
    entries.sort_by(|a, b| b.ops_per_s.median.total_cmp(&a.ops_per_s.median));
    entries
}

fn title(cell: &[Entry]) -> String {
    let plural = if cell[0].threads == 1 { "" } else { "s" };
    format!(
        "{}, {} thread{plural} (ratio to {})",
        cell[0].workload, cell[0].threads, cell[0].ratio.to
    )
}

fn people(report: &Report, mut out: impl Write) -> anyhow::Result<()> {
    writeln!(out, "{}\n", report.machine.summary())?;
    let mut workload = "";
    for cell in report.cells() {
        if cell[0].workload != workload {
            workload = cell[0].workload;
            let summary = workload.parse().map_or("", WorkloadName::summary);
            writeln!(out, "{workload}: {summary}\n")?;
        }
        let mut table = table::plain();
        table.set_header(std::iter::once("").chain(HEADINGS));
        for entry in best_first(cell) {
            let mut row = vec![entry.lock.to_owned()];
            row.extend(texts(entry));
            table.add_row(row);
        }
        writeln!(out, "{}\n{table}\n", title(cell))?;
    }
    for warning in &report.warnings {
        writeln!(out, "note: {warning}")?;
    }
    Ok(())
}

fn markdown(report: &Report, mut out: impl Write) -> anyhow::Result<()> {
    writeln!(out, "Measured on {}.", report.machine.summary())?;
    writeln!(
        out,
        "{} rounds of {:.3} s.\n",
        report.parameters.rounds, report.parameters.seconds
    )?;
    for cell in report.cells() {
        writeln!(out, "### {}\n", title(cell))?;
        writeln!(out, "| | {} |", HEADINGS.join(" | "))?;
        writeln!(out, "| --- |{}", " ---: |".repeat(HEADINGS.len()))?;
        for entry in best_first(cell) {
            writeln!(out, "| {} | {} |", entry.lock, texts(entry).join(" | "))?;
        }
        writeln!(out)?;
    }
    for warning in &report.warnings {
        writeln!(out, "- {warning}")?;
    }
    Ok(())
}

fn csv(report: &Report, mut out: impl Write) -> anyhow::Result<()> {
    writeln!(
        out,
        "suite,workload,threads,lock,ops_per_s,ops_per_s_min,ops_per_s_max,ns_per_op,ratio_to,ratio,ratio_min,ratio_max,jain,\
         begin_restarts,end_restarts,waits,slow_waits,longest_queue,verified,lost"
    )?;
    for entry in &report.results {
        let (ops, ratio) = (&entry.ops_per_s, &entry.ratio.over_rounds);
        let s = entry.sections.unwrap_or_default();
        writeln!(
            out,
            "{},{},{},{},{:.1},{:.1},{:.1},{:.3},{},{:.6},{:.6},{:.6},{:.4},{},{},{},{},{},{},{}",
            entry.suite,
            entry.workload,
            entry.threads,
            entry.lock,
            ops.median,
            ops.min,
            ops.max,
            entry.ns_per_op.median,
            entry.ratio.to,
            ratio.median,
            ratio.min,
            ratio.max,
            entry.fairness.jain,
            s.begin_restarts,
            s.end_restarts,
            s.waits,
            s.slow_waits,
            s.longest_queue,
            entry.verified,
            entry.lost
        )?;
    }
    Ok(())
}
