//! `kinlock sim`: a workload on a simulated machine.

use std::path::PathBuf;

use kinlock_core::config::{LocalLimit, Numa, Scan};
use kinlock_core::topology::DomainKind;
use kinlock_sim::locks::{self, Genre};
use kinlock_sim::{Machine, Placement, workloads};

use crate::bench::threads::ThreadCounts;
use crate::cli::Outcome;
use crate::output::progress;
use crate::output::report::Destinations;
use crate::sim::flags::{Sampling, on_off, seconds};
use crate::sim::part::{self, Part};
use crate::sim::plan::{self, Knobs, Plan, Shard};
use crate::sim::pool::{self, Job, Stuck};
use crate::sim::report::open_for_part;
use crate::sim::results::Report;
use crate::sim::sample::Sample;
use crate::verbs::keep_first;

/// Simulate a workload on a large machine.
///
/// The library's own locks run on a simulated cache-coherent NUMA machine: which lock is best there, under that load?
/// Results do not depend on the machine that simulates, nor on how many of its CPUs take part.
///
/// Every lock runs every workload with every number of threads, with several seeds, and with the first seed also with
/// other latencies between sockets: bands show the extremes of all of these.
#[derive(clap::Args)]
#[command(after_long_help = AFTER_HELP)]
pub struct Args {
    /// The machine: the name of one that is built in, or a file that describes one
    #[arg(long, value_name = "NAME|FILE", default_value = "haswell-ex-4s")]
    machine: String,
    /// Workloads, separated by commas
    #[arg(long, value_name = "A,B", value_delimiter = ',', default_value = "lock2", value_parser = plan::workload)]
    workload: Vec<workloads::Kind>,
    /// Locks, separated by commas; the baseline always comes along. For cid-* workloads policies for concurrency IDs, for
    /// invalidation backends of delayed invalidation [default: tas,ticket,mcs,qspinlock,cna-v10,cna, or all of the others]
    #[arg(long, value_name = "A,B", value_delimiter = ',', value_parser = plan::lock)]
    locks: Vec<locks::Kind>,
    /// Numbers of threads, 1 to 4096: a list with inclusive ranges, as 1,2,8 or 1..142 [default: doubling up to the
    /// machine's CPUs]
    #[arg(long, value_name = "LIST")]
    threads: Option<ThreadCounts>,
    /// Simulated seconds of each run, after a warm-up of a tenth of that; the default gives each of four locality
    /// domains its turn of 10 ms. The cid-* workloads take longer; cid-intermittent ends after its five runs whatever is asked for
    #[arg(long, value_name = "S", default_value_t = 0.05, value_parser = seconds, allow_negative_numbers = true)]
    seconds: f64,
    #[command(flatten)]
    sampling: Sampling,
    /// Where threads run: compact, spread, random or scheduled [default: as the workload was measured]
    #[arg(long, value_name = "HOW", value_parser = plan::placement)]
    placement: Option<Placement>,
    /// For cna: whether queues are reordered; auto: if the machine has several locality domains
    #[arg(long, value_name = "auto|on|off", default_value_t = Numa::Auto)]
    numa: Numa,
    /// For cna: how a waiter of the same locality domain is looked for
    #[arg(long, value_name = "full|incremental", default_value_t = Scan::Full)]
    scan: Scan,
    /// For cna: how long hand-offs may stay in a locality domain while others wait, as 10ms or 2^16
    #[arg(long, value_name = "LIMIT", default_value_t = LocalLimit::default())]
    local_limit: LocalLimit,
    /// What a locality domain is
    #[arg(long, value_name = "node|llc|socket", default_value_t = DomainKind::Node)]
    domain: DomainKind,
    /// For cna: begin to reorder with a small probability only
    #[arg(long, value_name = "on|off", default_value = "off", action = clap::ArgAction::Set, value_parser = on_off)]
    shuffle_reduction: bool,
    /// The lock that the others are compared with [default: qspinlock, lowest-free, or invalidation-locked]
    #[arg(long, value_name = "NAME", value_parser = plan::lock)]
    baseline: Option<locks::Kind>,
    /// Run only part I of N, to share the work with other machines; --json FILE takes the part
    #[arg(long, value_name = "I/N", value_parser = Shard::parse)]
    shard: Option<Shard>,
    /// Put parts together that --shard has written, instead of simulating: the result is that of one whole run
    #[arg(
        long, value_name = "FILE", num_args = 1..,
        conflicts_with_all = [
            "machine", "workload", "locks", "threads", "seconds", "seeds", "seed", "band", "host_threads", "placement",
            "numa", "scan", "local_limit", "domain", "shuffle_reduction", "baseline", "shard",
        ],
    )]
    merge: Vec<PathBuf>,
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
pub fn run(args: Args) -> anyhow::Result<Outcome> {
    if !args.merge.is_empty() {
        let outputs = args.destinations.open()?;
        outputs.write(&part::merge(&args.merge)?)?;
        return Ok(Outcome::Done);
    }
    let plan = plan(&args)?;
    let mut jobs = plan.jobs();
    let host_threads = args.sampling.host_threads();
    if let Some(shard) = args.shard {
        let outputs = open_for_part(&args.destinations)?;
        let mut place = 0..;
        jobs.retain(|_| place.next().is_some_and(|place| shard.has(place)));
        let Some(samples) = simulate(&jobs, host_threads, args.quiet) else {
            return Ok(Outcome::CheckFailed);
        };
        outputs.write(&Part {
            shard,
            setup: plan.setup(),
            host_threads,
            samples,
        })?;
    } else {
        let outputs = args.destinations.open()?;
        let Some(samples) = simulate(&jobs, host_threads, args.quiet) else {
            return Ok(Outcome::CheckFailed);
        };
        outputs.write(&Report::new(plan.setup(), host_threads, samples))?;
    }
    Ok(Outcome::Done)
}

/// Runs all jobs with a progress bar. `None`, and a line on stderr, if a lock lost a thread.
pub fn simulate(jobs: &[Job], host_threads: usize, quiet: bool) -> Option<Vec<Sample>> {
    let bar = progress::bar(quiet, jobs.len(), || ());
    let samples = pool::run(jobs, host_threads, |job| {
        bar.set_message(pool::title(job));
        bar.inc(1);
    });
    bar.finish_and_clear();
    samples
        .map_err(|Stuck(what)| eprintln!("kinlock: {what}"))
        .ok()
}

fn plan(args: &Args) -> anyhow::Result<Plan> {
    let machine = Machine::load(&args.machine)?;
    let genre = args
        .workload
        .first()
        .map_or(Genre::Lock, workloads::Kind::takes);
    let (usual, first) = plan::usual_locks(genre);
    let mut locks = match &args.locks[..] {
        [] => usual,
        chosen => chosen.to_vec(),
    };
    let baseline = args.baseline.unwrap_or(first);
    locks.push(baseline);
    keep_first(&mut locks, |kind| kind.name);
    let mut workloads = args.workload.clone();
    keep_first(&mut workloads, |kind| kind.name);
    let threads = match &args.threads {
        Some(ThreadCounts(threads)) => threads.clone(),
        None => plan::usual_threads(machine.shape.cpus()),
    };
    plan::check(&workloads, &locks, machine.shape.cpus(), &threads)?;
    Ok(Plan {
        machine_name: args.machine.clone(),
        machine,
        workloads,
        locks,
        baseline,
        threads,
        seconds: args.seconds,
        placement: args.placement,
        sampling: args.sampling.clone(),
        knobs: Knobs {
            numa: args.numa,
            scan: args.scan,
            local_limit: args.local_limit,
            domain: args.domain,
            shuffle_reduction: args.shuffle_reduction,
        },
    })
}

const AFTER_HELP: &str = include_str!("sim/help.txt");
