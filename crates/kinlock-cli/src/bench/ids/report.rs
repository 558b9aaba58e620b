//! What came out: JSON, CSV, tables, a picture.

use std::io::Write;
use std::path::PathBuf;

use plotters::prelude::*;
use serde::Serialize;

use super::subjects::Workload;
use super::{Measured, Plan};
use crate::bench::stats::{Fairness, Summary, middle_half};
use crate::machine::Machine;
use crate::output::files::Outputs;
use crate::output::picture::{self, Area, COLOURS, Drawn, Format, text};
use crate::output::units::{rate, three_digits, time};
use crate::output::{table, write_json};

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

/// Throughput compared.
#[derive(Debug, Serialize)]
pub struct Ratio {
    /// The baseline.
    pub to: &'static str,
    /// Over rounds.
    #[serde(flatten)]
    pub over_rounds: Summary,
}

/// One round of one subject.
#[derive(Debug, Serialize)]
pub struct Round {
    /// Its place in the order of the round, from 0.
    pub place: usize,
    /// Length of the slice; for `intermittent`, the time inside bursts.
    pub seconds: f64,
    /// Throughput.
    pub ops_per_s: f64,
    /// Over the baseline's throughput in this round.
    pub ratio: f64,
    /// Operations of each thread.
    pub ops_per_thread: Vec<u64>,
}

impl Report {
    /// Draws conclusions from what was measured.
    pub fn new(plan: &Plan, machine: Machine, measured: &[Measured]) -> Self {
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
        let available = kinlock::ids::Backend::Restartable.available();
        Report {
            kind: "measured",
            warnings: warnings(&results, &machine),
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

    fn cells(&self) -> impl Iterator<Item = &[Entry]> {
        self.results
            .chunk_by(|a, b| (a.workload, a.threads) == (b.workload, b.threads))
    }
}

fn warnings(results: &[Entry], machine: &Machine) -> Vec<String> {
    let mut warnings = Vec::new();
    if machine.load_average > 0.3 * machine.usable_cpus as f64 {
        warnings.push(format!(
            "the machine was busy before the run (load average {:.1} on {} CPUs): trust ratios, not absolute numbers",
            machine.load_average, machine.usable_cpus
        ));
    }
    let noisy = results.iter().filter(|entry| entry.noisy).count();
    if noisy > 0 {
        warnings.push(format!(
            "{noisy} of {} ratios mean nothing (marked ~): their rounds disagree on which is faster; more --rounds or --seconds help",
            results.len()
        ));
    }
    warnings
}

impl Entry {
    fn new(measured: &Measured, baseline: &Measured) -> Self {
        let pairs = measured.samples.iter().zip(&baseline.samples);
        let rounds: Vec<_> = pairs
            .map(|(sample, baseline)| Round {
                place: sample.place,
                seconds: sample.elapsed.as_secs_f64(),
                ops_per_s: sample.ops_per_s(),
                ratio: sample.ops_per_s() / baseline.ops_per_s(),
                ops_per_thread: sample.ops.clone(),
            })
            .collect();
        let mut ops = vec![0; measured.threads];
        for sample in &measured.samples {
            ops.iter_mut()
                .zip(&sample.ops)
                .for_each(|(sum, ops)| *sum += ops);
        }
        let usual = middle_half(rounds.iter().map(|round| round.ratio));
        let cpu = measured
            .samples
            .iter()
            .map(|sample| sample.cpu.as_nanos() as f64 / sample.total());
        Entry {
            suite: "ids",
            lock: measured.name.clone(),
            policy: measured.policy.map(|policy| policy.name()),
            workload: measured.workload.name(),
            threads: measured.threads,
            ops_per_s: Summary::of(rounds.iter().map(|round| round.ops_per_s)),
            ns_per_op: Summary::of(rounds.iter().map(|round| 1e9 / round.ops_per_s)),
            cpu_ns_per_op: Summary::of(cpu),
            ratio: Ratio {
                to: measured.workload.baseline(),
                over_rounds: Summary::of(rounds.iter().map(|round| round.ratio)),
            },
            fairness: Fairness::of(&ops),
            noisy: usual.contains(&1.0) && *usual.end() > 1.1 * usual.start(),
            rounds,
        }
    }
}

/// The destinations as given on the command line. `-` is stdout.
#[derive(clap::Args, Debug, Default)]
pub struct Destinations {
    /// Write the full report, raw rounds included, as JSON (- for stdout)
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write one line per subject and cell as CSV (- for stdout)
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Write the tables as Markdown (- for stdout)
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Draw the time per operation; the name ends in .svg or .png
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
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
        if let Some(path) = &self.plot {
            let format = Format::of(path)?;
            outputs.add(Some(path), move |report, out| plot(format, report, out))?;
        }
        outputs.for_people(|report, out| tables(report, out));
        Ok(outputs)
    }
}

const HEADINGS: [&str; 6] = [
    "ops/s",
    "ns/op",
    "cpu/op",
    "x baseline",
    "spread",
    "min/mean",
];

fn columns(entry: &Entry) -> [String; 6] {
    let ratio = &entry.ratio.over_rounds;
    let mark = if entry.noisy { "~" } else { "" };
    [
        rate(entry.ops_per_s.median),
        three_digits(entry.ns_per_op.median),
        time(entry.cpu_ns_per_op.median),
        format!("{mark}{}", three_digits(ratio.median)),
        format!("{}..{}", three_digits(ratio.min), three_digits(ratio.max)),
        format!("{:.2}", entry.fairness.min_over_mean),
    ]
}

fn best_first(cell: &[Entry]) -> Vec<&Entry> {
    let mut entries: Vec<_> = cell.iter().collect();
    entries.sort_by(|a, b| b.ops_per_s.median.total_cmp(&a.ops_per_s.median));
    entries
}

/// What a cell is called.
fn title(cell: &[Entry]) -> String {
    let plural = if cell[0].threads == 1 { "" } else { "s" };
    let summary = cell[0].workload.parse().map_or("", Workload::summary);
    format!(
        "{}, {} thread{plural}: {summary}; baseline {}",
        cell[0].workload, cell[0].threads, cell[0].ratio.to
    )
}

fn tables(report: &Report, mut out: impl Write) -> anyhow::Result<()> {
    writeln!(out, "{}", report.machine.summary())?;
    writeln!(out, "restartable sequences: {}\n", report.restartable)?;
    for cell in report.cells() {
        writeln!(out, "{}", title(cell))?;
        let mut table = table::plain();
        table.set_header(std::iter::once("what").chain(HEADINGS));
        for entry in best_first(cell) {
            table.add_row(std::iter::once(entry.lock.clone()).chain(columns(entry)));
        }
        table::align_right(&mut table, 1, HEADINGS.len());
        writeln!(out, "{table}\n")?;
    }
    for warning in &report.warnings {
        writeln!(out, "note: {warning}")?;
    }
    Ok(())
}

fn markdown(report: &Report, mut out: impl Write) -> anyhow::Result<()> {
    writeln!(
        out,
        "Measured on {}; restartable sequences: {}.",
        report.machine.summary(),
        report.restartable
    )?;
    let parameters = &report.parameters;
    writeln!(
        out,
        "{} rounds of {:.3} s; kinlock {}.\n",
        parameters.rounds, parameters.seconds, report.machine.version
    )?;
    for cell in report.cells() {
        writeln!(out, "### {}\n", title(cell))?;
        writeln!(out, "| what | {} |", HEADINGS.join(" | "))?;
        writeln!(out, "| --- |{}", " ---: |".repeat(HEADINGS.len()))?;
        for entry in best_first(cell) {
            writeln!(out, "| {} | {} |", entry.lock, columns(entry).join(" | "))?;
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
        "suite,workload,threads,lock,policy,ops_per_s,ops_per_s_min,ops_per_s_max,ns_per_op,cpu_ns_per_op,ratio_to,ratio,ratio_min,ratio_max,jain,min_over_mean,noisy"
    )?;
    for entry in &report.results {
        let (ops, ratio) = (&entry.ops_per_s, &entry.ratio.over_rounds);
        writeln!(
            out,
            "{},{},{},{},{},{:.1},{:.1},{:.1},{:.3},{:.3},{},{:.6},{:.6},{:.6},{:.4},{:.4},{}",
            entry.suite,
            entry.workload,
            entry.threads,
            entry.lock,
            entry.policy.unwrap_or(""),
            ops.median,
            ops.min,
            ops.max,
            entry.ns_per_op.median,
            entry.cpu_ns_per_op.median,
            entry.ratio.to,
            ratio.median,
            ratio.min,
            ratio.max,
            entry.fairness.jain,
            entry.fairness.min_over_mean,
            entry.noisy,
        )?;
    }
    Ok(())
}

const WIDTH: u32 = 1000;
const BAR: u32 = 22;
const CELL: u32 = 60;
const NAMES: i32 = 190;
/// For the number behind the longest bar.
const NUMBERS: i32 = 170;

/// One bar per subject: nanoseconds per operation, longer is slower, with the range of the rounds.
fn plot(format: Format, report: &Report, out: &mut dyn Write) -> anyhow::Result<()> {
    let height: u32 = report
        .cells()
        .map(|cell| CELL + BAR * cell.len() as u32)
        .sum::<u32>()
        + 60;
    picture::write(format, (WIDTH, height), out, |area| draw(area, report))
}

fn draw(area: &Area, report: &Report) -> Drawn {
    area.draw(&Text::new(
        "kinlock bench ids: ns per operation, shorter is better",
        (14, 10),
        text(20),
    ))?;
    area.draw(&Text::new(report.machine.summary(), (14, 34), text(13)))?;
    let mut y = 60;
    for cell in report.cells() {
        area.draw(&Text::new(title(cell), (14, y + 12), text(15)))?;
        y += 36;
        let longest = cell
            .iter()
            .map(|entry| entry.ns_per_op.median)
            .fold(0.0, f64::max);
        let room = f64::from(WIDTH as i32 - NAMES - NUMBERS);
        for entry in best_first(cell) {
            let colour = COLOURS[usize::from(!entry.lock.starts_with("kinlock"))];
            let length = |ns: f64| NAMES + (ns.min(longest) / longest * room) as i32;
            area.draw(&Text::new(entry.lock.clone(), (14, y + 3), text(13)))?;
            let (ns, from) = (&entry.ns_per_op, NAMES);
            area.draw(&Rectangle::new(
                [
                    (from, y + 2),
                    (length(ns.median).max(from + 1), y + BAR as i32 - 4),
                ],
                colour.filled(),
            ))?;
            let middle = y + BAR as i32 / 2 - 1;
            let range = vec![(length(ns.min), middle), (length(ns.max), middle)];
            area.draw(&PathElement::new(range, BLACK.stroke_width(1)))?;
            let numbers = format!(
                "{} ({}..{})",
                time(ns.median),
                three_digits(ns.min),
                three_digits(ns.max)
            );
            area.draw(&Text::new(
                numbers,
                (length(ns.median) + 8, y + 3),
                text(13),
            ))?;
            y += BAR as i32;
        }
        y += (CELL - 36) as i32;
    }
    Ok(())
}
