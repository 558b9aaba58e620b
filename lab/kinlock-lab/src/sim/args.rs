//! The arguments of `kinlock-lab sim`.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::builder::RangedU64ValueParser;
use kinlock_cli::args::ThreadCounts;
use kinlock_cli::report::Destinations;
use kinlock_core::config::{LocalLimit, Numa};
use kinlock_linux::topology::DomainKind;
use kinlock_sim::workloads::grid::{self, Part};
use kinlock_sim::workloads::recorded::{Recording, Replay};
use kinlock_sim::{Placement, locks, workloads};

use super::results::Report;
use crate::checks::{find, unknown};
use crate::simulation::sampling::{Sampling, seconds};

/// Simulate a workload on a large machine
///
/// The library's own locks run on a simulated cache-coherent NUMA machine. The results show which
/// lock is best on that machine under that load. They depend neither on the machine that runs the
/// simulation nor on how many of its CPUs are used.
///
/// Every lock runs every workload with every number of threads and with several seeds. With the
/// first seed it also runs with other latencies between sockets. Bands show the extremes of all
/// these runs.
#[derive(clap::Args)]
#[command(after_long_help = include_str!("help.txt"))]
pub struct Args {
    /// The machine: the name of one that is built in, or a file that describes one
    #[arg(long, value_name = "NAME|FILE", default_value = "haswell-ex-4s")]
    pub machine: String,
    /// Workloads, separated by commas. grid stands for all its cells, each of which is a workload,
    /// such as grid:400ns/100ns/16; grid-core and grid-wide for parts of them. With @8 behind its
    /// name a cell has 8 locks (up to 1024), of which each operation takes one at random. A file
    /// that `kinlock record` wrote stands for the locks of the recorded program
    #[arg(
        long,
        value_name = "A,B|FILE",
        value_delimiter = ',',
        default_value = "lock2",
        value_parser = workload,
    )]
    pub workload: Vec<Asked>,
    /// For grid, grid-core and grid-wide: run only a fifth of their cells
    #[arg(long)]
    pub quick: bool,
    /// Locks, separated by commas; the baseline is always added. With cid-* workloads name policies
    /// for concurrency IDs, and with invalidation name backends of delayed invalidation [default:
    /// tas,ticket,mcs,qspinlock,cna-v10,cna, or all policies or backends; for grid and for a
    /// recorded program: futex,mutex,mutex-cna]
    #[arg(long, value_name = "A,B", value_delimiter = ',', value_parser = lock)]
    pub locks: Vec<locks::Kind>,
    /// Numbers of threads, 1 to 4096: a list with inclusive ranges, such as 1,2,8 or 1..142
    /// [default: doubling up to the machine's CPUs; for grid-core: 2,16,64; for grid-wide: 2,4,16;
    /// for both: 2,4,16,64]
    #[arg(long, value_name = "LIST")]
    pub threads: Option<ThreadCounts>,
    /// How many of the machine's CPUs may be used, the first ones in the order of --placement
    /// [default: all]
    #[arg(long, value_name = "N", value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    pub cpus: Option<usize>,
    /// Simulated seconds of each run, after a warm-up of a tenth of that. The default is long
    /// enough to give each of four locality domains its local limit of 10 ms; the 65,536 hand-offs
    /// of CNA v10 need 0.3. The cid-* workloads take longer; cid-intermittent ends after its five
    /// runs, whatever this says
    #[arg(
        long,
        value_name = "S",
        default_value_t = 0.05,
        value_parser = seconds,
        allow_negative_numbers = true,
    )]
    pub seconds: f64,
    #[command(flatten)]
    pub sampling: Sampling,
    /// Where threads run: compact, spread, random or scheduled [default: as the workload was
    /// measured]
    #[arg(long, value_name = "HOW", value_parser = placement)]
    pub placement: Option<Placement>,
    /// For cna: whether queues are reordered; auto: if the machine has several locality domains
    #[arg(long, value_name = "auto|on|off", default_value_t = Numa::Auto)]
    pub numa: Numa,
    /// For cna: how long hand-offs may stay in a locality domain while others wait, such as 10ms or
    /// 2^16
    #[arg(long, value_name = "LIMIT", default_value_t = LocalLimit::default())]
    pub local_limit: LocalLimit,
    /// What a locality domain is
    #[arg(long, value_name = "node|llc|socket", default_value_t = DomainKind::Node)]
    pub domain: DomainKind,
    /// The lock that the others are compared with [default: qspinlock, futex, lowest-free, or
    /// invalidation-locked]
    #[arg(long, value_name = "NAME", value_parser = lock)]
    pub baseline: Option<locks::Kind>,
    /// Instead of comparing locks, trace with the first seed what each hand-off of the lock waited
    /// for, and on which line. Takes one workload and one number of threads. The last 1000
    /// hand-offs go to FILE, whose name ends in .csv or .json (- for JSON on stdout), or in .svg
    /// for a picture of the last few
    #[arg(
        long, value_name = "FILE",
        conflicts_with_all = [
            "seeds", "band", "bands", "host_threads", "baseline", "json", "csv", "markdown", "plot",
        ],
    )]
    pub trace_handoffs: Option<PathBuf>,
    #[command(flatten)]
    pub destinations: Destinations<Report>,
    /// No progress bar and no notes
    #[arg(long)]
    pub quiet: bool,
}

/// The meaning of a workload's name on the command line.
#[derive(Clone, Copy, Debug)]
pub enum Asked {
    Kind(workloads::Kind),
    /// All cells of these parts of the grid, or a fifth of them.
    Grid(&'static [Part]),
}

const GRIDS: [&str; 3] = ["grid", "grid-core", "grid-wide"];

fn workload(name: &str) -> Result<Asked, String> {
    if let Some(parts) = grid::parts(name) {
        return Ok(Asked::Grid(parts));
    }
    if Path::new(name).is_file() {
        return recorded(name)
            .map(Asked::Kind)
            .map_err(|error| format!("{error:#}"));
    }
    let known = workloads::ALL.iter().chain(workloads::IDS);
    let known = known.map(|kind| kind.name).chain(GRIDS);
    let found = workloads::by_name(name).map(Asked::Kind);
    found.ok_or_else(|| unknown("workload", known))
}

/// Reads a file of `kinlock record`.
fn recorded(path: &str) -> anyhow::Result<workloads::Kind> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?;
    let recording: Recording = serde_json::from_str(&text)
        .with_context(|| format!("{path} is no recording of `kinlock record`"))?;
    let replay = Replay::new(&recording).with_context(|| path.to_owned())?;
    Ok(replay.workload(path))
}

fn lock(name: &str) -> Result<locks::Kind, String> {
    find("lock", name, locks::all(), |kind| kind.name)
}

fn placement(name: &str) -> Result<Placement, String> {
    find("placement", name, Placement::ALL, |placement| {
        placement.name()
    })
}
