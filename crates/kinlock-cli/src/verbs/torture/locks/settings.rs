//! What can be asked of a torture run.

use std::collections::HashSet;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::ensure;
use kinlock_verify::locks::{self, Specimen};
use kinlock_verify::plan::Settings;
use kinlock_verify::{LEVELS, Preemption, scenarios};
use serde::Serialize;

use super::ThreadCounts;

/// A day; beyond that somebody has mistaken the unit.
const LONGEST: f64 = 86_400.0;
/// As many as the largest machines have; each gets threads of its own.
const MOST_DOMAINS: usize = 64;

/// Test that locks are correct under stress.
///
/// Each lock is put through a number of scenarios; each scenario makes several checks. Exit status: 0 all checks
/// passed, 1 a check failed, 2 bad input, 3 a lock that is broken on purpose was not caught by the check meant for it.
///
/// `--locks busted` tortures locks that are broken on purpose: no mutual exclusion, waiters lost in a splice or
/// asleep, a starved locality domain, a lock that is granted twice or to nobody, a condition variable that loses notifications. Each must be caught, so that the exit status is 1; it is tortured until then, at most ten times as long.
///
/// Locks whose waiters sleep rely on the system call membarrier, and do without where it is refused. `--without-membarrier`
/// has a seccomp filter refuse it, so that this way is tortured, too.
///
/// Example: kinlock torture --locks kinlock-spin --threads 4,64 --seconds 60
#[derive(clap::Args)]
pub struct Args {
    /// Locks, separated by commas [default: all of ours; `busted`: all that are broken on purpose]
    #[arg(long, value_name = "A,B", value_delimiter = ',', value_parser = lock_name)]
    locks: Vec<String>,
    /// Numbers of threads, as a list or an inclusive range; the first is used where only one is needed
    #[arg(long, value_name = "LIST", default_value = "4,16,64")]
    threads: ThreadCounts,
    /// Seconds for each lock, divided among the scenarios
    #[arg(
        long,
        value_name = "S",
        default_value_t = 3.0,
        allow_negative_numbers = true
    )]
    seconds: f64,
    /// Start of all random numbers
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// How often threads are made to yield or sleep at bad moments
    #[arg(long, value_name = "LEVEL", value_parser = LEVELS.map(|(name, _)| name), default_value = "light")]
    preemption: String,
    /// Numbers of locality domains to pretend, separated by commas
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "2,4,8", value_parser = domains)]
    topology: Vec<usize>,
    /// Scenarios, separated by commas [default: all]
    #[arg(long, value_name = "A,B", value_delimiter = ',', value_parser = scenario)]
    scenarios: Vec<String>,
    /// Seconds after which a wait is taken to be endless
    #[arg(
        long,
        value_name = "S",
        default_value_t = 5.0,
        allow_negative_numbers = true
    )]
    hang: f64,
    /// Refuse membarrier to the locks, as some sandboxes do
    #[arg(long)]
    pub without_membarrier: bool,
    /// Torture in this process instead of one for each lock; for debuggers
    #[arg(long)]
    pub in_process: bool,
    /// Write the report as JSON (- for stdout)
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// No progress
    #[arg(long)]
    pub quiet: bool,
}

/// All that decides a run, as it is echoed and passed to child processes.
#[derive(Clone, Debug, Serialize)]
pub struct Parameters {
    pub locks: Vec<String>,
    pub threads: Vec<usize>,
    pub seconds: f64,
    pub seed: u64,
    pub preemption: String,
    pub topology: Vec<usize>,
    pub scenarios: Vec<String>,
    pub hang: f64,
    pub without_membarrier: bool,
}

impl Args {
    /// The parameters, complete and checked.
    pub fn parameters(&self) -> anyhow::Result<Parameters> {
        let possible = |seconds: f64| seconds > 0.0 && seconds <= LONGEST;
        ensure!(
            possible(self.seconds),
            "--seconds {}: it has to be more than 0 and at most {LONGEST}",
            self.seconds
        );
        ensure!(
            possible(self.hang),
            "--hang {}: it has to be more than 0 and at most {LONGEST}",
            self.hang
        );
        let mut scenarios = self.scenarios.clone();
        if scenarios.is_empty() {
            scenarios = scenarios::ALL
                .iter()
                .map(|scenario| scenario.name.to_owned())
                .collect();
        }
        Ok(Parameters {
            locks: self.locks_for(&scenarios)?,
            threads: self.threads.0.clone(),
            seconds: self.seconds,
            seed: self.seed,
            preemption: self.preemption.clone(),
            topology: self.topology.clone(),
            scenarios,
            hang: self.hang,
            without_membarrier: self.without_membarrier,
        })
    }
}

impl Args {
    /// The names of the locks that were asked for and that some of the scenarios are for.
    fn locks_for(&self, scenarios: &[String]) -> anyhow::Result<Vec<String>> {
        let suited = |lock: &Specimen| scenarios.iter().any(|name| suits(lock, name));
        let mut names: Vec<String> = Vec::new();
        for asked in &self.locks {
            let found = locks::by_name(asked).into_iter().filter(suited);
            let found: Vec<_> = found.map(|lock| lock.name.to_owned()).collect();
            ensure!(
                !found.is_empty(),
                "--scenarios {}: not for {asked}",
                scenarios.join(",")
            );
            names.extend(found);
        }
        if names.is_empty() {
            let all = locks::sound().filter(suited);
            names = all.map(|lock| lock.name.to_owned()).collect();
        }
        let mut seen = HashSet::new();
        names.retain(|name| seen.insert(name.clone()));
        Ok(names)
    }
}

/// Whether the scenario with this name says anything about `lock`.
pub fn suits(lock: &Specimen, scenario: &str) -> bool {
    let mut all = scenarios::ALL.iter();
    all.any(|known| known.name == scenario && known.suits(lock))
}

impl Parameters {
    /// The locks to torture.
    pub fn specimens(&self) -> Vec<Specimen> {
        self.locks
            .iter()
            .flat_map(|name| locks::by_name(name))
            .collect()
    }

    /// The same for [`kinlock_verify::plan::run`].
    pub fn plan(&self) -> Settings {
        let level = LEVELS.iter().find(|(name, _)| *name == self.preemption);
        let known = scenarios::ALL.iter().map(|scenario| scenario.name);
        Settings {
            time: Duration::from_secs_f64(self.seconds),
            threads: self.threads.clone(),
            domains: self.topology.clone(),
            preemption: level.map_or(Preemption::Light, |(_, level)| *level),
            hang: Duration::from_secs_f64(self.hang),
            seed: self.seed,
            scenarios: known
                .filter(|name| self.scenarios.iter().any(|s| s == name))
                .collect(),
        }
    }

    /// The same as arguments of the command.
    pub fn arguments(&self) -> Vec<String> {
        let numbers = |list: &[usize]| {
            list.iter()
                .map(usize::to_string)
                .collect::<Vec<_>>()
                .join(",")
        };
        let flags = [
            ("--locks", self.locks.join(",")),
            ("--threads", numbers(&self.threads)),
            ("--seconds", self.seconds.to_string()),
            ("--seed", self.seed.to_string()),
            ("--preemption", self.preemption.clone()),
            ("--topology", numbers(&self.topology)),
            ("--scenarios", self.scenarios.join(",")),
            ("--hang", self.hang.to_string()),
        ];
        flags
            .into_iter()
            .flat_map(|(flag, value)| [flag.to_owned(), value])
            .chain(
                self.without_membarrier
                    .then(|| "--without-membarrier".to_owned()),
            )
            .collect()
    }
}

fn lock_name(text: &str) -> Result<String, String> {
    let known = locks::ALL
        .iter()
        .map(|lock| lock.name)
        .chain([locks::BUSTED]);
    one_of("lock", text, known)
}

fn scenario(text: &str) -> Result<String, String> {
    one_of(
        "scenario",
        text,
        scenarios::ALL.iter().map(|scenario| scenario.name),
    )
}

fn one_of(
    kind: &str,
    text: &str,
    known: impl Iterator<Item = &'static str> + Clone,
) -> Result<String, String> {
    if known.clone().any(|name| name == text) {
        Ok(text.to_owned())
    } else {
        Err(format!(
            "no such {kind}; known: {}",
            known.collect::<Vec<_>>().join(", ")
        ))
    }
}

fn domains(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|n| (1..=MOST_DOMAINS).contains(n));
    number.ok_or(format!("it has to be a number from 1 to {MOST_DOMAINS}"))
}
