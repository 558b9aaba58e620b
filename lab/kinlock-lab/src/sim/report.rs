//! How the results of `sim` are shown.

use std::io::Write;

use kinlock_cli::report::Flags;
use kinlock_cli::report::cells::{Cells, Compared, Usual};
use kinlock_cli::report::table::{Columns, Table};
use kinlock_cli::report::units::{rate, three_digits, time};
use kinlock_sim::Handoffs;
use kinlock_sim::workloads::{Bursts, Longest};

use super::results::{Entry, Report, is_cell};
use super::{grid, replay};
use crate::simulation::sample::SERVICES;
use crate::simulation::sampling::bands;

impl Cells for Report {
    type Entry = Entry;

    const FLAGS: Flags = Flags {
        json: "Write the full report, every run included, as JSON (- for stdout)",
        csv: "Write one line per lock, workload and number of threads as CSV (- for stdout)",
    };

    fn entries(&self) -> &[Entry] {
        &self.results
    }

    fn columns(&self, entry: &Entry) -> Columns<Entry> {
        let times = format!("x {}", entry.ratio.to);
        let columns = Columns::<Entry>::new();
        if entry.ids.is_some() {
            let of_ids = |value: fn(Bursts) -> f64| {
                move |e: &Entry| e.ids.map(value).map_or_else(String::new, three_digits)
            };
            return columns
                .add("ns/burst", |e| three_digits(e.ns_per_op.median))
                .spread("band", |usual| usual.ns_per_op)
                .ratio(times)
                .add("mean ID", of_ids(|ids| ids.mean(ids.ids as f64)))
                .add("max ID", of_ids(|ids| ids.largest as f64))
                .add(
                    "foreign lines",
                    of_ids(|ids| ids.mean(ids.foreign_lines as f64)),
                )
                .add(
                    "first touches",
                    of_ids(|ids| ids.mean(ids.first_touches as f64)),
                )
                .add("ns to get the ID", of_ids(|ids| ids.mean(ids.waited_nanos)))
                .add("events/s", |e| rate(e.events_per_host_second));
        }
        let columns = columns
            .add("ops/us", |e| three_digits(e.ops_per_us.median))
            .spread("band", |usual| usual.ops)
            .ratio(times)
            .spread("band", |usual| usual.ratio)
            .min_over_mean()
            .add("wait p50", |e| time(e.acquire_ns.p50 as f64))
            .add("p99", |e| time(e.acquire_ns.p99 as f64));
        let longest = |of: fn(&Longest) -> u64| {
            move |e: &Entry| {
                let wait = |longest| longest_wait(of(&longest), of(&e.unended_ns));
                e.longest_ns.map_or_else(String::new, wait)
            }
        };
        let columns = match entry.longest_ns {
            None => columns.add("max", |e| {
                longest_wait(e.acquire_ns.max, e.unended_ns.write)
            }),
            Some(_) => columns
                .add("max read", longest(|l| l.read))
                .add("max write", longest(|l| l.write)),
        };
        columns
            .add("cpu/op", |e| time(e.cpu_ns_per_op.median))
            .add("local", |e| local_share(e.handoffs))
            .add("remote/op", |e| three_digits(e.traffic["remote"]))
            .add("events/s", |e| rate(e.events_per_host_second))
    }

    fn csv_columns() -> Columns<Entry> {
        let columns = Columns::<Entry>::new()
            .csv_key()
            .csv_ops("ops_per_us", ["low", "high"], 6)
            .csv_ns_per_op()
            .csv_ratio()
            .csv_min_over_mean()
            .add("acquire_p50_ns", |e| e.acquire_ns.p50)
            .add("acquire_p99_ns", |e| e.acquire_ns.p99)
            .add("acquire_p999_ns", |e| e.acquire_ns.p999)
            .add("acquire_max_ns", |e| e.acquire_ns.max)
            .add("read_max_ns", longest_in_csv(|l| l.read))
            .add("write_max_ns", longest_in_csv(|l| l.write))
            .add("handoffs_local", |e| e.handoffs.local)
            .add("handoffs_remote", |e| e.handoffs.remote)
            .add("handoffs_retaken", |e| e.handoffs.retaken);
        let columns = SERVICES.into_iter().fold(columns, |columns, (name, _)| {
            columns.number(format!("{name}_per_op"), 3, move |e| e.traffic[name])
        });
        columns
            .add("events", |e| e.events)
            .number("events_per_host_second", 0, |e| e.events_per_host_second)
            .number("cpu_ns_per_op", 3, |e| e.cpu_ns_per_op.median)
    }

    fn page_title(&self) -> String {
        format!("kinlock-lab sim: {}", self.setup.machine.name)
    }

    fn heading(&self) -> String {
        format!("simulated: {}", self.setup.machine.about)
    }

    fn markdown_heading(&self) -> String {
        let setup = &self.setup;
        let commit = setup.commit.map(|commit| format!(" ({commit})"));
        format!(
            "Simulated: {}.\nRuns of {} s; {}{}. kinlock {}{}.\n\n    {}",
            setup.machine.about,
            setup.parameters.seconds,
            bands(&setup.parameters.variants),
            self.about_marks(),
            setup.version,
            commit.unwrap_or_default(),
            setup.command.join(" "),
        )
    }

    fn about(&self, workload: &str) -> Option<String> {
        let mut workloads = self.setup.parameters.workloads.iter();
        let entry = workloads.find(|entry| entry.name == workload);
        Some(entry.map_or(String::new(), |entry| entry.about.to_owned()))
    }

    /// The grid has too many cells for a table of each.
    fn shows_tables(&self) -> bool {
        self.grid.is_empty()
    }

    /// A summary of the ratios.
    fn overview(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        let parameters = &self.setup.parameters;
        if parameters.threads.len() > 1 {
            let workloads = parameters.workloads.iter();
            for workload in workloads.filter(|workload| !is_cell(workload.name)) {
                let (name, baseline) = (&workload.name, &parameters.baseline);
                writeln!(out, "{name}: throughput over that of {baseline}")?;
                let table = overview(self, name);
                writeln!(out, "{}\n", table.text(0..table.headings.len()))?;
            }
        }
        grid::write(self, out)?;
        replay::write(self, out)?;
        writeln!(out, "{}{}", bands(&parameters.variants), self.about_marks())?;
        Ok(())
    }
}

impl Compared for Entry {
    fn usual(&self) -> Usual<'_> {
        Usual {
            suite: self.suite,
            workload: self.workload,
            threads: self.threads,
            lock: self.lock,
            ops: self.ops_per_us,
            ns_per_op: self.ns_per_op,
            baseline: self.ratio.to,
            ratio: self.ratio.over_runs,
            noisy: false,
            fairness: self.fairness,
        }
    }
}

impl Report {
    /// What the mark of a longest wait means, if one is marked.
    fn about_marks(&self) -> &'static str {
        let unended = |e: &Entry| e.unended_ns != Longest::default();
        match self.shows_tables() && self.results.iter().any(unended) {
            true => "; >: a wait that ended only after the run; longer runs (--seconds) show more",
            false => "",
        }
    }
}

/// Marked if it ended only after the run, in which it might have lasted for longer.
fn longest_wait(nanos: u64, unended: u64) -> String {
    let mark = if (1..=unended).contains(&nanos) {
        ">"
    } else {
        ""
    };
    format!("{mark}{}", time(nanos as f64))
}

/// A column with the longest waits, which is empty if no thread reads.
fn longest_in_csv(of: fn(&Longest) -> u64) -> impl Fn(&Entry) -> String + 'static {
    move |e| {
        e.longest_ns
            .map_or_else(String::new, |l| of(&l).to_string())
    }
}

/// The share of hand-offs within a locality domain, if there were any.
fn local_share(handoffs: Handoffs) -> String {
    match handoffs.local + handoffs.remote {
        0 => "-".to_owned(),
        all => format!("{:.0}%", 100.0 * (handoffs.local as f64 / all as f64)),
    }
}

/// The ratios of one workload: a row per number of threads, a column per lock.
fn overview(report: &Report, workload: &str) -> Table {
    let locks = report.setup.parameters.locks.iter();
    let headings =
        std::iter::once("threads".to_owned()).chain(locks.map(|lock| lock.name.to_owned()));
    let cells = report.cells().filter(|cell| cell[0].workload == workload);
    let rows = cells.map(|cell| {
        let ratios = cell.iter().map(|entry| entry.usual().shown_ratio());
        std::iter::once(cell[0].threads.to_string())
            .chain(ratios)
            .collect()
    });
    Table {
        headings: headings.collect(),
        rows: rows.collect(),
    }
}
