//! `kinlock-lab torture locks`: spinlocks, mutexes, condition variables.
//!
//! Locks read pretended locality domains from their environment once per process, so each division
//! of the machine's CPUs into domains is a child process, too.

use anyhow::ensure;
use kinlock_cli::outcome::Outcome;
use kinlock_measure::cpus::allowed_cpus;
use kinlock_verify::locks::Specimen;
use kinlock_verify::plan::Settings;
use kinlock_verify::{by_name, scenarios};

use super::Torture;
use super::args::{Common, Waiting, or_all};
use super::child::Task;
use crate::checks::{HELP, chosen, find, name, named};

/// The number of domains of the largest machines. Each domain gets threads of its own.
const MOST_DOMAINS: usize = 64;
/// The share of the time that each division of the machine gets.
const DIVIDED: f64 = 0.08;

/// Test that locks are correct under stress
///
/// Each lock is put through a number of scenarios; each scenario makes several checks.
///
/// Locks whose waiters sleep use the system call membarrier, unless it is refused. With
/// `--without-membarrier` a seccomp filter refuses it, so that this case is tortured, too.
///
/// Example: kinlock-lab torture --locks kinlock-spin --threads 4,64 --seconds 60
#[derive(clap::Args)]
#[command(after_long_help = HELP)]
pub struct Args {
    /// Locks, separated by commas [default: all of ours]
    #[arg(long, value_name = "A,B", value_delimiter = ',', value_parser = name::<Specimen>)]
    locks: Vec<&'static str>,
    /// Numbers of locality domains to pretend, separated by commas
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "2,4,8",
        value_parser = domains,
    )]
    topology: Vec<usize>,
    /// Scenarios, separated by commas [default: all]
    #[arg(long, value_name = "A,B", value_delimiter = ',', value_parser = scenario)]
    scenarios: Vec<&'static str>,
    #[command(flatten)]
    waiting: Waiting,
    #[command(flatten)]
    common: Common,
}

impl Args {
    pub fn run(&self) -> anyhow::Result<Outcome> {
        let specimens = self.specimens()?;
        let parameters = self.waiting.parameters(named("locks", &specimens));
        let parameters = self.common.parameters(parameters);
        let parameters = parameters.add("topology", &self.topology);
        let torture = Torture {
            primitive: "locks",
            flag: "locks",
            specimens,
            common: &self.common,
            waiting: Some(&self.waiting),
            settings: Settings {
                domains: self.topology.clone(),
                scenarios: self.scenarios(),
                ..self.common.settings(Some(&self.waiting))
            },
            parameters: parameters.add("scenarios", self.scenarios()),
        };
        torture.run(|lock, whole| self.tasks(lock, whole))
    }

    /// The locks for which there is at least one scenario.
    fn specimens(&self) -> anyhow::Result<Vec<Specimen>> {
        let scenarios = self.scenarios();
        let suited = |lock: &Specimen| scenarios.iter().any(|name| suits(lock, name));
        for &asked in &self.locks {
            let found = by_name::<Specimen>(asked);
            let scenarios = scenarios.join(",");
            ensure!(
                found.iter().any(suited),
                "--scenarios {scenarios}: not for {asked}"
            );
        }
        let mut chosen = chosen(&self.locks);
        chosen.retain(suited);
        Ok(chosen)
    }

    /// All scenarios on the machine as it is, and one more with each division into locality
    /// domains.
    fn tasks(&self, lock: Specimen, mut whole: Task) -> Vec<Task> {
        let mut scenarios = self.scenarios();
        let cpus = allowed_cpus();
        let is_divided = |name: &&str| *name == scenarios::TOPOLOGY;
        let mut divisions = self.topology.clone();
        let asked = scenarios.iter().any(is_divided) && suits(&lock, scenarios::TOPOLOGY);
        let divides = asked && lock.defect.is_none();
        divisions.retain(|&n| divides && n <= cpus.len());
        let divided = |&domains: &usize| {
            let seconds = whole.seconds * DIVIDED;
            let parameters = whole.parameters.with("seconds", seconds);
            let parameters = parameters.with("topology", [domains]);
            Task {
                parameters: parameters.with("scenarios", [scenarios::TOPOLOGY]),
                seconds,
                topology: Some(divide(&cpus, domains)),
                ..whole.clone()
            }
        };
        let mut tasks: Vec<Task> = divisions.iter().map(divided).collect();
        scenarios.retain(|name| !is_divided(name) && suits(&lock, name));
        if !scenarios.is_empty() {
            whole.seconds *= 1.0 - (DIVIDED * divisions.len() as f64).min(0.5);
            let parameters = whole.parameters.with("seconds", whole.seconds);
            whole.parameters = parameters.with("scenarios", scenarios);
            tasks.insert(0, whole);
        }
        tasks
    }

    fn scenarios(&self) -> Vec<&'static str> {
        or_all(&self.scenarios, names())
    }
}

/// Whether the scenario with this name applies to `lock`.
fn suits(lock: &Specimen, scenario: &str) -> bool {
    let mut all = scenarios::ALL.iter();
    all.any(|known| known.name == scenario && (known.fits)(lock))
}

/// The CPUs divided among `domains` domains, in the form of `KINLOCK_TOPOLOGY`.
fn divide(cpus: &[usize], domains: usize) -> String {
    let of = |domain| {
        let dealt = cpus.iter().skip(domain).step_by(domains);
        dealt.map(usize::to_string).collect::<Vec<_>>().join(",")
    };
    (0..domains).map(of).collect::<Vec<_>>().join(";")
}

fn names() -> impl Iterator<Item = &'static str> {
    scenarios::ALL.iter().map(|scenario| scenario.name)
}

fn scenario(text: &str) -> Result<&'static str, String> {
    find("scenario", text, names(), |name| name)
}

fn domains(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|n| (1..=MOST_DOMAINS).contains(n));
    number.ok_or(format!("it has to be a number from 1 to {MOST_DOMAINS}"))
}

#[cfg(test)]
mod tests {
    use super::divide;

    #[test]
    fn every_cpu_is_in_one_domain() {
        assert_eq!(divide(&[0, 1, 2, 5, 9], 2), "0,2,9;1,5");
        assert_eq!(divide(&[3, 4], 2), "3;4");
    }
}
