//! `kinlock explore ids`: who gets which concurrency ID.

use super::settings::{Common, name};
use kinlock_verify::explore::ids::Specimen;

/// Look for schedules in which concurrency IDs are shared, lost, too large, or not to be had.
///
/// The library's allocator, which is behind all leases, runs on a simulated machine: threads take and give back IDs on changing CPUs, reclaim old ones, come and go, and are preempted before any memory access. (Restartable
/// sequences are for real machines: `kinlock torture ids`.) A schedule that fails is shrunk to the few preemptions it needs, and printed with a word for --replay. Exit status: 0 all checks passed, 1 a check failed,
/// 2 bad input, 3 an allocator that is broken on purpose was not caught by the check meant for it.
///
/// `--policies busted` explores allocators that are broken on purpose. Each must be caught, so that the exit status is 1; it is explored until then, with ten times as many schedules at most. The rarest, `busted-growth`, takes thousands.
///
/// `-impatient` stands for the same policy with a fast path that is closed after one vain attempt, so that the slow paths meet more often.
///
/// Values are sequentially consistent: errors of memory ordering are not found.
///
/// Example: kinlock explore ids --policies recent-first --schedules 100000
#[derive(clap::Args)]
pub struct Args {
    /// Policies, separated by commas [default: all, and all impatient; `busted`: all that are broken on purpose]
    #[arg(long, visible_alias = "ids", value_name = "A,B", value_delimiter = ',', value_parser = name::<Specimen>, conflicts_with = "replay")]
    pub policies: Vec<String>,
    #[command(flatten)]
    pub common: Common,
}
