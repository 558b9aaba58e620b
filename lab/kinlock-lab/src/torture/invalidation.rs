//! `kinlock-lab torture invalidation`: delayed invalidation.

use kinlock_cli::parameters::Parameters;
use kinlock_verify::invalidation::Specimen;

use super::Torture;
use super::args::{Common, Waiting};
use crate::checks::{HELP, chosen, name};

/// Test that delayed invalidation is correct under stress
///
/// Threads delay invalidation and end that as fast as they can, and reuse pages of a real mapping
/// that others give back in batches; a stamp in each page shows a page that was reused too early.
/// Threads are delayed at bad moments and interrupted by signals. What is broken in `--backends
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

impl Torture for Args {
    type Specimen = Specimen;
    const PRIMITIVE: &'static str = "invalidation";
    const FLAG: &'static str = "backends";

    fn common(&self) -> &Common {
        &self.common
    }

    fn specimens(&self) -> anyhow::Result<Vec<Specimen>> {
        Ok(chosen(&self.backends))
    }

    fn parameters(&self, names: Parameters) -> Parameters {
        self.common.parameters(self.waiting.parameters(names))
    }

    fn waiting(&self) -> Option<&Waiting> {
        Some(&self.waiting)
    }
}
