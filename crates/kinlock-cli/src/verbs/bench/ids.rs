//! `kinlock bench ids`: concurrency IDs against what else there is, on this machine.

use anyhow::bail;
use clap::builder::RangedU64ValueParser;
use kinlock_ids::{Backend, Policy};

use super::locks::seconds;
use crate::bench::ids::report::Report;
use crate::bench::ids::subjects::Workload;
use crate::bench::ids::{self, Plan};
use crate::bench::interleave::Rounds;
use crate::bench::interrupt;
use crate::bench::threads::ThreadCounts;
use crate::cli::Outcome;
use crate::machine::Machine;
use crate::output::progress;
use crate::output::report::Destinations;

/// What a whole run should take unless the length of a slice is given, in seconds.
const BUDGET: f64 = 50.0;

/// Measure concurrency IDs and what is built on them on this machine.
///
/// Counters, stacks and pools by restartable sequences and by leases, against locked additions, thread-locals and crates with the same purpose. All of them run in each round, in random order, on the same threads; throughput is compared with
/// the baseline's in the same round.
///
/// Workloads: counter (add 1), lease (take an ID and give it back), stack (push and pop), pool (allocate and free), intermittent (bursts over the 16 KiB of one's ID, one thread at a time, rarely, under each policy).
///
/// SIGINT (Ctrl-C) and SIGTERM end a run early, with a report of its complete rounds: one under way has a second to come to its end; stopping its threads comes on top of that. Another signal ends the process at once, unless it comes within 0.3 s. Exit status: 0 done, 2 bad input, 130 SIGINT, 143 SIGTERM.
///
/// Examples:
///   kinlock bench ids
///   kinlock bench ids --workload counter --threads 1,8 --backend rseq --json -
///   kinlock bench ids --workload intermittent --delay 0.2 --rounds 3
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// How IDs are held: auto (all ways that this machine has), rseq, lease
    #[arg(long, value_name = "NAME", default_value = "auto", value_parser = ["auto", "rseq", "lease"])]
    backend: String,
    /// Policies of leases, separated by commas [default: recent-first; for lease and intermittent all]
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    policy: Vec<Policy>,
    /// Workloads, separated by commas [default: all]
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    workload: Vec<Workload>,
    /// Numbers of threads: a list with inclusive ranges, as 1,2,8 or 1..16; intermittent has one per CPU [default: 1, 2, the number of CPUs, four times as many]
    #[arg(long, value_name = "LIST")]
    threads: Option<ThreadCounts>,
    /// Length of a timed slice, in seconds [default: so that everything takes less than a minute, but at most 0.5]
    #[arg(long, value_name = "S", value_parser = seconds)]
    seconds: Option<f64>,
    /// Rounds per cell
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = RangedU64ValueParser::<usize>::new().range(1..=10_000))]
    rounds: usize,
    /// Between two bursts of intermittent, in seconds
    #[arg(long, value_name = "S", default_value = "0.01", value_parser = seconds)]
    delay: f64,
    /// Start of all random numbers
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    destinations: Destinations<Report>,
    /// No progress bar and no notes
    #[arg(long)]
    quiet: bool,
}

/// Runs the verb.
///
/// # Errors
/// If the input is bad, the backend is not there, or the results cannot be written.
pub fn run(args: &Args) -> anyhow::Result<Outcome> {
    let backends = backends(args)?;
    let plans = plans(args, &backends);
    let outputs = args.destinations.open()?;
    interrupt::listen();
    let machine = Machine::current();
    let slices = plans.iter().map(Plan::slices).sum();
    let bar = progress::bar(args.quiet, slices, || {
        let expected: f64 = plans.iter().map(Plan::expected_seconds).sum();
        eprintln!("about {:.0} s", expected.ceil());
    });
    let mut rounds = Rounds::of(plans.iter().map(Plan::all_rounds).sum());
    let mut measured = Vec::new();
    for plan in &plans {
        measured.extend(ids::run(plan, &mut rounds, |what| {
            bar.set_message(what.to_owned());
            bar.inc(1);
        })?);
    }
    bar.finish_and_clear();
    let extent = rounds.extent();
    super::finish(outputs, extent, Outcome::Done, || {
        Report::new(&plans[0], machine, &measured, extent)
    })
}

fn backends(args: &Args) -> anyhow::Result<Vec<Backend>> {
    let restartable = Backend::Restartable.available();
    Ok(match (args.backend.as_str(), restartable) {
        ("rseq", Err(why)) => bail!("{why}"),
        ("rseq", Ok(())) if !args.policy.is_empty() => {
            bail!("--policy is for leases: with --backend rseq the kernel decides")
        }
        ("rseq", Ok(())) => vec![Backend::Restartable],
        ("lease", _) | (_, Err(_)) => vec![Backend::Lease],
        (_, Ok(())) => Backend::ALL.to_vec(),
    })
}

/// One plan per workload: they differ in policies.
fn plans(args: &Args, backends: &[Backend]) -> Vec<Plan> {
    let mut workloads = args.workload.clone();
    if workloads.is_empty() {
        workloads = Workload::ALL.to_vec();
    }
    workloads.dedup();
    let cpus = kinlock_verify::allowed_cpus().len().max(1);
    let threads = args
        .threads
        .clone()
        .unwrap_or_else(|| ThreadCounts::for_cpus(cpus));
    let mut plans: Vec<_> = workloads
        .into_iter()
        .map(|workload| Plan {
            workloads: vec![workload],
            backends: backends.to_vec(),
            policies: match (args.policy.is_empty(), workload) {
                (false, _) => args.policy.clone(),
                (true, Workload::Lease | Workload::Intermittent) => Policy::ALL.to_vec(),
                (true, _) => vec![Policy::RecentFirst],
            },
            threads: threads.0.clone(),
            seconds: args.seconds.unwrap_or(0.0),
            rounds: args.rounds,
            delay: args.delay,
            seed: args.seed,
        })
        .collect();
    if args.seconds.is_none() {
        // What is fixed is subtracted: the bursts, and starting and stopping.
        let fixed: f64 = plans.iter().map(Plan::expected_seconds).sum();
        let timed = plans
            .iter()
            .filter(|plan| !plan.workloads.contains(&Workload::Intermittent));
        let slices: usize = timed.map(Plan::slices).sum();
        let seconds = ((BUDGET - fixed) / (1.1 * slices.max(1) as f64)).clamp(0.01, 0.5);
        plans.iter_mut().for_each(|plan| plan.seconds = seconds);
    }
    plans
}
