//! The flags that several primitives share.

use std::path::PathBuf;
use std::time::Duration;

use kinlock_cli::args::ThreadCounts;
use kinlock_cli::parameters::Parameters;
use kinlock_verify::plan::Settings;
use kinlock_verify::{LEVELS, Preemption};

/// The longest time is a day: a longer one is a mistake in the unit.
const LONGEST: f64 = 86_400.0;

/// The flags of all primitives.
#[derive(clap::Args)]
pub struct Common {
    /// Seconds for each subject, divided among the scenarios
    #[arg(
        long,
        value_name = "S",
        default_value_t = 3.0,
        value_parser = seconds,
        allow_negative_numbers = true,
    )]
    pub seconds: f64,
    /// Start of all random numbers
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// How often threads are made to yield or sleep at bad moments
    #[arg(
        long,
        value_name = "LEVEL",
        value_parser = LEVELS.map(|(name, _)| name),
        default_value = "light",
    )]
    preemption: String,
    /// Torture in this process, not in a child process for each subject; for debuggers
    #[arg(long)]
    pub in_process: bool,
    /// Write the report as JSON (- for stdout)
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// No progress
    #[arg(long)]
    pub quiet: bool,
}

/// The flags of primitives whose threads wait for each other.
#[derive(clap::Args)]
pub struct Waiting {
    /// Numbers of threads, such as 1,2,8 or 1..16; the first is used where only one is needed
    #[arg(long, value_name = "LIST", default_value = "4,16,64")]
    pub threads: ThreadCounts,
    /// Seconds after which a wait is taken to be endless
    #[arg(
        long,
        value_name = "S",
        default_value_t = 5.0,
        value_parser = seconds,
        allow_negative_numbers = true,
    )]
    pub hang: f64,
    /// Refuse the system call membarrier, as some sandboxes do; sleeping waiters then have to wake
    /// up now and then by themselves
    #[arg(long)]
    pub without_membarrier: bool,
}

impl Common {
    /// The settings of a torture, without scenarios and locality domains.
    pub fn settings(&self, waiting: Option<&Waiting>) -> Settings {
        let level = LEVELS.iter().find(|(name, _)| *name == self.preemption);
        let hang = waiting.map_or(0.0, |waiting| waiting.hang);
        Settings {
            time: Duration::from_secs_f64(self.seconds),
            threads: waiting.map_or_else(Vec::new, |waiting| waiting.threads.0.clone()),
            domains: Vec::new(),
            preemption: level.map_or(Preemption::Light, |(_, level)| *level),
            hang: Duration::from_secs_f64(hang),
            seed: self.seed,
            scenarios: Vec::new(),
        }
    }

    /// Adds what decides a run.
    pub fn parameters(&self, so_far: Parameters) -> Parameters {
        so_far
            .add("seconds", self.seconds)
            .add("seed", self.seed)
            .add("preemption", &self.preemption)
    }
}

impl Waiting {
    /// Adds what decides a run.
    pub fn parameters(&self, so_far: Parameters) -> Parameters {
        so_far
            .add("threads", &self.threads.0)
            .add("hang", self.hang)
            .add("without-membarrier", self.without_membarrier)
    }
}

/// The scenarios asked for, or all.
pub fn or_all(
    asked: &[&'static str],
    all: impl Iterator<Item = &'static str>,
) -> Vec<&'static str> {
    match asked {
        [] => all.collect(),
        asked => asked.to_vec(),
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok();
    let possible = seconds.filter(|&seconds| seconds > 0.0 && seconds <= LONGEST);
    possible.ok_or(format!("it has to be more than 0 and at most {LONGEST}"))
}
