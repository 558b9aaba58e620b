//! What can be asked of an exploration.

use std::path::PathBuf;

use kinlock_verify::explore::{MAX_THREADS, Replay, Settings, Specimen, locks};
use serde::Serialize;

/// Look for schedules in which a lock fails.
///
/// The library's locks run on a simulated machine: threads are preempted before any memory access, interrupted by
/// handlers, woken for no reason; machine, threads and knobs are drawn from a seed. A schedule that fails is shrunk to the
/// few disruptions it needs, and printed with a word for --replay. Exit status: 0 all checks passed, 1 a check failed,
/// 2 bad input, 3 a lock that is broken on purpose was not caught by the check meant for it.
///
/// `--locks busted` explores locks that are broken on purpose. Each must be caught, so that the exit status is 1.
///
/// Values are sequentially consistent: errors of memory ordering are not found.
///
/// Example: kinlock explore --locks cna,fifo --schedules 100000
#[derive(clap::Args)]
pub struct Args {
    /// What to explore
    #[arg(value_parser = ["locks"], default_value = "locks")]
    what: String,
    /// Locks, separated by commas [default: all of ours; `busted`: all that are broken on purpose]
    #[arg(long, value_name = "A,B", value_delimiter = ',', value_parser = lock_name)]
    locks: Vec<String>,
    /// Schedules for each lock; a broken one is done when it is caught
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000_000))]
    schedules: u64,
    /// Seed of the first schedule; the next one has the next
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Threads of every schedule [default: 2 to 8, by lot]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(2..=MAX_THREADS as u64))]
    threads: Option<u64>,
    /// Schedules to play at a time [default: as many as there are CPUs]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1024))]
    host_threads: Option<u64>,
    /// Play one schedule again, with a trace
    #[arg(long, value_name = "WORD", conflicts_with_all = ["locks", "schedules", "seed", "threads", "host_threads"])]
    pub replay: Option<Replay>,
    /// Write the report as JSON (- for stdout)
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// No progress
    #[arg(long)]
    pub quiet: bool,
}

/// All that decides an exploration, as it is echoed.
#[derive(Clone, Debug, Serialize)]
pub struct Parameters {
    pub locks: Vec<&'static str>,
    pub schedules: u64,
    pub seed: u64,
    pub threads: Option<u64>,
    /// Decides how long it takes, and nothing else.
    pub host_threads: u64,
}

impl Args {
    /// The parameters, complete.
    pub fn parameters(&self) -> Parameters {
        let mut names: Vec<&'static str> = Vec::new();
        for lock in self.locks.iter().flat_map(|name| locks::by_name(name)) {
            if !names.contains(&lock.name) {
                names.push(lock.name);
            }
        }
        if names.is_empty() {
            names = locks::ALL
                .iter()
                .filter(|lock| lock.defect.is_none())
                .map(|lock| lock.name)
                .collect();
        }
        let cpus = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
        Parameters {
            locks: names,
            schedules: self.schedules,
            seed: self.seed,
            threads: self.threads,
            host_threads: self.host_threads.unwrap_or(cpus),
        }
    }
}

impl Parameters {
    /// The locks to explore.
    pub fn specimens(&self) -> Vec<Specimen> {
        self.locks
            .iter()
            .flat_map(|name| locks::by_name(name))
            .collect()
    }

    /// The same for the explorer.
    pub fn settings(&self) -> Settings {
        Settings {
            schedules: self.schedules,
            seed: self.seed,
            threads: self.threads.map(|n| n as usize),
            host_threads: self.host_threads as usize,
        }
    }

    /// The same as a command that repeats the exploration.
    pub fn text(&self) -> String {
        let threads = self
            .threads
            .map_or(String::new(), |n| format!(" --threads {n}"));
        format!(
            "kinlock explore locks --locks {} --schedules {} --seed {}{threads} --host-threads {}\n",
            self.locks.join(","),
            self.schedules,
            self.seed,
            self.host_threads
        )
    }
}

fn lock_name(text: &str) -> Result<String, String> {
    if locks::by_name(text).is_empty() {
        let known: Vec<&str> = locks::ALL
            .iter()
            .map(|lock| lock.name)
            .chain([locks::BUSTED])
            .collect();
        return Err(format!("no such lock; known: {}", known.join(", ")));
    }
    Ok(text.to_owned())
}
