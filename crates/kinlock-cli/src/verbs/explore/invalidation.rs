//! `kinlock explore invalidation`: sections of delayed invalidation.

use super::settings::{Common, name};
use kinlock_verify::explore::invalidation::Specimen;

/// Look for schedules in which delayed invalidation fails: a wait that ends too early or never, a generation that goes back.
///
/// The library's domains run on a simulated machine: threads begin and end sections, tag, and wait for tags; they are preempted before any memory access and woken for no reason; machine and threads are drawn from a seed. A
/// schedule that fails is shrunk to the few disruptions it needs, and printed with a word for --replay. Exit status: 0 all checks passed, 1 a check failed, 2 bad input, 3 a domain that is broken on purpose was not caught by the
/// check meant for it.
///
/// `--backends busted` explores domains that are broken on purpose. Each must be caught, so that the exit status is 1; it is explored until then, with ten times as many schedules at most. `busted-mark` is correct but starts over too often: 2000 schedules tell together, and there is none to replay.
///
/// Values are sequentially consistent: errors of memory ordering are not found. The backend `wide` is assembly, and so not for the simulated machine; it is the same list as `packed`.
///
/// Example: kinlock explore invalidation --backends packed --schedules 100000
#[derive(clap::Args)]
pub struct Args {
    /// Backends, separated by commas [default: all of ours but `wide`; `busted`: all that are broken on purpose]
    #[arg(long, visible_alias = "locks", value_name = "A,B", value_delimiter = ',', value_parser = name::<Specimen>, conflicts_with = "replay")]
    pub backends: Vec<String>,
    #[command(flatten)]
    pub common: Common,
}
