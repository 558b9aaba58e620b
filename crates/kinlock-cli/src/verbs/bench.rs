//! `kinlock bench`: our primitives against the peers, on this machine.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::bench::plan::Plan;
use crate::bench::report::{json, table};
use crate::bench::results::Report;
use crate::bench::suite;
use crate::bench::threads::ThreadCounts;
use crate::bench::workloads::WorkloadName;
use crate::cli::Outcome;
use crate::locks::LockName;

/// Measure locks against each other on this machine.
#[derive(clap::Args)]
pub struct Args {
    /// Locks to measure, separated by commas [default: all]
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    locks: Vec<LockName>,
    /// Workloads to run, separated by commas [default: all]
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    workload: Vec<WorkloadName>,
    /// Numbers of threads, as a list or an inclusive range (1,2,8 or 1..16)
    #[arg(long, value_name = "LIST")]
    threads: Option<ThreadCounts>,
    /// Length of the timed slice of each lock in each round
    #[arg(long, value_name = "S")]
    seconds: Option<f64>,
    /// Rounds; in each, every lock runs once
    #[arg(long, value_name = "N", default_value_t = 5)]
    rounds: usize,
    /// The lock that the others are compared with
    #[arg(long, value_name = "NAME", default_value_t = LockName::StdMutex)]
    baseline: LockName,
    /// Start of all random numbers
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Write the full report as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<String>,
    /// No progress bar and no notes
    #[arg(long)]
    quiet: bool,
}

/// Runs the verb.
///
/// # Errors
/// If the input is bad or the results cannot be written.
pub fn run(args: Args) -> anyhow::Result<Outcome> {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let mut plan = Plan {
        locks: args.locks,
        baseline: args.baseline,
        workloads: args.workload,
        threads: args.threads.unwrap_or_else(|| ThreadCounts::for_cpus(cpus)),
        seconds: 0.0,
        rounds: args.rounds,
        seed: args.seed,
    };
    if plan.locks.is_empty() {
        plan.locks = LockName::ALL
            .iter()
            .copied()
            .filter(|lock| lock.unavailable().is_none())
            .collect();
    }
    if !plan.locks.contains(&plan.baseline) {
        plan.locks.push(plan.baseline);
    }
    if plan.workloads.is_empty() {
        plan.workloads = WorkloadName::ALL.to_vec();
    }
    plan.seconds = args
        .seconds
        .unwrap_or_else(|| Plan::seconds_for(plan.slices()));

    let bar = progress_bar(plan.slices(), args.quiet);
    let measured = suite::run(&plan, |what| {
        bar.set_message(what.to_owned());
        bar.inc(1);
    })?;
    bar.finish_and_clear();
    let report = Report::new(&plan, &measured);
    match args.json.as_deref() {
        Some("-") => json::write(&report, std::io::stdout().lock())?,
        Some(file) => {
            json::write(&report, std::fs::File::create(file)?)?;
            table::write(&report, std::io::stdout().lock())?;
        }
        None => table::write(&report, std::io::stdout().lock())?,
    }
    Ok(Outcome::Done)
}

fn progress_bar(steps: usize, quiet: bool) -> ProgressBar {
    if quiet || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::with_draw_target(Some(steps as u64), ProgressDrawTarget::stderr());
    bar.set_style(
        ProgressStyle::with_template("{bar:30} {pos}/{len} {elapsed} (left: {eta}) {msg}")
            .expect("the template is valid"),
    );
    bar
}
