//! `kinlock-lab torture ids`: concurrency IDs.

use anyhow::bail;
use clap::builder::RangedU64ValueParser;
use kinlock_cli::outcome::{Outcome, tell};
use kinlock_ids::Backend;
use kinlock_verify::ids::{SCENARIOS, Specimen};
use kinlock_verify::plan::Settings;

use super::Torture;
use super::args::{Common, or_all};
use crate::checks::{HELP, chosen, find, name, named};

/// Test that concurrency IDs are correct under stress
///
/// Restartable sequences and leases are put through a number of scenarios, with signals, changes of
/// affinity, and delays inside the sequences. `--ids busted` is a sequence that does not restart.
///
/// Example: kinlock-lab torture ids --backend rseq --seconds 60
#[derive(clap::Args)]
#[command(after_long_help = HELP)]
pub struct Args {
    /// What to torture, separated by commas [default: all that is meant to work and that this
    /// machine has; `busted`: all that is broken on purpose]
    #[arg(
        long,
        value_name = "A,B",
        value_delimiter = ',',
        value_parser = name::<Specimen>,
        conflicts_with = "backend",
    )]
    ids: Vec<&'static str>,
    /// The backend of IDs: auto (all that this machine has), rseq, lease
    #[arg(
        long,
        value_name = "NAME",
        default_value = "auto",
        value_parser = ["auto", "rseq", "lease"],
    )]
    backend: String,
    /// Number of threads
    #[arg(
        long,
        value_name = "N",
        default_value_t = 8,
        value_parser = RangedU64ValueParser::<usize>::new().range(1..=1024),
    )]
    threads: usize,
    /// Scenarios, separated by commas [default: all]
    #[arg(long, value_name = "A,B", value_delimiter = ',', value_parser = scenario)]
    scenarios: Vec<&'static str>,
    #[command(flatten)]
    common: Common,
}

impl Args {
    pub fn run(&self) -> anyhow::Result<Outcome> {
        let specimens = self.specimens()?;
        let scenarios = or_all(&self.scenarios, names());
        let parameters = named("ids", &specimens).add("threads", self.threads);
        let parameters = self.common.parameters(parameters);
        let torture = Torture {
            primitive: "ids",
            flag: "ids",
            specimens,
            common: &self.common,
            waiting: None,
            settings: Settings {
                threads: vec![self.threads],
                scenarios: scenarios.clone(),
                ..self.common.settings(None)
            },
            parameters: parameters.add("scenarios", scenarios),
        };
        torture.run(|_, whole| vec![whole])
    }

    /// The specimens that were asked for and that this machine has.
    fn specimens(&self) -> anyhow::Result<Vec<Specimen>> {
        let mut chosen: Vec<Specimen> = chosen(&self.ids);
        // A name does not include the backend, so it selects specimens of all backends.
        chosen.retain(|one| self.backend == "auto" || self.backend == one.backend.name());
        if let Err(why) = Backend::Restartable.available() {
            if self.backend == "rseq" || self.ids.contains(&"rseq") {
                bail!("{why}");
            }
            let before = chosen.len();
            chosen.retain(|specimen| specimen.backend != Backend::Restartable);
            if chosen.len() < before {
                tell(&format!("kinlock-lab: left out: {why}"));
            }
        }
        Ok(chosen)
    }
}

fn names() -> impl Iterator<Item = &'static str> {
    SCENARIOS.iter().map(|scenario| scenario.name)
}

fn scenario(text: &str) -> Result<&'static str, String> {
    find("scenario", text, names(), |name| name)
}
