//! What has to be simulated for a table, and what its numbers have to meet.

use anyhow::bail;
use kinlock_sim::published::{IdTable, Judged, Table};
use kinlock_sim::{Machine, Placement, Run, locks, workloads};

use super::args::Wanted;
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
    pub name: &'static str,
    /// Where it was published.
    pub source: &'static str,
    /// What the rows are.
    pub key: &'static str,
    /// The unit of the columns.
    pub unit: &'static str,
    pub machine: Machine,
    pub workload: workloads::Kind,
    /// Simulated seconds per run; the workload decides if there is none.
    pub seconds: Option<f64>,
    /// What is in the columns.
    pub measure: Measure,
    pub columns: Vec<Column>,
    /// The ratios that follow them.
    pub ratios: Vec<Ratio>,
    /// The rows, those with the fewest threads first.
    pub rows: Vec<Row>,
    /// `numbers` or `direction`.
    pub judged: &'static str,
    /// What targets are, after how many of how many.
    pub targets: String,
    /// The published number of the first column and row, to which throughputs are scaled.
    pub scale_to: Option<f64>,
    /// Numbers of threads to simulate, and where they run.
    pub runs: Vec<(usize, Option<Placement>)>,
}

/// What a column shows.
#[derive(Clone, Copy, Debug)]
pub enum Measure {
    /// Throughput: so many of the table's units are an operation per microsecond.
    Throughput(f64),
    /// Nanoseconds per burst under concurrency IDs.
    Bursts,
}

/// A column of a table.
#[derive(Clone, Debug)]
pub struct Column {
    /// What it is called.
    pub name: &'static str,
    /// The lock or policy behind it.
    pub lock: locks::Kind,
    /// What its numbers have to meet.
    pub target: Target,
}

/// One column over another.
#[derive(Clone, Debug)]
pub struct Ratio {
    /// What it is called in JSON.
    pub name: &'static str,
    /// What it is called in tables.
    pub heading: &'static str,
    /// The index of the column that is divided.
    pub of: usize,
    /// The index of the one it is divided by.
    pub by: usize,
    /// What it has to meet.
    pub target: Target,
}

/// What a number has to meet. Numbers that were not published have no target.
#[derive(Clone, Copy, Debug)]
pub enum Target {
    /// Nothing.
    None,
    /// At most so many percent off.
    Within(f64),
    /// At most this.
    AtMost(f64),
    /// The same side of 1, or near it.
    SameAhead,
}

/// A row of a table.
#[derive(Clone, Debug)]
pub struct Row {
    /// What it is called. Rows with the same number of threads are simulated once.
    pub label: String,
    pub threads: usize,
    /// Whether targets are for it.
    pub is_judged: bool,
    /// The published numbers: columns, then ratios.
    pub published: Vec<Option<f64>>,
    /// What we believe is not modelled, if the simulation misses this row.
    pub note: String,
}

impl Plan {
    /// All rows of a table, on its own machine or on `machine`.
    pub fn new(table: Wanted, machine: Option<&str>, seconds: Option<f64>) -> anyhow::Result<Self> {
        match table {
            Wanted::Locks(table) => Self::of_locks(&table, machine, seconds),
            Wanted::Ids(table) => Self::of_ids(&table, machine, seconds),
        }
    }

    fn of_locks(
        table: &Table,
        machine: Option<&str>,
        seconds: Option<f64>,
    ) -> anyhow::Result<Self> {
        let published = table.rows();
        let is_direction = table.judged == Judged::Direction;
        let (column, speedup) = match is_direction {
            true => (Target::None, Target::SameAhead),
            false => (Target::Within(THROUGHPUT), Target::Within(SPEEDUP)),
        };
        let columns = [
            (table.columns[0], table.stock),
            (table.columns[1], table.cna),
        ];
        let mut runs: Vec<_> = published.iter().map(|row| (row.threads, None)).collect();
        runs.dedup();
        Ok(Self {
            name: table.name,
            source: table.source(),
            key: table.key,
            unit: table.unit,
            machine: Machine::load(machine.unwrap_or(table.machine))?,
            workload: workload(table.workload),
            seconds: Some(seconds.unwrap_or(table.seconds)),
            measure: Measure::Throughput(table.per_ops_per_us),
            columns: columns
                .map(|(name, lock)| Column::new(name, lock, column))
                .to_vec(),
            ratios: vec![Ratio {
                name: "speedup",
                heading: "speed-up",
                of: 1,
                by: 0,
                target: speedup,
            }],
            scale_to: Some(published[0].stock),
            rows: published
                .into_iter()
                .map(|row| Row {
                    label: row.label,
                    threads: row.threads,
                    is_judged: is_direction || row.threads >= FROM_THREADS,
                    published: vec![Some(row.stock), Some(row.cna), Some(row.speedup)],
                    note: row.note,
                })
                .collect(),
            judged: if is_direction { "direction" } else { "numbers" },
            targets: match is_direction {
                true => format!(
                    "rows have the same lock ahead, or both within {NO_DIFFERENCE} % (! have not); \
                     the sizes cannot be compared"
                ),
                false => format!(
                    "targets met (! misses): from {FROM_THREADS} threads on, speed-ups within \
                     {SPEEDUP} %, throughput within {THROUGHPUT} %"
                ),
            },
            runs,
        })
    }

    fn of_ids(
        table: &IdTable,
        machine: Option<&str>,
        seconds: Option<f64>,
    ) -> anyhow::Result<Self> {
        let published = table.rows();
        let place = |lock| table.columns.iter().position(|(_, name)| *name == lock);
        let place = |lock| place(lock).expect("each table has the policy");
        let ratio = |name, heading, of, by, target| Ratio {
            name,
            heading,
            of: place(of),
            by: place(by),
            target,
        };
        let at_most = Target::AtMost(1.0 + ID_SLOWDOWN / 100.0);
        let slowdown = ratio(
            "slowdown",
            "over per_cpu",
            "recent-first",
            "per-cpu",
            at_most,
        );
        let speedup = Target::Within(ID_SPEEDUP);
        let speedup = ratio(
            "speedup",
            "speed-up",
            "lowest-free",
            "recent-first",
            speedup,
        );
        let row = |row: kinlock_sim::published::IdRow| {
            let by_cpu = row.published[slowdown.of].zip(row.published[slowdown.by]);
            let ratios = [row.speedup, by_cpu.map(|(a, b)| a / b)];
            Row {
                label: row.label,
                threads: row.threads,
                is_judged: true,
                published: row.published.into_iter().chain(ratios).collect(),
                note: row.note.to_owned(),
            }
        };
        let runs = published
            .iter()
            .map(|row| (row.threads, Some(row.placement)));
        Ok(Self {
            name: table.name,
            source: table.source,
            key: table.key,
            unit: "ns per burst",
            machine: Machine::load(machine.unwrap_or(table.machine))?,
            workload: workload(table.workload),
            seconds,
            measure: Measure::Bursts,
            columns: table
                .columns
                .map(|(name, policy)| Column::new(name, policy, Target::None))
                .to_vec(),
            runs: runs.collect(),
            rows: published.into_iter().map(row).collect(),
            ratios: vec![speedup, slowdown],
            judged: "numbers",
            targets: format!(
                "targets met (! misses): speed-ups over lowest-free within {ID_SPEEDUP} % of the \
                 published, at most {ID_SLOWDOWN} % slower than by CPU"
            ),
            scale_to: None,
        })
    }

    /// Whether there are rows with these numbers of threads.
    pub fn check_has(&self, threads: &[usize]) -> anyhow::Result<()> {
        let has = |wanted| self.runs.iter().any(|(threads, _)| *threads == wanted);
        if let Some(wanted) = threads.iter().find(|&&wanted| !has(wanted)) {
            let known: Vec<_> = self.runs.iter().map(|(n, _)| n.to_string()).collect();
            let (name, known) = (self.name, known.join(","));
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
            for column in &self.columns {
                let run = Run {
                    // Workloads with concurrency IDs know how long they take.
                    seconds: self.seconds.unwrap_or(0.0),
                    placement,
                    ..Run::new(self.machine.clone(), self.workload, column.lock, threads)
                };
                jobs.extend(Job::variants(&run, &self.machine, variants));
            }
        }
        jobs
    }
}

impl Column {
    fn new(name: &'static str, lock: &str, target: Target) -> Self {
        let lock = locks::by_name(lock).expect("tables name known locks");
        Self { name, lock, target }
    }
}

impl Measure {
    /// What it is of a sample, in operations per microsecond or nanoseconds per burst.
    pub fn of(self, sample: &Sample) -> f64 {
        match self {
            Self::Throughput(_) => sample.ops_per_us,
            Self::Bursts => sample.ids.first().map_or(0.0, |ids| ids.ns_per_burst),
        }
    }

    /// How many of the table's units that is.
    pub fn unit(self) -> f64 {
        match self {
            Self::Throughput(per_ops_per_us) => per_ops_per_us,
            Self::Bursts => 1.0,
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

fn workload(name: &str) -> workloads::Kind {
    workloads::by_name(name).expect("tables name known workloads")
}
