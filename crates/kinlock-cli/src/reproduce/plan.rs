//! What has to be simulated for a table.

use anyhow::bail;
use kinlock_sim::published::{self, IdTable, Row, Table};
use kinlock_sim::{Machine, Run, locks, workloads};

use crate::sim::flags::Variant;
use crate::sim::pool::Job;

/// A table, and the machine to simulate it on.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The table.
    pub table: Table,
    /// Its rows: the first, which the scale comes from, and those asked for.
    pub rows: Vec<Row>,
    /// The machine.
    pub machine: Machine,
    /// The workload.
    pub workload: workloads::Kind,
    /// The locks of the two columns.
    pub locks: [locks::Kind; 2],
}

impl Plan {
    /// For the rows of `table` with these numbers of threads, all if there are none, on its own machine or on `machine`.
    ///
    /// # Errors
    /// If the machine is none.
    pub fn new(table: Table, threads: &[usize], machine: Option<&str>) -> anyhow::Result<Self> {
        let mut rows = table.rows();
        let fewest = rows[0].threads;
        rows.retain(|row| {
            threads.is_empty() || row.threads == fewest || threads.contains(&row.threads)
        });
        let lock = |name| locks::by_name(name).expect("tables name known locks");
        Ok(Self {
            rows,
            machine: Machine::load(machine.unwrap_or(table.machine))?,
            workload: workloads::by_name(table.workload).expect("tables name known workloads"),
            locks: [lock(table.stock), lock(table.cna)],
            table,
        })
    }

    /// Whether the table has rows with these numbers of threads.
    ///
    /// # Errors
    /// If it has not; names those that it has.
    pub fn check_has(&self, threads: &[usize]) -> anyhow::Result<()> {
        let mut all: Vec<_> = self.table.rows().iter().map(|row| row.threads).collect();
        all.dedup();
        if let Some(wanted) = threads.iter().find(|wanted| !all.contains(wanted)) {
            let known: Vec<_> = all.iter().map(usize::to_string).collect();
            let (name, known) = (self.table.name, known.join(","));
            bail!("{name} has no row with {wanted} threads; it has {known}");
        }
        Ok(())
    }

    /// The numbers of threads to simulate, each once.
    pub fn threads(&self) -> Vec<usize> {
        let mut threads: Vec<_> = self.rows.iter().map(|row| row.threads).collect();
        threads.dedup();
        threads
    }

    /// All simulations: by number of threads, lock and variant.
    pub fn jobs(&self, variants: &[Variant], seconds: f64) -> Vec<Job> {
        let mut jobs = Vec::new();
        for threads in self.threads() {
            for lock in self.locks {
                for &variant in variants {
                    let machine = self.machine.clone();
                    let machine = machine.with_remote_latency(variant.remote_factor);
                    let run = Run {
                        seconds,
                        seed: variant.seed,
                        ..Run::new(machine, self.workload, lock, threads)
                    };
                    jobs.push(Job { run, variant });
                }
            }
        }
        jobs
    }
}

/// A table of either kind.
#[derive(Clone, Copy, Debug)]
pub enum Wanted {
    /// Two locks under the same load.
    Locks(Table),
    /// Policies for concurrency IDs.
    Ids(IdTable),
}

impl Wanted {
    /// All tables.
    pub fn all() -> impl Iterator<Item = Wanted> {
        let ids = published::ID_TABLES.iter().copied().map(Wanted::Ids);
        let locks = published::TABLES.iter().copied().map(Wanted::Locks);
        locks.chain(ids)
    }

    /// Its name.
    pub fn name(&self) -> &'static str {
        match self {
            Wanted::Locks(table) => table.name,
            Wanted::Ids(table) => table.name,
        }
    }
}

/// The table called `name`.
///
/// # Errors
/// If there is none; names the known ones.
pub fn table(name: &str) -> Result<Wanted, String> {
    let found = Wanted::all().find(|table| table.name() == name);
    found.ok_or_else(|| format!("no such table; known: {}", known_tables()))
}

/// The names of all tables.
pub fn known_tables() -> String {
    let names: Vec<_> = Wanted::all().map(|table| table.name()).collect();
    names.join(", ")
}
