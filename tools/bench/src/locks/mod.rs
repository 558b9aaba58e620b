//! The suite `locks`: our locks against their peers.
//!
//! A lock has in each round two [slices](round): a timed one, and an instrumented one for waits and
//! hand-offs.

mod contenders;
mod flags;
mod grid;
mod meeting;
mod plot;
mod readers;
mod report;
mod round;
mod trace;
mod work_loop;
mod workloads;

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::bail;
use kinlock_cli::args::{Named, named, with_baseline};
use kinlock_cli::outcome::Outcome;
use kinlock_measure::interrupt::{self, State};
use serde_json::{Value, json};

use self::contenders::LockName;
use self::report::Detail;
use self::round::{Measure, Watched};
use self::workloads::grid::{Cell, Part};
use self::workloads::{WorkloadName, needs_readers, parts_of_grid};
use super::harness::background::Background;
use super::harness::placement;
use super::harness::run::Common;
use super::harness::slice::{self, Sample};
use super::harness::suite::{Due, Entry, Plan, Suite, Unavailable, cpus};

/// Measure our locks against their peers on this machine.
///
/// Every lock runs every workload with every number of threads. In each round all locks run once,
/// in random order. Throughput is compared with that of the baseline in the same round, so that
/// drift of the machine cancels. If each thread can have a CPU of its own, threads are bound to
/// CPUs, spread over the locality domains.
///
/// A lock has in each round two slices. In the timed slice threads only count their operations. In
/// the instrumented slice, half as long, they read a clock around every acquisition and note which
/// thread held the lock before. The acquisition times and the hand-offs come from that slice, the
/// throughput does not.
///
/// SIGINT (Ctrl-C), SIGTERM, SIGHUP and SIGQUIT end a run early, with a report of its complete
/// rounds: one under way has a second to complete. A second signal ends the process at once, unless
/// it comes within 0.3 s. Exit status: 0 done, 2 bad input, 128 and the signal's number (130
/// SIGINT).
///
/// Example: kinlock bench --locks kinlock-mutex,parking-lot --workload counter --threads 1..8
#[derive(clap::Args)]
#[command(after_long_help = AFTER_HELP)]
pub struct Args {
    /// Locks to measure, of those listed below, separated by commas; the baseline is always
    /// measured too [default: those without a +, but those in strict order only up to 16 threads
    /// per CPU; on the grid the mutexes without a +]
    #[arg(long, value_name = "A,B", value_delimiter = ',', value_parser = named::<LockName>)]
    locks: Vec<LockName>,
    /// The lock that the others are compared with
    #[arg(long, value_name = "NAME", default_value = "std-mutex", value_parser = named::<LockName>)]
    baseline: LockName,
    /// For readrandom: an existing LevelDB-format database, which nobody else uses during the run;
    /// it is not changed [default: one that is made once, in the user's cache folder]
    #[arg(long, value_name = "DIR")]
    db: Option<PathBuf>,
    /// For grid, grid-core and grid-wide: a fifth of their cells, always the same
    #[arg(long)]
    quick: bool,
    /// Background load during the run; nice and idle show how a waiter that hardly runs affects the
    /// others' waits: its own operations, waits and CPU time do not count
    #[arg(long, value_enum, value_name = "KIND")]
    background: Option<Background>,
    #[command(flatten)]
    common: Common<Locks>,
}

/// The text after the options in `--help`.
pub const AFTER_HELP: &str = include_str!("help.txt");

pub fn run(args: &Args) -> anyhow::Result<Outcome> {
    let locks = with_baseline(&args.locks, args.baseline)?;
    args.common.run(Locks {
        leaves_none_out: !args.locks.is_empty(),
        db: args.db.clone(),
        quick: args.quick,
        background: args.background,
        ..Locks::of(locks, args.baseline)
    })
}

pub struct Locks {
    /// All locks, including the baseline.
    locks: Vec<LockName>,
    baseline: LockName,
    /// Whether to measure locks also in cells in which they collapse.
    leaves_none_out: bool,
    /// The database of `readrandom`, if it is not the command's own.
    db: Option<PathBuf>,
    /// Whether the grid has a fifth of its cells.
    quick: bool,
    background: Option<Background>,
    prepared: Vec<(WorkloadName, Box<dyn Measure>)>,
}

/// The locks that are compared on the grid unless the user names some.
const ON_GRID: [LockName; 5] = [
    LockName::KinlockMutex,
    LockName::StdMutex,
    LockName::ParkingLot,
    LockName::PthreadMutex,
    LockName::Usync,
];

/// From this number of threads per CPU on, locks in strict order are left out unless they are asked
/// for. A hand-off then takes milliseconds for every thread in the queue, and every thread has to
/// get the lock once more before it stops.
const TOO_MANY: usize = 16;

impl Locks {
    /// The suite with these locks, and defaults for everything else.
    fn of(locks: Vec<LockName>, baseline: LockName) -> Self {
        Self {
            locks,
            baseline,
            leaves_none_out: false,
            db: None,
            quick: false,
            background: None,
            prepared: Vec::new(),
        }
    }

    /// Whether a lock is left out because stopping its threads would take minutes.
    fn leaves_out(&self, lock: LockName, threads: usize) -> bool {
        let wanted = self.leaves_none_out || lock == self.baseline;
        !wanted && lock.is_strict_fifo() && threads > TOO_MANY * cpus()
    }

    fn has_thread_in_background(&self) -> bool {
        self.background.is_some_and(Background::is_thread)
    }

    /// Whether a lock is left out since the workload is of the grid and the lock is not.
    fn is_off_grid(&self, lock: LockName, workload: WorkloadName) -> bool {
        let wanted = self.leaves_none_out || lock == self.baseline;
        !wanted && matches!(workload, WorkloadName::Cell(_)) && !ON_GRID.contains(&lock)
    }
}

impl Suite for Locks {
    const NAME: &'static str = "locks";
    type Workload = WorkloadName;
    type Subject = LockName;
    type Extra = Watched;
    type Detail = Detail;

    fn workloads(&self, asked: &[WorkloadName]) -> anyhow::Result<Vec<WorkloadName>> {
        let mut workloads = asked.to_vec();
        if workloads.is_empty() {
            workloads = WorkloadName::all();
            // The workload is left out if no other lock has a condition variable to compare with.
            let mut others = self.locks.iter().filter(|&&lock| lock != self.baseline);
            let comparable = self.baseline.has_condvar() && others.any(|lock| lock.has_condvar());
            let comparable = comparable && !self.has_thread_in_background();
            workloads.retain(|&workload| comparable || Self::own_threads(workload).is_none());
            workloads.retain(|&workload| workloads::is_usual(workload));
        }
        let mut parts = workloads.iter().filter_map(|&one| parts_of_grid(one));
        if self.quick && parts.next().is_none() {
            bail!(
                "--quick is for the workloads grid, grid-core and grid-wide, which --workload \
                 leaves out"
            );
        }
        let cells = |workload| match parts_of_grid(workload) {
            Some(parts) => {
                let cells = Cell::chosen(parts, self.quick).into_iter();
                cells.map(WorkloadName::Cell).collect()
            }
            None => vec![workload],
        };
        let workloads: Vec<_> = workloads.into_iter().flat_map(cells).collect();
        let meeting = workloads
            .iter()
            .find(|&&workload| Self::own_threads(workload).is_some());
        if let Some(workload) = meeting.filter(|_| !self.baseline.has_condvar()) {
            let known = LockName::all()
                .into_iter()
                .filter(|lock| lock.has_condvar());
            bail!(
                "{} needs a condition variable, which the baseline {} has not; those that have \
                 one: {}",
                workload.name(),
                self.baseline.name(),
                known.map(LockName::name).collect::<Vec<_>>().join(", ")
            );
        }
        if let Some(workload) = meeting.filter(|_| self.has_thread_in_background()) {
            bail!(
                "--background nice and idle add a thread to those of a workload, and {} has its \
                 own: name others by --workload",
                workload.name()
            );
        }
        let reading = workloads.iter().find(|&&workload| needs_readers(workload));
        if let Some(workload) = reading.filter(|_| !self.baseline.has_readers()) {
            bail!(
                "{} needs a reader-writer lock, which the library of the baseline {} has not",
                workload.name(),
                self.baseline.name()
            );
        }
        if self.db.is_some() && !workloads.contains(&WorkloadName::ReadRandom) {
            bail!("--db is for the workload readrandom, which --workload leaves out");
        }
        Ok(workloads)
    }

    fn subjects(&self, workload: WorkloadName, threads: usize) -> Vec<LockName> {
        let needs_condvar = Self::own_threads(workload).is_some();
        let mut locks = self.locks.clone();
        locks.retain(|&lock| {
            !self.leaves_out(lock, threads)
                && !self.is_off_grid(lock, workload)
                && (lock.has_condvar() || !needs_condvar)
                && (lock.has_readers() || !needs_readers(workload))
        });
        locks
    }

    fn name(lock: &LockName) -> String {
        lock.name().to_owned()
    }

    fn baseline(&self, _: WorkloadName) -> &'static str {
        self.baseline.name()
    }

    fn own_threads(workload: WorkloadName) -> Option<usize> {
        workloads::own_threads(workload)
    }

    fn background(&self) -> Option<Background> {
        self.background
    }

    fn usual_threads_in(workload: WorkloadName) -> Option<Vec<usize>> {
        match workload {
            WorkloadName::Cell(cell) => Some(cell.part().threads().to_vec()),
            _ => None,
        }
    }

    /// With many threads, locks differ in how they treat a thread over many time slices. And the
    /// wide cells have only a few thousand operations per second.
    fn least_seconds(workload: WorkloadName, threads: usize) -> f64 {
        match workload {
            WorkloadName::Cell(cell) if threads >= 16 || cell.part() == Part::Wide => 0.5,
            WorkloadName::Cell(_) => 0.1,
            _ => 0.0,
        }
    }

    /// The timed slice, the instrumented slice and two warm-ups.
    fn turn_seconds(&self, _: WorkloadName, seconds: f64) -> f64 {
        (1.0 + 0.5 + 2.0 * 0.1) * seconds + 0.005
    }

    fn prepare(&mut self, plan: &Plan<Self>) -> anyhow::Result<()> {
        for &name in &plan.workloads {
            if interrupt::state() == State::Going {
                let work = workloads::prepare(name, self.db.as_deref())?;
                self.prepared.push((name, work));
            }
        }
        Ok(())
    }

    fn measure(&mut self, due: Due<'_, Self>) -> anyhow::Result<Sample<Watched>> {
        let mut prepared = self.prepared.iter_mut();
        let work = prepared.find(|(name, _)| *name == due.workload);
        let (_, work) = work.expect("no workload runs before all are prepared");
        work.round(&due)
    }

    fn round_detail(own: &Sample<Watched>, baseline: &Sample<Watched>) -> Value {
        json!({
            "acquire_p999_ns": report::p999(own),
            "acquire_p999_ratio": report::tail_ratio(own, baseline),
            "acquire_max_ns": own.extra.acquire.max(),
        })
    }

    fn detail(
        &self,
        _: &LockName,
        own: &[&Sample<Watched>],
        baseline: &[&Sample<Watched>],
    ) -> Detail {
        Detail::new(own, baseline, self.baseline.name())
    }

    fn parameters(&self, plan: &Plan<Self>) -> Value {
        let cells = plan.cells(self).into_iter();
        // Empty if threads were not bound.
        let cpus = cells.map(|(_, threads, _)| (threads, placement::assign(threads)));
        json!({
            "instrumented_seconds": plan.seconds / 2.0,
            "warm_up_seconds": slice::warm_up(plan.seconds),
            // The time of one iteration of the loop that stands for work.
            "work_loop_ns": work_loop::ns_per_iteration(),
            "cpus_by_threads": cpus.collect::<BTreeMap<_, _>>(),
        })
    }

    fn conclude(&self, _: &Plan<Self>, results: &mut [Entry<Self>]) {
        flags::raise(results);
    }

    fn summary(results: &[Entry<Self>]) -> BTreeMap<&'static str, Value> {
        let standings = grid::standings(results);
        match standings.is_empty() {
            true => BTreeMap::new(),
            false => BTreeMap::from([("grid", json!(standings))]),
        }
    }

    fn warnings(&self, plan: &Plan<Self>, results: &[Entry<Self>]) -> Vec<String> {
        flags::warnings(self, plan, results)
    }

    fn unavailable() -> Vec<Unavailable> {
        Unavailable::all::<LockName>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_has_every_lock_and_every_workload() {
        let begins = |line: &str, name| {
            let mut words = line.split_whitespace().take(3);
            words.any(|word| word.trim_end_matches(',') == name)
        };
        let has = |name| AFTER_HELP.lines().any(|line| begins(line, name));
        for lock in LockName::all() {
            assert!(has(lock.name()), "{}", lock.name());
        }
        for workload in WorkloadName::all() {
            assert!(has(workload.name()), "{}", workload.name());
        }
    }
}
