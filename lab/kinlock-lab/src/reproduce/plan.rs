//! What has to be simulated for a table, and what its numbers have to meet.

use anyhow::bail;
use kinlock_sim::published::{Judged, Measure, Row, Table};
use kinlock_sim::{Machine, Placement, Run, locks, machine, workloads};

use crate::simulation::check;
use crate::simulation::pool::Job;
use crate::simulation::sample::Sample;
use crate::simulation::sampling::Variant;

/// From how many threads on numbers of two locks have targets.
const FROM_THREADS: usize = 8;
/// How far a throughput may be off, in percent.
const THROUGHPUT: f64 = 25.0;
/// How far a speed-up may be off, in percent.
const SPEEDUP: f64 = 10.0;
/// Speed-ups this near to 1, in percent, are no difference.
const NO_DIFFERENCE: f64 = 1.0;
/// How far the speed-up of IDs over lowest-free may be off, in percent.
const ID_SPEEDUP: f64 = 25.0;
/// How much slower than by CPU cache-local IDs may be, in percent.
const ID_SLOWDOWN: f64 = 15.0;

/// A table, and the machine to simulate it on.
#[derive(Clone, Debug)]
pub struct Plan {
    pub table: Table,
    pub machine: Machine,
    pub workload: workloads::Kind,
    /// Simulated seconds per run; the workload decides if there is none.
    pub seconds: Option<f64>,
    /// The locks behind the columns.
    pub locks: Vec<locks::Kind>,
    /// The rows, those with the fewest threads first.
    pub rows: Vec<Row>,
    /// What the numbers of a row have to meet: columns, then ratios.
    pub targets: Vec<Target>,
    /// Rows with fewer threads have no targets.
    pub from_threads: usize,
    /// What targets are, after how many of how many.
    pub targets_are: String,
    /// The published number of the first column and row, to which throughputs are scaled.
    pub scale_to: Option<f64>,
    /// Numbers of threads to simulate, and where they run.
    pub runs: Vec<(usize, Option<Placement>)>,
}

/// What a number has to meet. Numbers that were not published have no target.
#[derive(Clone, Copy, Debug)]
pub enum Target {
    /// Nothing.
    None,
    /// At most this many percent off the published number.
    Within(f64),
    /// At most this number, whatever was published.
    AtMost(f64),
    /// The same side of 1, or near it.
    SameAhead,
}

impl Plan {
    /// All rows of a table, on its own machine or on `machine`. It is an error if there is no such
    /// machine.
    pub fn new(table: Table, machine: Option<&str>, seconds: Option<f64>) -> anyhow::Result<Self> {
        let rows = table.rows();
        let mut runs: Vec<_> = rows
            .iter()
            .map(|row| (row.threads, row.placement))
            .collect();
        runs.dedup();
        let workload = workloads::by_name(table.workload);
        let locks = table.columns.iter().map(|(_, lock)| locks::by_name(lock));
        let locks: Option<Vec<_>> = locks.collect();
        let (targets, from_threads, targets_are) = targets(&table);
        Ok(Self {
            machine: machine::load(machine.unwrap_or(table.machine))?,
            workload: workload.expect("tables name known workloads"),
            seconds: seconds.or(table.seconds),
            locks: locks.expect("tables name known locks"),
            targets,
            from_threads,
            targets_are,
            scale_to: match table.measure {
                Measure::Throughput(_) => rows[0].published[0],
                Measure::Bursts => None,
            },
            rows,
            table,
            runs,
        })
    }

    /// Whether there are rows with these numbers of threads.
    pub fn check_has(&self, threads: &[usize]) -> anyhow::Result<()> {
        let has = |wanted| self.runs.iter().any(|(threads, _)| *threads == wanted);
        if let Some(wanted) = threads.iter().find(|&&wanted| !has(wanted)) {
            let known: Vec<_> = self.runs.iter().map(|(n, _)| n.to_string()).collect();
            let (name, known) = (self.table.name, known.join(","));
            bail!("{name} has no row with {wanted} threads; it has {known}");
        }
        Ok(())
    }

    /// Leaves the rows with these numbers of threads, all if there are none. The row that the scale
    /// comes from is simulated nevertheless.
    pub fn keep(&mut self, threads: &[usize]) {
        if threads.is_empty() {
            return;
        }
        let first = self.scale_to.map(|_| self.rows[0].threads);
        self.rows.retain(|row| threads.contains(&row.threads));
        let is_run = |n: &usize| threads.contains(n) || first == Some(*n);
        self.runs.retain(|(threads, _)| is_run(threads));
    }

    /// Whether the machine can run it.
    pub fn check_fits(&self) -> anyhow::Result<()> {
        let threads: Vec<_> = self.runs.iter().map(|(threads, _)| *threads).collect();
        check(&self.workload, &[], self.machine.shape.cpus(), &threads)
    }

    /// All simulations: by number of threads, lock and variant.
    pub fn jobs(&self, variants: &[Variant]) -> Vec<Job> {
        let mut jobs = Vec::new();
        for &(threads, placement) in &self.runs {
            for &lock in &self.locks {
                let run = Run {
                    // Workloads with concurrency IDs know how long they take.
                    seconds: self.seconds.unwrap_or(0.0),
                    placement,
                    ..Run::new(self.machine.clone(), self.workload, lock, threads)
                };
                jobs.extend(Job::variants(&run, &self.machine, variants));
            }
        }
        jobs
    }

    /// What a column shows of a sample, in operations per microsecond or nanoseconds per burst.
    pub fn value(&self, sample: &Sample) -> f64 {
        match self.table.measure {
            Measure::Throughput(_) => sample.ops_per_us,
            Measure::Bursts => sample.ids.first().map_or(0.0, |ids| ids.ns_per_burst),
        }
    }

    /// How many of the table's units that is.
    pub fn unit(&self) -> f64 {
        match self.table.measure {
            Measure::Throughput(per_ops_per_us) => per_ops_per_us,
            Measure::Bursts => 1.0,
        }
    }
}

/// The targets of the numbers of a row, from how many threads on, and what they are in words.
fn targets(table: &Table) -> (Vec<Target>, usize, String) {
    use Target::{AtMost, None, SameAhead, Within};
    match (table.measure, table.judged) {
        (Measure::Bursts, _) => {
            let mut targets = vec![None; table.columns.len()];
            targets.extend([Within(ID_SPEEDUP), AtMost(1.0 + ID_SLOWDOWN / 100.0)]);
            let are = format!(
                "targets met (! misses): speed-ups over lowest-free within {ID_SPEEDUP} % of the \
                 published, at most {ID_SLOWDOWN} % slower than by CPU"
            );
            (targets, 0, are)
        }
        (_, Judged::Numbers) => {
            let are = format!(
                "targets met (! misses): from {FROM_THREADS} threads on, speed-ups within \
                 {SPEEDUP} %, throughput within {THROUGHPUT} %"
            );
            let throughput = Within(THROUGHPUT);
            let targets = vec![throughput, throughput, Within(SPEEDUP)];
            (targets, FROM_THREADS, are)
        }
        (_, Judged::Direction) => {
            let are = format!(
                "rows have the same lock ahead, or both within {NO_DIFFERENCE} % (! have not); \
                 the sizes cannot be compared"
            );
            (vec![None, None, SameAhead], 0, are)
        }
    }
}

impl Target {
    /// Whether a number meets it; none if there is nothing to meet.
    pub fn is_met(self, published: Option<f64>, simulated: f64) -> Option<bool> {
        let published = published?;
        match self {
            Self::None => None,
            Self::Within(percent) => Some(error_pct(published, simulated).abs() <= percent),
            Self::AtMost(most) => Some(simulated <= most),
            Self::SameAhead => Some(ahead(published) == ahead(simulated)),
        }
    }
}

/// How far a number is off, in percent of the published one.
pub fn error_pct(published: f64, simulated: f64) -> f64 {
    100.0 * (simulated / published - 1.0)
}

/// Which lock is ahead: -1 the first, 1 the second, 0 neither.
fn ahead(speedup: f64) -> i8 {
    let percent = 100.0 * (speedup - 1.0);
    (percent > NO_DIFFERENCE) as i8 - (percent < -NO_DIFFERENCE) as i8
}
