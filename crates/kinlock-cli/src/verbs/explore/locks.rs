//! `kinlock explore locks`: spinlocks, mutexes, condition variables.

use super::settings::{Common, name};
use kinlock_verify::explore::locks::Specimen;

/// Look for schedules in which a lock, a mutex or a condition variable fails.
///
/// The library's locks run on a simulated machine: threads are preempted before any memory access, interrupted by
/// handlers, woken for no reason; machine, threads and knobs are drawn from a seed. A schedule that fails is shrunk to the
/// few disruptions it needs, and printed with a word for --replay. Exit status: 0 all checks passed, 1 a check failed,
/// 2 bad input, 3 a lock that is broken on purpose was not caught by the check meant for it.
///
/// `--locks busted` explores locks that are broken on purpose. Each must be caught, so that the exit status is 1; it is explored until then, with ten times as many schedules at most.
///
/// Values are sequentially consistent: errors of memory ordering are not found.
///
/// Example: kinlock explore --locks cna,fifo --schedules 100000
#[derive(clap::Args)]
pub struct Args {
    /// Locks, separated by commas; `mutex` and `condvar` are among them [default: all of ours; `busted`: all that are broken on purpose]
    #[arg(long, value_name = "A,B", value_delimiter = ',', value_parser = name::<Specimen>, conflicts_with = "replay")]
    pub locks: Vec<String>,
    #[command(flatten)]
    pub common: Common,
}
