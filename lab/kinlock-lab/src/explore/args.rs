//! The arguments: those that all primitives share, then the ones of each primitive.

use std::path::PathBuf;
use std::thread::available_parallelism;

use kinlock_verify::explore::{MAX_THREADS, Settings, ids, invalidation, locks};

use crate::checks::{HELP, name};

/// The flags that all primitives share.
#[derive(clap::Args)]
pub struct Common {
    /// Schedules for each subject; one that is broken on purpose is done when it is caught
    #[arg(
        long,
        value_name = "N",
        default_value_t = 10_000,
        value_parser = clap::value_parser!(u64).range(1..=1_000_000_000_000),
    )]
    schedules: u64,
    /// Seed of the first schedule; each later schedule has the next seed
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Threads of every schedule [default: 2 to 8, drawn for each schedule]
    #[arg(
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u64).range(2..=MAX_THREADS as u64),
    )]
    threads: Option<u64>,
    /// Schedules to play at a time [default: as many as there are CPUs]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1024))]
    host_threads: Option<u64>,
    /// Play one schedule again, with a trace: a word that a report has printed
    #[arg(
        long,
        value_name = "WORD",
        conflicts_with_all = ["schedules", "seed", "threads", "host_threads"],
    )]
    pub replay: Option<String>,
    /// Write the report as JSON (- for stdout)
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// No progress
    #[arg(long)]
    pub quiet: bool,
}

/// Look for schedules in which a lock, a mutex or a condition variable fails
///
/// The library's locks run on a simulated machine: threads are preempted before any memory access,
/// interrupted by handlers, and have spurious wake-ups; machine, threads and knobs are drawn from a
/// seed. A schedule that fails is shrunk to the few disruptions it needs, and printed with a word
/// for --replay. Values are sequentially consistent, except that a look for sleepers may go ahead
/// of the release before it: other errors of memory ordering are not found.
///
/// Example: kinlock-lab explore --locks cna,fifo --schedules 100000
#[derive(clap::Args)]
#[command(after_long_help = HELP)]
pub struct Locks {
    /// Locks, separated by commas; `mutex` and `condvar` are among them [default: all of ours]
    #[arg(
        long,
        value_name = "A,B",
        value_delimiter = ',',
        value_parser = name::<locks::Specimen>,
        conflicts_with = "replay",
    )]
    pub locks: Vec<&'static str>,
    #[command(flatten)]
    pub common: Common,
}

/// Look for schedules in which concurrency IDs are shared, lost, too large, or not to be had
///
/// The library's allocator, which is behind all leases, runs on a simulated machine: threads take
/// and give back IDs on changing CPUs, reclaim old ones, come and go, and are preempted before any
/// memory access. (Restartable sequences are for real machines: `kinlock-lab torture ids`.) A
/// schedule that fails is shrunk to the few preemptions it needs, and printed with a word for
/// --replay. Values are sequentially consistent: errors of memory ordering are not found.
///
/// Example: kinlock-lab explore ids --policies recent-first --schedules 100000
#[derive(clap::Args)]
#[command(after_long_help = HELP)]
pub struct Ids {
    /// Policies, separated by commas [default: all]
    #[arg(
        long,
        visible_alias = "ids",
        value_name = "A,B",
        value_delimiter = ',',
        value_parser = name::<ids::Specimen>,
        conflicts_with = "replay",
    )]
    pub policies: Vec<&'static str>,
    #[command(flatten)]
    pub common: Common,
}

/// Look for schedules in which a wait for invalidation ends too early or never
///
/// The library's domains run on a simulated machine: threads begin and end sections, tag, and wait
/// for tags; they are preempted before any memory access, and have spurious wake-ups; machine and
/// threads are drawn from a seed. A schedule that fails is shrunk to the few disruptions it needs,
/// and printed with a word for --replay. Values are sequentially consistent, except that a look for
/// sleepers may go ahead of the end before it: other errors of memory ordering are not found.
///
/// Example: kinlock-lab explore invalidation --backends slots --schedules 100000
#[derive(clap::Args)]
#[command(after_long_help = HELP)]
pub struct Invalidation {
    /// Backends, separated by commas [default: all of ours; `busted`: all that are broken on
    /// purpose]
    #[arg(
        long,
        visible_alias = "locks",
        value_name = "A,B",
        value_delimiter = ',',
        value_parser = name::<invalidation::Specimen>,
        conflicts_with = "replay",
    )]
    pub backends: Vec<&'static str>,
    #[command(flatten)]
    pub common: Common,
}

impl Common {
    /// The settings of the explorer.
    pub fn settings(&self) -> Settings {
        let cpus = || available_parallelism().map_or(1, usize::from);
        Settings {
            schedules: self.schedules,
            seed: self.seed,
            threads: self.threads.map(|n| n as usize),
            host_threads: self.host_threads.map_or_else(cpus, |n| n as usize),
        }
    }
}
