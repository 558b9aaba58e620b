//! `kinlock-lab validate`: compares workloads that `bench` and `sim` share, measured on this host
//! and simulated on a machine made from it.
//!
//! Both verbs take the parameters of a workload from the same source. They run as by hand, as
//! processes of their own: measuring must not share a process with simulating.
//!
//! Hosts of virtual machines move virtual CPUs: a transfer between two of them takes 25 ns in one
//! second and 100 ns or more in the next. So transfers are measured before and after each round. A
//! round in which they have changed is dropped, and each workload is simulated with the transfers
//! of its rounds.

use std::env;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};
use kinlock_cli::machine::Machine;
use kinlock_cli::outcome::Outcome;
use kinlock_cli::report::html::{Page, Picture};
use kinlock_cli::report::table::{Columns, Table};
use kinlock_cli::report::units::three_digits;
use kinlock_cli::report::{self, Destinations, Flags, Pictures, Plot};
use kinlock_measure::progress;
use kinlock_measure::stats::Summary;
use kinlock_measure::workloads::counter;
use kinlock_measure::workloads::grid::{Cell, Part};
use serde::Serialize;
use serde_json::Value;

use crate::simulation::band::median;

/// Compare simulated with measured speeds on this machine
///
/// Workloads that `kinlock bench` and `kinlock-lab sim` share run with 1 and 2 threads: on this
/// machine, and on a simulated one with its CPUs and measured latencies (`sim --machine this`). No
/// number of the simulator is fitted to these results. Errors are those of the simulated time per
/// operation: +10 % means that the simulator is that much slower. Next to them are the errors of
/// the speed relative to std-mutex. The machine should be idle.
///
/// The time of a transfer between CPUs is measured before and after each round, since hosts of
/// virtual machines move virtual CPUs. A round is measured again if these two times differ by more
/// than a quarter.
///
/// Example: kinlock-lab validate --json validate.json
#[derive(clap::Args)]
pub struct Args {
    /// Run all cells of grid-core, not a fifth
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

/// The names of each lock in `bench` and in `sim`. The first lock is the baseline of both.
const LOCKS: [(&str, &str); 3] = [
    ("std-mutex", "futex"),
    ("kinlock-mutex", "mutex"),
    ("tas", "tas"),
];

/// The report. Field names are a contract: add, don't rename.
#[derive(Serialize)]
pub struct Report {
    kind: &'static str,
    version: &'static str,
    commit: Option<&'static str>,
    machine: Machine,
    /// The simulated machine, with the origin of its numbers; as it was for the last workload.
    simulated_machine: Value,
    /// The median of the errors' sizes, and the largest, in percent.
    error_median_pct: f64,
    error_max_pct: f64,
    /// Workloads without a steady round.
    unsteady: Vec<&'static str>,
    results: Vec<Entry>,
}

/// One lock under one workload.
#[derive(Serialize)]
struct Entry {
    workload: String,
    lock: String,
    threads: u64,
    /// How long a transfer between CPUs took before these rounds.
    transfer_ns: Summary,
    /// Nanoseconds from one operation to the next, of any thread.
    measured_ns: Summary,
    simulated_ns: Summary,
    error_pct: f64,
    /// The error of the speed relative to the first lock's; 0 for the first lock itself.
    ratio_error_pct: f64,
}

/// Runs the verb.
pub fn run(args: &Args) -> anyhow::Result<Outcome> {
    let outputs = args.destinations.open()?;
    // Described before the measurements, which make it busy.
    let machine = Machine::current();
    let cells = Cell::chosen(&[Part::Core], !args.all)
        .into_iter()
        .map(Cell::name);
    let workloads: Vec<_> = [counter::NAME].into_iter().chain(cells).collect();
    let folder = tempfile::tempdir().context("cannot make a folder for results")?;
    let bar = progress::bar(args.quiet, workloads.len(), || ());
    let (mut results, mut unsteady, mut simulated_machine) = (vec![], vec![], Value::Null);
    for workload in workloads {
        bar.set_message(workload);
        let rounds = rounds(args, workload, folder.path())?;
        match rounds.is_empty() {
            true => unsteady.push(workload),
            false => {
                let mut simulated = simulate(workload, &rounds)?;
                results.extend(entries(&rounds, &simulated)?);
                simulated_machine = simulated["machine"].take();
            }
        }
        bar.inc(1);
    }
    bar.finish();
    ensure!(
        !results.is_empty(),
        "nothing was measured: the host moves the CPUs within every round"
    );
    let sizes = results.iter().map(|entry| entry.error_pct.abs());
    outputs.write(&Report {
        kind: "validated",
        version: kinlock_cli::VERSION,
        commit: kinlock_cli::COMMIT,
        machine,
        simulated_machine,
        error_median_pct: median(sizes.clone()),
        error_max_pct: sizes.fold(0.0, f64::max),
        unsteady,
        results,
    })?;
    Ok(Outcome::Done)
}

/// One measurement of each lock under one workload.
struct Round {
    /// How long a transfer between CPUs took, in nanoseconds.
    transfer: f64,
    /// The machine as it was then.
    machine: PathBuf,
    /// The report of `bench`.
    measured: Value,
}

/// How often a round is tried, for each round that is asked for.
const TRIES: u32 = 4;

/// Rounds in which transfers took as long at the end as at the beginning, and as long as in the
/// other rounds: as many as asked for, or as many as were found in [`TRIES`] times as many tries.
fn rounds(args: &Args, workload: &str, folder: &Path) -> anyhow::Result<Vec<Round>> {
    let seconds = args.seconds.to_string();
    let names = LOCKS.map(|lock| lock.0).join(",");
    let wanted = args.rounds.max(1);
    let mut steady: Vec<Round> = Vec::new();
    for number in 0..TRIES * wanted {
        // The machine has the name of its file.
        let folder = folder.join(format!("{workload}-{number}").replace('/', "-"));
        fs::create_dir(&folder).context("cannot make a folder for results")?;
        let machine = folder.join("this.toml");
        let transfer = transfer(&["--machine-file", &machine.to_string_lossy()])?;
        let shared = [
            "--workload",
            workload,
            "--threads",
            "1,2",
            "--locks",
            &names,
        ];
        let once = ["--rounds", "1", "--seconds", &seconds];
        let measured = verb(&[&["bench", "locks"], &shared[..], &once].concat())?;
        if !is_same(transfer, self::transfer(&[])?) {
            continue;
        }
        steady.push(Round {
            transfer,
            machine,
            measured,
        });
        if alike(&steady, transfer) == wanted as usize {
            break;
        }
    }
    let most = steady.iter().map(|round| round.transfer);
    let most = most.max_by_key(|&transfer| alike(&steady, transfer));
    steady.retain(|round| most.is_some_and(|transfer| is_same(round.transfer, transfer)));
    Ok(steady)
}

/// How many rounds had transfers like this one.
fn alike(rounds: &[Round], transfer: f64) -> usize {
    let same = rounds
        .iter()
        .filter(|round| is_same(round.transfer, transfer));
    same.count()
}

/// Whether two transfer times are within a quarter of each other.
fn is_same(a: f64, b: f64) -> bool {
    a.max(b) <= 1.25 * a.min(b)
}

/// How long a transfer between CPUs takes now, in nanoseconds: between the farthest CPUs, if
/// distances differ.
fn transfer(arguments: &[&str]) -> anyhow::Result<f64> {
    let topology = verb(&[&["topology", "--measure"], arguments].concat())?;
    let parameters = topology["machine"]["parameters"].as_array();
    let transfers = parameters.into_iter().flatten().filter_map(|parameter| {
        let is_one = parameter["name"].as_str()?.starts_with("modified");
        let value = parameter["value"].as_str().filter(|_| is_one)?;
        value.strip_suffix(" ns")?.parse::<f64>().ok()
    });
    let longest = transfers.max_by(f64::total_cmp);
    longest.context("no transfer between CPUs was measured: there is one CPU only")
}

/// Simulates a workload on the machine as it was in the round whose transfers are the median.
fn simulate(workload: &str, rounds: &[Round]) -> anyhow::Result<Value> {
    let mut by_transfer: Vec<_> = rounds.iter().collect();
    by_transfer.sort_by(|a, b| a.transfer.total_cmp(&b.transfer));
    let machine = by_transfer[rounds.len() / 2].machine.to_string_lossy();
    let names = LOCKS.map(|lock| lock.1).join(",");
    let on = ["--machine", &*machine, "--workload", workload];
    let shared = ["--threads", "1,2", "--locks", &names];
    let usual = ["--baseline", LOCKS[0].1, "--seconds", "0.01"];
    verb(&[&["sim"], &on[..], &shared, &usual].concat())
}

/// The report of a verb. Verbs that measure belong to the user's command, which is in the same
/// folder.
fn verb(words: &[&str]) -> anyhow::Result<Value> {
    let this = env::current_exe().context("cannot find the command itself")?;
    let (program, name) = match words[0] {
        "sim" => (this, "kinlock-lab"),
        _ => (this.with_file_name("kinlock"), "kinlock"),
    };
    let mut command = Command::new(program);
    command.args(words).args(["--json", "-"]);
    if words[0] != "topology" {
        command.arg("--quiet");
    }
    let output = command.stderr(Stdio::piped()).output();
    let output = output.with_context(|| {
        format!(
            "{name} measures, and cannot be started beside this command: \
             cargo build --release -p kinlock-command -p kinlock-lab"
        )
    })?;
    let told = String::from_utf8_lossy(&output.stderr);
    let (verb, status) = (words[0], output.status);
    ensure!(
        status.success(),
        "{name} {verb} ended with {status}: {}",
        told.trim()
    );
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// The entries, from the measurements of all rounds and from the simulation.
fn entries(rounds: &[Round], simulated: &Value) -> anyhow::Result<Vec<Entry>> {
    let results = |report: &Value| report["results"].as_array().cloned().unwrap_or_default();
    let simulated = results(simulated);
    let measured: Vec<_> = rounds
        .iter()
        .map(|round| results(&round.measured))
        .collect();
    let mut entries: Vec<Entry> = Vec::new();
    for (at, first) in measured[0].iter().enumerate() {
        let names = LOCKS.iter().find(|names| first["lock"] == names.0);
        let (lock, in_sim) = names.context("a lock was measured that was not asked for")?;
        let workload = &first["workload"];
        let threads = first["threads"].as_u64().unwrap_or(0);
        let mut same = simulated.iter().filter(|s| s["threads"] == threads);
        let other = same.find(|other| other["lock"] == *in_sim);
        let other = other.with_context(|| format!("{workload} was not simulated"))?;
        let all = measured.iter().map(|of| Ok(nanos(&of[at])?.median));
        let all: anyhow::Result<Vec<f64>> = all.collect();
        let (measured_ns, simulated_ns) = (Summary::of(all?), nanos(other)?);
        let baseline = entries
            .iter()
            .find(|e| e.threads == threads && e.lock == LOCKS[0].0);
        let slower = simulated_ns.median / measured_ns.median;
        let of_baseline = baseline.map_or(slower, |e| 1.0 + e.error_pct / 100.0);
        entries.push(Entry {
            workload: workload.as_str().unwrap_or_default().to_owned(),
            lock: (*lock).to_owned(),
            threads,
            transfer_ns: Summary::of(rounds.iter().map(|round| round.transfer)),
            measured_ns,
            simulated_ns,
            error_pct: 100.0 * (slower - 1.0),
            ratio_error_pct: 100.0 * (of_baseline / slower - 1.0),
        });
    }
    Ok(entries)
}

/// The time per operation in the reports of `bench` and `sim`.
fn nanos(result: &Value) -> anyhow::Result<Summary> {
    let number = |name: &str| {
        let found = result["ns_per_op"][name].as_f64();
        found
            .filter(|ns| *ns > 0.0)
            .with_context(|| format!("no {name} of ns_per_op: {result}"))
    };
    Ok(Summary {
        median: number("median")?,
        min: number("min")?,
        max: number("max")?,
    })
}

impl Report {
    fn table(&self) -> Table {
        let spread =
            |all: Summary| format!("{} to {}", three_digits(all.min), three_digits(all.max));
        Columns::<Entry>::new()
            .add("workload", |e| e.workload.clone())
            .add("lock", |e| e.lock.clone())
            .add("threads", |e| e.threads)
            .add("transfer ns", |e| three_digits(e.transfer_ns.median))
            .add("measured ns/op", |e| three_digits(e.measured_ns.median))
            .add("spread", move |e| spread(e.measured_ns))
            .add("simulated", |e| three_digits(e.simulated_ns.median))
            .add("error", |e| format!("{:+.0}%", e.error_pct))
            .add("of ratio", |e| match e.lock == LOCKS[0].0 {
                true => "-".to_owned(),
                false => format!("{:+.0}%", e.ratio_error_pct),
            })
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
        let two = || self.results.iter().filter(|e| e.threads == 2);
        let others = || two().filter(|e| e.lock != LOCKS[0].0);
        format!(
            "Errors: median {:.0} %, largest {:.0} %. Medians by lock: {}. With 2 threads {} of {} \
             times are within 25 %, and {} of {} ratios to {} within 15 %.",
            self.error_median_pct,
            self.error_max_pct,
            by_lock.join("; "),
            two().filter(|e| e.error_pct.abs() <= 25.0).count(),
            two().count(),
            others().filter(|e| e.ratio_error_pct.abs() <= 15.0).count(),
            others().count(),
            LOCKS[0].0
        )
    }

    fn warnings(&self) -> Vec<String> {
        let mut all: Vec<String> = self.machine.is_busy().into_iter().collect();
        if !self.unsteady.is_empty() {
            let unsteady = self.unsteady.join(", ");
            all.push(format!(
                "the host moved the CPUs within each round of {unsteady}"
            ));
        }
        all
    }
}

impl Pictures for Report {
    const PLOT: Option<Plot<Self>> = None;
}

impl report::Report for Report {
    const FLAGS: Flags = Flags {
        json: "Write the full report as JSON (- for stdout)",
        csv: "Write one line per workload, lock and number of threads as CSV (- for stdout)",
    };

    fn text(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        let table = self.table();
        writeln!(
            out,
            "{}\n\n{}\n\n{}",
            self.machine.summary(),
            table.text(2..9),
            self.sums()
        )?;
        for warning in self.warnings() {
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
        for warning in self.warnings() {
            writeln!(out, "Note: {warning}.\n")?;
        }
        self.table().markdown(2..9, out)
    }

    fn page(&self, _: &[Picture]) -> anyhow::Result<Page> {
        let mut page = Page::new("kinlock-lab validate");
        page.paragraph(&format!(
            "Measured and simulated: {}.",
            self.machine.summary()
        ));
        page.paragraph(&self.sums());
        page.notes(&self.warnings());
        page.table("Measured beside simulated", &self.table(), 2..9);
        Ok(page)
    }

    fn csv(&self) -> Table {
        Columns::<Entry>::new()
            .add("workload", |e| e.workload.clone())
            .add("lock", |e| e.lock.clone())
            .add("threads", |e| e.threads)
            .number("transfer_ns", 1, |e| e.transfer_ns.median)
            .number("measured_ns", 3, |e| e.measured_ns.median)
            .number("simulated_ns", 3, |e| e.simulated_ns.median)
            .number("error_pct", 2, |e| e.error_pct)
            .number("ratio_error_pct", 2, |e| e.ratio_error_pct)
            .of(&self.results)
    }
}
