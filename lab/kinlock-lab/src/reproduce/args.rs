//! The arguments.

use kinlock_cli::args::ThreadCounts;
use kinlock_cli::report::Destinations;
use kinlock_sim::published::{TABLES, Table};

use super::results::Report;
use crate::checks::find;
use crate::simulation::sampling::{Sampling, seconds};

/// Show published tables next to simulated ones
///
/// Each table is simulated on its machine. Most locks in them are step-by-step models of the
/// measured locks; the mutex of `invalidation-ours`, the slots of `invalidation-96` and the IDs are
/// our own source, configured like what was measured.
///
/// Some numbers are fitted, the rest is compared. Fitted: simulated throughputs are multiplied by
/// one number per table, so that the first row of the first lock fits, and some parameters of
/// machines and workloads; those are listed below the tables, with what they were fitted to, and
/// which others are published or assumed. Compared: everything else; speed-ups are not scaled. Rows
/// that miss the target are marked, and do not change the exit status.
///
/// Example: kinlock-lab reproduce cna-lock2 --plot lock2.svg
#[derive(clap::Args)]
pub struct Args {
    #[arg(
        value_name = "TABLE",
        value_parser = table,
        help = format!("Which tables: {} [default: all]", names().join(", ")),
    )]
    pub tables: Vec<Table>,
    /// Only rows with these numbers of threads, such as 1,72,142
    #[arg(long, value_name = "LIST")]
    pub threads: Option<ThreadCounts>,
    /// Simulate another machine than the tables': the name of one that is built in, or a file that
    /// describes one
    #[arg(long, value_name = "NAME|FILE")]
    pub machine: Option<String>,
    /// Simulated seconds of each run, after a warm-up of a tenth of that [default: as the table
    /// needs; 0.1 gives each of four sockets its local limit of 2^16 hand-offs]
    #[arg(long, value_name = "S", value_parser = seconds, allow_negative_numbers = true)]
    pub seconds: Option<f64>,
    #[command(flatten)]
    pub sampling: Sampling,
    #[command(flatten)]
    pub destinations: Destinations<Report>,
    /// No progress bar and no notes
    #[arg(long)]
    pub quiet: bool,
}

fn table(name: &str) -> Result<Table, String> {
    find("table", name, TABLES.iter().copied(), |table| table.name)
}

fn names() -> Vec<&'static str> {
    TABLES.iter().map(|table| table.name).collect()
}
