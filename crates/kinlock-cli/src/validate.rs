//! `kinlock validate`: workloads that `bench` and `sim` share, measured on this host beside
//! simulated on a machine made from it.
//!
//! Both descriptions of a workload have one source, in the simulator's crate. Both verbs run as
//! they do by hand, as processes of their own: measuring must not share one with simulating.

use std::env;
use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};
use kinlock_sim::workloads::counter;
use kinlock_sim::workloads::grid::Cell;
use serde::Serialize;
use serde_json::Value;

use crate::machine::Machine;
use crate::outcome::Outcome;
use crate::report::table::{Columns, Table};
use crate::report::units::three_digits;
use crate::report::{self, Destinations, Flags};
use crate::simulation::band::median;

/// Measured beside simulated, on this machine
///
/// Workloads that `kinlock bench` and `kinlock sim` share run with 1 and 2 threads: on this
/// machine, and on one simulated with this one's CPUs and measured latencies (`sim --machine
/// this`). No number of the simulator is fitted to these results. Errors are those of the simulated
/// time per operation: +10 % means that the simulator is that much slower. The machine should be
/// idle.
///
/// Example: kinlock validate --json validate.json
#[derive(clap::Args)]
pub struct Args {
    /// All cells of the grid, not a fifth
    #[arg(long)]
    all: bool,
    /// Seconds of each measurement
    #[arg(long, value_name = "S", default_value_t = 0.1)]
    seconds: f64,
    /// Measurements of each lock with each workload
    #[arg(long, value_name = "N", default_value_t = 3)]
    rounds: u32,
    #[command(flatten)]
    destinations: Destinations<Report>,
    /// No progress bar and no notes
    #[arg(long)]
    quiet: bool,
}

/// A lock as `bench` and as `sim` call it. The first is the baseline of both.
const LOCKS: [(&str, &str); 3] = [
    ("std-mutex", "futex"),
    ("kinlock-mutex", "mutex"),
    ("tas", "tas"),
];

/// What came out. Field names are a contract: add, don't rename.
#[derive(Serialize)]
pub struct Report {
    kind: &'static str,
    version: &'static str,
    commit: Option<&'static str>,
    machine: Machine,
    /// The simulated machine, with the origin of its numbers.
    simulated_machine: Value,
    /// The median of the errors' sizes, and the largest, in percent.
    error_median_pct: f64,
    error_max_pct: f64,
    results: Vec<Entry>,
}

/// One lock under one workload.
#[derive(Serialize)]
struct Entry {
    workload: String,
    lock: String,
    threads: u64,
    /// Nanoseconds from one operation to the next, of any thread.
    measured_ns: Range,
    simulated_ns: Range,
    error_pct: f64,
}

/// The median and the extremes.
#[derive(Clone, Copy, Serialize)]
struct Range {
    median: f64,
    min: f64,
    max: f64,
}

/// Runs the verb.
pub fn run(args: &Args) -> anyhow::Result<Outcome> {
    let outputs = args.destinations.open()?;
    // As it is before the measurements.
    let machine = Machine::current();
    let cells = Cell::chosen(!args.all).into_iter().map(Cell::name);
    let workloads: Vec<_> = [counter::KIND.name].into_iter().chain(cells).collect();
    let workloads = workloads.join(",");
    let (seconds, rounds) = (args.seconds.to_string(), args.rounds.to_string());
    let both = ["--workload", &workloads, "--threads", "1,2", "--locks"];
    let names = |name: fn(&(&'static str, &'static str)) -> &'static str| {
        LOCKS.each_ref().map(name).join(",")
    };
    let (benched, simulated) = (names(|lock| lock.0), names(|lock| lock.1));
    let bench = [
        &both[..],
        &[&benched, "--seconds", &seconds, "--rounds", &rounds],
    ]
    .concat();
    let measured = verb(&[&["bench", "locks"], &bench[..]].concat(), args.quiet)?;
    let sim = [
        &both[..],
        &[&simulated, "--baseline", LOCKS[0].1, "--seconds", "0.01"],
    ]
    .concat();
    let mut simulated = verb(
        &[&["sim", "--machine", "this"], &sim[..]].concat(),
        args.quiet,
    )?;
    let results = entries(&measured, &simulated)?;
    let sizes = results.iter().map(|entry| entry.error_pct.abs());
    outputs.write(&Report {
        kind: "validated",
        version: env!("CARGO_PKG_VERSION"),
        commit: option_env!("KINLOCK_COMMIT"),
        machine,
        simulated_machine: simulated["machine"].take(),
        error_median_pct: median(sizes.clone()),
        error_max_pct: sizes.fold(0.0, f64::max),
        results,
    })?;
    Ok(Outcome::Done)
}

/// What a verb of this command reports.
fn verb(words: &[&str], quiet: bool) -> anyhow::Result<Value> {
    let folder = tempfile::tempdir().context("cannot make a folder for results")?;
    let file = folder.path().join("report.json");
    let this = env::current_exe().context("cannot find the command itself")?;
    let mut command = Command::new(this);
    command
        .args(words)
        .arg("--json")
        .arg(&file)
        .stdout(Stdio::null());
    if quiet {
        command.arg("--quiet");
    }
    let status = command
        .status()
        .context("cannot start the command itself")?;
    ensure!(status.success(), "kinlock {} ended with {status}", words[0]);
    let text = fs::read_to_string(&file).context("the report is gone")?;
    Ok(serde_json::from_str(&text)?)
}

/// Each measured result beside the simulated one.
fn entries(measured: &Value, simulated: &Value) -> anyhow::Result<Vec<Entry>> {
    let results = |report: &Value| report["results"].as_array().cloned().unwrap_or_default();
    let simulated = results(simulated);
    let mut entries = Vec::new();
    for result in results(measured) {
        let names = LOCKS.iter().find(|names| result["lock"] == names.0);
        let (lock, in_sim) = names.context("a lock was measured that was not asked for")?;
        let key = |of: &Value| (of["workload"].clone(), of["threads"].clone());
        let mut same = simulated.iter().filter(|other| key(other) == key(&result));
        let other = same.find(|other| other["lock"] == *in_sim);
        let other = other.with_context(|| format!("{} was not simulated", result["workload"]))?;
        let (measured_ns, simulated_ns) = (range(&result)?, range(other)?);
        entries.push(Entry {
            workload: result["workload"].as_str().unwrap_or_default().to_owned(),
            lock: (*lock).to_owned(),
            threads: result["threads"].as_u64().unwrap_or(0),
            measured_ns,
            simulated_ns,
            error_pct: 100.0 * (simulated_ns.median / measured_ns.median - 1.0),
        });
    }
    ensure!(!entries.is_empty(), "nothing was measured");
    Ok(entries)
}

fn range(result: &Value) -> anyhow::Result<Range> {
    let number = |name: &str| {
        let found = result["ns_per_op"][name].as_f64();
        found
            .filter(|ns| *ns > 0.0)
            .with_context(|| format!("no {name} of ns_per_op: {result}"))
    };
    Ok(Range {
        median: number("median")?,
        min: number("min")?,
        max: number("max")?,
    })
}

impl Report {
    fn table(&self) -> Table {
        let spread =
            |range: Range| format!("{} to {}", three_digits(range.min), three_digits(range.max));
        Columns::<Entry>::new()
            .add("workload", |e| e.workload.clone())
            .add("lock", |e| e.lock.clone())
            .add("threads", |e| e.threads)
            .add("measured ns/op", |e| three_digits(e.measured_ns.median))
            .add("spread", move |e| spread(e.measured_ns))
            .add("simulated", |e| three_digits(e.simulated_ns.median))
            .add("error", |e| format!("{:+.0}%", e.error_pct))
            .of(&self.results)
    }

    fn sums(&self) -> String {
        let of = |threads: u64, lock: &str| {
            let own = self
                .results
                .iter()
                .filter(|e| e.threads == threads && e.lock == lock);
            median(own.map(|entry| entry.error_pct.abs()))
        };
        let by_lock = LOCKS.map(|(lock, _)| {
            format!(
                "{lock} {:.0} % with 1 thread, {:.0} % with 2",
                of(1, lock),
                of(2, lock)
            )
        });
        format!(
            "Errors: median {:.0} %, largest {:.0} %. Medians by lock: {}.",
            self.error_median_pct,
            self.error_max_pct,
            by_lock.join("; ")
        )
    }
}

impl report::Report for Report {
    const FLAGS: Flags<Self> = Flags {
        json: "Write the full report as JSON (- for stdout)",
        csv: "Write one line per workload, lock and number of threads as CSV (- for stdout)",
        plot: None,
    };

    fn text(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        let table = self.table();
        writeln!(
            out,
            "{}\n\n{}\n\n{}",
            self.machine.summary(),
            table.text(2..7),
            self.sums()
        )?;
        if let Some(warning) = self.machine.is_busy() {
            writeln!(out, "note: {warning}")?;
        }
        Ok(())
    }

    fn markdown(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        writeln!(
            out,
            "Measured and simulated: {}.\n\n{}\n",
            self.machine.summary(),
            self.sums()
        )?;
        if let Some(warning) = self.machine.is_busy() {
            writeln!(out, "Note: {warning}.\n")?;
        }
        self.table().markdown(2..7, out)
    }

    fn csv(&self) -> Table {
        Columns::<Entry>::new()
            .add("workload", |e| e.workload.clone())
            .add("lock", |e| e.lock.clone())
            .add("threads", |e| e.threads)
            .number("measured_ns", 3, |e| e.measured_ns.median)
            .number("simulated_ns", 3, |e| e.simulated_ns.median)
            .number("error_pct", 2, |e| e.error_pct)
            .of(&self.results)
    }
}
