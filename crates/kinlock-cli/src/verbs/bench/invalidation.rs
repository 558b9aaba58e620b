//! `kinlock bench invalidation`: delayed invalidation against other ways to do the same, on this machine.

use anyhow::bail;
use clap::builder::RangedU64ValueParser;
use kinlock_invalidation::Backend;

use super::locks::seconds;
use crate::bench::interleave::Rounds;
use crate::bench::interrupt;
use crate::bench::invalidation::{ContenderName, Plan, Report, WorkloadName, run as measure};
use crate::bench::threads::ThreadCounts;
use crate::cli::Outcome;
use crate::machine::Machine;
use crate::output::report::Destinations;
use crate::output::{progress, tell};
use crate::verbs::keep_first;

/// Measure delayed invalidation against other ways to do the same on this machine.
///
/// Every backend and every rival runs every workload with every number of threads. In each round all run once, in random order, on the same threads; throughput is compared with that of the
/// baseline in the same round, so that drift of the machine cancels.
///
/// The workload `pages` is the demonstration: a real mapping, whose pages are given back by madvise in batches and reused, with a stamp in each that is verified. If a stamp is lost, the exit status is 1.
///
/// SIGINT (Ctrl-C) and SIGTERM end a run early, with a report of its complete rounds: one under way has a second to come to its end; stopping its threads comes on top of that. Another signal ends the process at once, unless it comes within 0.3 s. Exit status: 0 done, 1 a stamp was lost (interrupted or not), 2 bad input, 130 SIGINT, 143 SIGTERM.
///
/// While it runs, SIGUSR1 shows the open sections on stderr: generation, age, thread.
///
/// Example: kinlock bench invalidation --workload pages --threads 1,2,16 --rounds 10
#[derive(clap::Args)]
pub struct Args {
    /// Backends and rivals to measure, separated by commas; the baseline is always measured too [default: all]
    #[arg(
        long,
        visible_alias = "locks",
        value_name = "A,B",
        value_delimiter = ','
    )]
    backends: Vec<ContenderName>,
    /// Workloads to run, separated by commas [default: all]
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    workload: Vec<WorkloadName>,
    /// Numbers of threads, 1 to 4096: a list with inclusive ranges
    #[arg(long, value_name = "LIST", default_value = "1,2,16,64")]
    threads: ThreadCounts,
    /// Length of one slice in one round, in seconds [default: so that everything takes about a minute, but at most 0.5]
    #[arg(long, value_name = "S", value_parser = seconds)]
    seconds: Option<f64>,
    /// Rounds per cell
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = RangedU64ValueParser::<usize>::new().range(1..=10_000))]
    rounds: usize,
    /// What the others are compared with, where it does the workload
    #[arg(long, value_name = "NAME", default_value_t = ContenderName::Ours(Backend::Packed))]
    baseline: ContenderName,
    /// Start of all random numbers
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    destinations: Destinations<Report>,
    /// No progress bar and no notes
    #[arg(long)]
    quiet: bool,
}

/// What a whole run should take unless the length of a slice is given, in seconds.
const BUDGET: f64 = 60.0;

/// Runs the verb.
///
/// # Errors
/// If the input is bad or the results cannot be written.
pub fn run(args: &Args) -> anyhow::Result<Outcome> {
    let plan = plan(args)?;
    let outputs = args.destinations.open()?;
    interrupt::listen();
    let machine = Machine::current();
    let bar = progress::bar(args.quiet, plan.slices(), || {
        eprintln!(
            "{} slices of {:.3} s: about {:.0} s; SIGUSR1 to process {} shows open sections",
            plan.slices(),
            plan.seconds,
            plan.expected_seconds().ceil(),
            std::process::id()
        );
    });
    let mut rounds = Rounds::of(plan.all_rounds());
    let found = measure(&plan, &mut rounds, |what| {
        bar.set_message(what.to_owned());
        bar.inc(1);
    })?;
    bar.finish_and_clear();
    for (contender, stamps) in &found.lost {
        tell(&format!(
            "kinlock: {contender} LOST {stamps} stamps: it is wrong"
        ));
    }
    let verdict = match found.lost.is_empty() {
        true => Outcome::Done,
        false => Outcome::CheckFailed,
    };
    let extent = rounds.extent();
    super::finish(outputs, extent, verdict, || {
        Report::new(&plan, machine, &found.measured, extent)
    })
}

fn plan(args: &Args) -> anyhow::Result<Plan> {
    let mut contenders = args.backends.clone();
    if contenders.is_empty() {
        let all = ContenderName::ALL.into_iter();
        contenders = all.filter(|one| one.unavailable().is_none()).collect();
    }
    contenders.push(args.baseline);
    keep_first(&mut contenders, |one| *one);
    for one in &contenders {
        if let Some(remedy) = one.unavailable() {
            bail!("{one} is not in this build: {remedy}");
        }
    }
    let mut workloads = args.workload.clone();
    if workloads.is_empty() {
        workloads = WorkloadName::ALL.to_vec();
    }
    keep_first(&mut workloads, |workload| *workload);
    let mut plan = Plan {
        contenders,
        baseline: args.baseline,
        workloads,
        threads: args.threads.clone(),
        seconds: 0.0,
        rounds: args.rounds,
        seed: args.seed,
    };
    let usual = || (BUDGET / plan.slices().max(1) as f64 / 1.1 - 0.01).clamp(0.01, 0.5);
    plan.seconds = args.seconds.unwrap_or_else(usual);
    if plan.slices() == 0 {
        bail!("none of what --backends names does what --workload names");
    }
    Ok(plan)
}
