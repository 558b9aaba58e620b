//! How results are shown.

mod overview;
mod plot;

use std::io::Write;
use std::ops::Range;

use comfy_table::{Attribute, Cell, Color};

use super::flags::Flag;
use super::interleave::if_fewer;
use super::results::{Entry, Report};
use super::workloads::WorkloadName;
use crate::locks::LockName;
use crate::report::cells::{Cells, Compared, Usual};
use crate::report::table::Columns;
use crate::report::units::time;
use crate::report::{Flags, Plot};

impl Cells for Report {
    type Entry = Entry;

    const FLAGS: Flags<Self> = Flags {
        json: "Write the full report, raw rounds included, as JSON (- for stdout)",
        csv: "Write one line per lock and cell as CSV (- for stdout)",
        plot: Some(Plot {
            help: "Draw throughput over threads, and tail over throughput; the name ends in .svg or .png",
            size: plot::size,
            draw: plot::draw,
        }),
    };

    fn entries(&self) -> &[Entry] {
        &self.results
    }

    fn columns(&self, entry: &Entry) -> Columns<Entry> {
        let mut columns = Columns::<Entry>::new()
            .speed()
            .ratio(format!("x {}", entry.ratio.to))
            .spread("spread", |usual| usual.ratio);
        if entry.threads > 1 {
            columns = columns
                .jain()
                .min_over_mean()
                .add("wait p50", |e| time(e.acquire_ns.p50 as f64))
                .add("p99", |e| time(e.acquire_ns.p99 as f64))
                .add("p99.9", |e| time(e.acquire_ns.p999 as f64))
                .number("tail x", 2, |e| e.acquire_p999_ratio.over_rounds.median)
                .add("max", |e| time(e.acquire_ns.max as f64));
            if self.machine.domains > 1 {
                columns = columns.add("local", |e| match e.handoffs.local_share() {
                    Some(share) => format!("{:.0}%", 100.0 * share),
                    None => "-".to_owned(),
                });
            }
        }
        columns
            .add("cpu/op", |e| time(e.cpu_ns_per_op.median))
            .add(REMARKS, |e| {
                let flags = e.flags.iter().filter(|&&flag| flag != Flag::Noisy);
                flags.map(Flag::to_string).collect::<Vec<_>>().join(", ")
            })
    }

    fn csv_columns() -> Columns<Entry> {
        Columns::<Entry>::new()
            .csv_key()
            .csv_ops("ops_per_s", ["min", "max"], 1)
            .csv_ns_per_op()
            .csv_ratio()
            .csv_min_over_mean()
            .add("acquire_p50_ns", |e| e.acquire_ns.p50)
            .add("acquire_p99_ns", |e| e.acquire_ns.p99)
            .add("acquire_p999_ns", |e| e.acquire_ns.p999)
            .add("acquire_max_ns", |e| e.acquire_ns.max)
            .add("handoffs_local", |e| e.handoffs.local)
            .add("handoffs_remote", |e| e.handoffs.remote)
            .add("handoffs_retaken", |e| e.handoffs.retaken)
            .add("longest_remote_wait_ns", |e| {
                e.handoffs.longest_remote_wait_ns
            })
            .add("longest_local_run_ns", |e| e.handoffs.longest_local_run_ns)
            .number("cpu_ns_per_op", 3, |e| e.cpu_ns_per_op.median)
            .add("flags", |e| {
                let flags = e.flags.iter();
                let flags = flags.map(|flag| flag.to_string().replace(' ', "_"));
                flags.collect::<Vec<_>>().join(" ")
            })
            .add("rounds", |e| e.rounds.len())
            .band("acquire_p999_ratio", ["min", "max"], 6, |e| {
                e.acquire_p999_ratio.over_rounds.into()
            })
    }

    fn heading(&self) -> String {
        self.machine.summary()
    }

    fn markdown_heading(&self) -> String {
        let (parameters, machine) = (&self.parameters, &self.machine);
        let commit = machine.commit.map(|commit| format!(" ({commit})"));
        format!(
            "Measured on {}.\n{} of {:.3} s; kinlock {}{}.",
            machine.summary(),
            self.extent.rounds_per_cell(parameters.rounds),
            parameters.seconds,
            machine.version,
            commit.unwrap_or_default(),
        )
    }

    fn about(&self, workload: &str) -> Option<String> {
        let name: WorkloadName = workload.parse().ok()?;
        Some(name.summary().to_owned())
    }

    fn title(&self, entry: &Entry) -> String {
        let fewer = if_fewer(entry.rounds.len(), self.parameters.rounds);
        format!("{}{fewer}", entry.usual().cell())
    }

    /// All but the names at the left and the remarks at the right.
    fn right(columns: usize) -> Range<usize> {
        1..columns - 1
    }

    fn paint(heading: &str, text: &str) -> Cell {
        match heading {
            Self::NAMES => lock_cell(text),
            // An empty coloured cell would still leave its codes in the text.
            REMARKS if !text.is_empty() => Cell::new(text).fg(Color::Red),
            _ => Cell::new(text),
        }
    }

    fn overview(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        overview::write(self, out)
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
            noisy: self.flags.contains(&Flag::Noisy),
            fairness: self.fairness,
        }
    }
}

/// The heading of the column of remarks: they speak for themselves.
const REMARKS: &str = "";

fn lock_cell(name: &str) -> Cell {
    let ours = name.parse::<LockName>().is_ok_and(LockName::is_ours);
    let cell = Cell::new(name);
    if ours {
        cell.add_attribute(Attribute::Bold)
    } else {
        cell
    }
}
