//! `kinlock-lab torture invalidation`: delayed invalidation.

use kinlock_cli::outcome::Outcome;
use kinlock_verify::invalidation::Specimen;

use super::Torture;
use super::args::{Common, Waiting};
use crate::checks::{HELP, chosen, name, named};

/// Test that delayed invalidation is correct under stress
///
/// Threads begin and end sections as fast as they can, and reuse pages of a real mapping that
/// others give back in batches; a stamp in each page shows a page that was reused too early.
/// Threads are delayed at bad moments and interrupted by signals. The defects of `--backends
/// busted`: no waiting, a generation that two sections have, sleepers that are not woken.
///
/// Example: kinlock-lab torture invalidation --backends slots --threads 4,64 --seconds 60
#[derive(clap::Args)]
#[command(after_long_help = HELP)]
pub struct Args {
    /// Backends, separated by commas [default: all of ours; `busted`: all that are broken on
    /// purpose]
    #[arg(
        long,
        visible_alias = "locks",
        value_name = "A,B",
        value_delimiter = ',',
        value_parser = name::<Specimen>,
    )]
    backends: Vec<&'static str>,
    #[command(flatten)]
    waiting: Waiting,
    #[command(flatten)]
    common: Common,
}

impl Args {
    pub fn run(&self) -> anyhow::Result<Outcome> {
        let specimens = chosen::<Specimen>(&self.backends);
        let parameters = self.waiting.parameters(named("backends", &specimens));
        let torture = Torture {
            primitive: "invalidation",
            flag: "backends",
            specimens,
            common: &self.common,
            waiting: Some(&self.waiting),
            settings: self.common.settings(Some(&self.waiting)),
            parameters: self.common.parameters(parameters),
        };
        torture.run(|_, whole| vec![whole])
    }
}
