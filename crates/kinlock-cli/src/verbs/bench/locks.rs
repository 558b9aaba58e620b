//! `kinlock bench locks`: our locks against the peers, on this machine.

use std::path::PathBuf;

use anyhow::bail;
use clap::builder::RangedU64ValueParser;

use crate::bench::interleave::Rounds;
use crate::bench::placement::Pin;
use crate::bench::plan::Plan;
use crate::bench::results::Report;
use crate::bench::threads::ThreadCounts;
use crate::bench::workloads::WorkloadName;
use crate::bench::{interrupt, suite};
use crate::cli::Outcome;
use crate::locks::LockName;
use crate::machine::Machine;
use crate::output::progress;
use crate::output::report::Destinations;
use crate::verbs::keep_first;

/// Measure our locks against the peers on this machine.
///
/// Every lock runs every workload with every number of threads. A workload with a number of threads is a cell; in each
/// round of a cell all locks run once, in random order, on the same threads. Throughput is compared with that of the
/// baseline in the same round, so that drift of the machine cancels.
///
/// A lock's turn in a round has two slices. In the timed slice threads only count their operations. In the instrumented
/// slice, half as long, they read a clock around every acquisition and note who held the lock before: the
/// acquisition times (wait ...) and the hand-offs come from there, the throughput does not.
///
/// SIGINT (Ctrl-C) and SIGTERM end a run early, with a report of its complete rounds: one under way has a second to come to its end; stopping its threads comes on top of that. Another signal ends the process at once, unless it comes within 0.3 s. Exit status: 0 done, 2 bad input, 130 SIGINT, 143 SIGTERM.
#[derive(clap::Args)]
#[command(after_long_help = AFTER_HELP)]
pub struct Args {
    /// Locks to measure, separated by commas; the baseline is always measured too [default: all, but those in strict
    /// order only up to 16 threads per CPU]
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    locks: Vec<LockName>,
    /// Workloads to run, separated by commas [default: all]
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    workload: Vec<WorkloadName>,
    /// Numbers of threads, 1 to 4096: a list with inclusive ranges, as 1,2,8 or 1..16, or `sweep` for 1,2,4,16,64,256;
    /// pingpong and broadcast have their own [default: 1, 2, the number of CPUs, four times as many]
    #[arg(long, value_name = "LIST")]
    threads: Option<ThreadCounts>,
    /// Length of one lock's timed slice in one round, in seconds [default: so that everything takes about a minute, but
    /// at most 0.5]
    #[arg(long, value_name = "S", value_parser = seconds)]
    seconds: Option<f64>,
    /// Rounds per cell
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = RangedU64ValueParser::<usize>::new().range(1..=10_000))]
    rounds: usize,
    /// The lock that the others are compared with
    #[arg(long, value_name = "NAME", default_value_t = LockName::StdMutex)]
    baseline: LockName,
    /// How threads are bound to CPUs [default: spread while each thread has a CPU of its own, else none]
    #[arg(long, value_enum, value_name = "HOW")]
    pin: Option<Pin>,
    /// For readrandom: an existing LevelDB-format database, not in use meanwhile; it is not changed [default: one that
    /// is made once, in the user's cache folder]
    #[arg(long, value_name = "DIR")]
    db: Option<PathBuf>,
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
/// If the input is bad or the results cannot be written.
pub fn run(args: &Args) -> anyhow::Result<Outcome> {
    let plan = plan(args)?;
    let outputs = args.destinations.open()?;
    interrupt::listen();
    let machine = Machine::current();

    let bar = progress::bar(args.quiet, plan.slices(), || {
        eprintln!("{}", announcement(&plan));
    });
    let mut rounds = Rounds::of(plan.all_rounds());
    let measured = suite::run(&plan, &mut rounds, |what| {
        bar.set_message(what.to_owned());
        bar.inc(1);
    })?;
    bar.finish_and_clear();
    let extent = rounds.extent();
    super::finish(outputs, extent, Outcome::Done, || {
        Report::new(&plan, machine, &measured, extent)
    })
}

fn plan(args: &Args) -> anyhow::Result<Plan> {
    let mut locks = args.locks.clone();
    if locks.is_empty() {
        let all = LockName::ALL.iter().copied();
        locks = all.filter(|lock| lock.unavailable().is_none()).collect();
    }
    locks.push(args.baseline);
    keep_first(&mut locks, |lock| *lock);
    for lock in &locks {
        if let Some(remedy) = lock.unavailable() {
            bail!("{lock} is not in this build: {remedy}");
        }
    }
    let mut workloads = args.workload.clone();
    if workloads.is_empty() {
        workloads = WorkloadName::ALL.to_vec();
        // Nothing would be compared there.
        let others = locks.iter().filter(|&&lock| lock != args.baseline);
        let comparable = args.baseline.has_condvar() && others.clone().any(|l| l.has_condvar());
        workloads.retain(|workload| comparable || workload.own_threads().is_none());
    }
    let meeting = workloads.iter().find(|w| w.own_threads().is_some());
    if let Some(workload) = meeting.filter(|_| !args.baseline.has_condvar()) {
        let known = LockName::ALL.iter().filter(|lock| lock.has_condvar());
        let known: Vec<_> = known.map(|lock| lock.name()).collect();
        bail!(
            "{workload} needs a condition variable, which the baseline {} has not; those that have one: {}",
            args.baseline,
            known.join(", ")
        );
    }
    keep_first(&mut workloads, |workload| *workload);
    if args.db.is_some() && !workloads.contains(&WorkloadName::ReadRandom) {
        bail!("--db is for the workload readrandom, which --workload leaves out");
    }
    let usual_threads = || ThreadCounts::for_cpus(kinlock_verify::allowed_cpus().len().max(1));
    let mut plan = Plan {
        locks,
        baseline: args.baseline,
        leaves_none_out: !args.locks.is_empty(),
        workloads,
        threads: args.threads.clone().unwrap_or_else(usual_threads),
        seconds: 0.0,
        rounds: args.rounds,
        pin: args.pin,
        db: args.db.clone(),
        seed: args.seed,
    };
    plan.seconds = args.seconds.unwrap_or_else(|| plan.usual_seconds());
    Ok(plan)
}

pub(super) fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.001..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err("it has to be a number from 0.001 to 3600".to_owned()),
    }
}

fn announcement(plan: &Plan) -> String {
    format!(
        "{} locks x {} workloads x {} thread counts x {} rounds of {:.3} s: about {:.0} s",
        plan.locks.len(),
        plan.workloads.len(),
        plan.threads.0.len(),
        plan.rounds,
        plan.seconds,
        plan.expected_seconds().ceil(),
    )
}

pub(super) const AFTER_HELP: &str = include_str!("locks/help.txt");
