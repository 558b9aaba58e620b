//! The shape of the JSON report. Field names are a contract: add, never rename.

use kinlock_sim::published::Judged;
use serde::ser::SerializeSeq;
use serde::{Serialize, Serializer};

use super::ids::IdTableEntry;
use super::plan::Plan;
use crate::sim::flags::Variant;
use crate::sim::provenance::{LockEntry, MachineEntry, WorkloadEntry};
use crate::sim::results::{Band, over};
use crate::sim::sample::Sample;

/// From how many threads on rows are judged.
pub const JUDGED_FROM: usize = 8;
/// How far a speed-up may be off, in percent.
pub const SPEEDUP_TARGET: f64 = 10.0;
/// How far a throughput may be off, in percent.
pub const THROUGHPUT_TARGET: f64 = 25.0;

/// Speed-ups this near to 1, in percent, are no difference.
pub const NO_DIFFERENCE: f64 = 1.0;
/// The third column.
pub const SPEEDUP: &str = "speedup";

/// Which lock is ahead: -1 the first, 1 the second, 0 neither.
fn direction(speedup: f64) -> i8 {
    let percent = 100.0 * (speedup - 1.0);
    (percent > NO_DIFFERENCE) as i8 - (percent < -NO_DIFFERENCE) as i8
}

/// All tables. All but the fields with `host` in their names are the same on every machine.
#[derive(Debug, Serialize)]
pub struct Report {
    /// `reproduced`.
    pub kind: &'static str,
    /// Version of the command.
    pub version: &'static str,
    /// Commit that it was built from, if it was built in a checkout.
    pub commit: Option<&'static str>,
    /// Simulated seconds per run, after the warm-up, if all tables have the same.
    pub seconds: Option<f64>,
    /// The seeds.
    pub seeds: Vec<u64>,
    /// Simulations at a time.
    pub host_threads: usize,
    /// What all simulations took, one after the other.
    pub host_seconds: f64,
    /// The tables.
    pub tables: Tables,
}

/// Tables of both kinds; written as one list.
#[derive(Debug)]
pub struct Tables {
    /// Two locks under the same load.
    pub locks: Vec<TableEntry>,
    /// Policies for concurrency IDs.
    pub ids: Vec<IdTableEntry>,
}

impl Serialize for Tables {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(Some(self.locks.len() + self.ids.len()))?;
        for table in &self.locks {
            list.serialize_element(table)?;
        }
        for table in &self.ids {
            list.serialize_element(table)?;
        }
        list.end()
    }
}

/// One table.
#[derive(Debug, Serialize)]
pub struct TableEntry {
    /// Its name.
    pub table: &'static str,
    /// Where it was published.
    pub source: &'static str,
    /// The machine that was simulated.
    pub machine: MachineEntry,
    /// The workload that was simulated.
    pub workload: WorkloadEntry,
    /// Simulated seconds per run, after the warm-up.
    pub seconds: f64,
    /// What the rows are: `threads`, or what their labels say.
    pub row_key: &'static str,
    /// What the two columns are called.
    pub columns: [&'static str; 2],
    /// `numbers` or `direction`.
    pub judged: &'static str,
    /// The lock simulated for the first column.
    pub stock: LockEntry,
    /// The lock simulated for the second one.
    pub cna: LockEntry,
    /// The unit of both.
    pub unit: &'static str,
    /// What every lock ran with, in order.
    pub variants: Vec<Variant>,
    /// What all simulated throughputs of the table were multiplied by: published over simulated, first column, first row.
    pub scale: f64,
    /// How many targets there are.
    pub targets: usize,
    /// How many of them are met.
    pub met: usize,
    /// Three per published row: both columns and `speedup`.
    pub rows: Vec<RowEntry>,
}

/// One published number and its simulated counterpart.
#[derive(Debug, Serialize)]
pub struct RowEntry {
    /// Number of threads.
    pub key: usize,
    /// What the row is called.
    pub label: String,
    /// The name of the column, or `speedup`.
    pub column: &'static str,
    /// The published number.
    pub published: f64,
    /// The simulated one: throughputs are scaled.
    pub simulated: Band,
    /// How far the simulated median is off, in percent of the published number.
    pub error_pct: f64,
    /// Whether that is within the target; `null` where there is none.
    pub pass: Option<bool>,
    /// What we believe is not modelled, if it is not within the target.
    pub note: String,
}

impl TableEntry {
    /// Of all samples of a plan, in order. `shown` are the numbers of threads to keep, all if there are none.
    pub fn new(
        plan: &Plan,
        variants: &[Variant],
        samples: &[Sample],
        shown: &[usize],
        seconds: f64,
    ) -> Self {
        let table = &plan.table;
        let throughput = |samples: &[Sample]| {
            let band = Band::of(samples, |sample| sample.ops_per_us);
            band.times(table.per_ops_per_us)
        };
        let first = throughput(&samples[..variants.len()]);
        let scale = over(plan.rows[0].stock, first.median);

        let mut rows = Vec::new();
        let threads = plan.threads();
        let by_threads: Vec<_> = samples.chunks(2 * variants.len()).collect();
        for row in &plan.rows {
            let Some(index) = threads.iter().position(|&threads| threads == row.threads) else {
                continue;
            };
            if !shown.is_empty() && !shown.contains(&row.threads) {
                continue;
            }
            let samples = by_threads[index];
            let (stock, cna) = samples.split_at(variants.len());
            let pairs: Vec<_> = stock.iter().zip(cna).collect();
            let speedup = Band::of_pairs(
                &pairs,
                |(stock, cna)| over(cna.ops_per_us, stock.ops_per_us),
                |(stock, _)| stock,
            );
            let entry = |column, published: f64, simulated: Band, target: f64| {
                let error_pct = 100.0 * (simulated.median / published - 1.0);
                let pass = match table.judged {
                    Judged::Numbers => {
                        let is_judged = row.threads >= JUDGED_FROM;
                        is_judged.then_some(error_pct.abs() <= target)
                    }
                    Judged::Direction => (column == SPEEDUP)
                        .then(|| direction(published) == direction(simulated.median)),
                };
                let is_missed = pass == Some(false);
                RowEntry {
                    key: row.threads,
                    label: row.label.clone(),
                    column,
                    published,
                    simulated,
                    error_pct,
                    pass,
                    note: if is_missed {
                        row.note.clone()
                    } else {
                        String::new()
                    },
                }
            };
            let scaled = |samples| throughput(samples).times(scale);
            let [first, second] = table.columns;
            rows.push(entry(first, row.stock, scaled(stock), THROUGHPUT_TARGET));
            rows.push(entry(second, row.cna, scaled(cna), THROUGHPUT_TARGET));
            rows.push(entry(SPEEDUP, row.speedup, speedup, SPEEDUP_TARGET));
        }
        Self {
            table: table.name,
            source: table.source(),
            machine: MachineEntry::new(&plan.machine),
            workload: WorkloadEntry::new(&plan.workload, None),
            seconds,
            row_key: table.key,
            columns: table.columns,
            judged: match table.judged {
                Judged::Numbers => "numbers",
                Judged::Direction => "direction",
            },
            stock: LockEntry::new(&plan.locks[0]),
            cna: LockEntry::new(&plan.locks[1]),
            unit: table.unit,
            variants: variants.to_vec(),
            scale,
            targets: rows.iter().filter(|row| row.pass.is_some()).count(),
            met: rows.iter().filter(|row| row.pass == Some(true)).count(),
            rows,
        }
    }

    /// The entries row by row of the published table: both columns, speed-up.
    pub fn published_rows(&self) -> impl Iterator<Item = &[RowEntry]> {
        self.rows.chunk_by(|a, b| a.label == b.label)
    }

    /// The verdict in a sentence.
    pub fn verdict(&self) -> String {
        if self.judged == "direction" {
            return format!(
                "{} of {} rows have the same lock ahead, or both within {NO_DIFFERENCE} % (! have not); the sizes cannot be compared",
                self.met, self.targets,
            );
        }
        format!(
            "{} of {} targets met (! misses): from {JUDGED_FROM} threads on, speed-ups within {SPEEDUP_TARGET} %, throughput \
             within {THROUGHPUT_TARGET} %",
            self.met, self.targets,
        )
    }
}
