//! What can be asked of an exploration, whatever is explored.

use std::collections::BTreeMap;
use std::path::PathBuf;

use kinlock_verify::explore::{self, MAX_THREADS, Settings, Subject};
use kinlock_verify::locks::BUSTED;
use serde::Serialize;

/// The flags that all have in common.
#[derive(clap::Args)]
pub struct Common {
    /// Schedules for each of them; one that is broken on purpose is done when it is caught
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
    /// Play one schedule again, with a trace: a word that a report has printed
    #[arg(long, value_name = "WORD", conflicts_with_all = ["schedules", "seed", "threads", "host_threads"])]
    pub replay: Option<String>,
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
    /// What is explored, as the command line and programs call it.
    pub primitive: &'static str,
    /// The names of what is explored, by the flag for them.
    #[serde(flatten)]
    pub names: BTreeMap<&'static str, Vec<&'static str>>,
    pub schedules: u64,
    pub seed: u64,
    pub threads: Option<u64>,
    /// Decides how long it takes, and nothing else.
    pub host_threads: u64,
}

impl Common {
    /// The parameters, complete, for these.
    pub fn parameters<S: Subject>(
        &self,
        primitive: &'static str,
        flag: &'static str,
        subjects: &[S],
    ) -> Parameters {
        let cpus = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
        Parameters {
            primitive,
            names: BTreeMap::from([(flag, subjects.iter().map(S::name).collect())]),
            schedules: self.schedules,
            seed: self.seed,
            threads: self.threads,
            host_threads: self.host_threads.unwrap_or(cpus),
        }
    }
}

impl Parameters {
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
        let mut text = format!("kinlock explore {}", self.primitive);
        for (flag, names) in &self.names {
            text += &format!(" --{flag} {}", names.join(","));
        }
        text += &format!(" --schedules {} --seed {}", self.schedules, self.seed);
        if let Some(threads) = self.threads {
            text += &format!(" --threads {threads}");
        }
        text + &format!(" --host-threads {}\n", self.host_threads)
    }
}

/// Those with these names, each once; without names all that are meant to work.
pub fn chosen<S: Subject>(names: &[String]) -> Vec<S> {
    if names.is_empty() {
        let sound = S::ALL.iter().filter(|one| one.defect().is_none());
        return sound.copied().collect();
    }
    let mut chosen: Vec<S> = Vec::new();
    for one in names.iter().flat_map(|name| explore::by_name::<S>(name)) {
        if !chosen.iter().any(|known| known.name() == one.name()) {
            chosen.push(one);
        }
    }
    chosen
}

/// A name of one of them, or of all that are broken on purpose.
pub fn name<S: Subject>(text: &str) -> Result<String, String> {
    if !explore::by_name::<S>(text).is_empty() {
        return Ok(text.to_owned());
    }
    let known: Vec<&str> = S::ALL.iter().map(S::name).chain([BUSTED]).collect();
    Err(format!("no such {}; known: {}", S::KIND, known.join(", ")))
}
