//! Tables about concurrency IDs: what to simulate, how far off it is, and how that is shown.

use kinlock_sim::published::{IdRow, IdTable};
use kinlock_sim::{Machine, Run, locks, workloads};
use serde::Serialize;

use super::report::{Shown, notes};
use crate::report::table::Table;
use crate::report::units::three_digits;
use crate::sim::flags::Variant;
use crate::sim::pool::Job;
use crate::sim::provenance::{LockEntry, MachineEntry, WorkloadEntry};
use crate::sim::results::{Band, over};
use crate::sim::sample::{IdUse, Sample};

/// How far the speed-up over lowest-free may be off, in percent.
const SPEEDUP_TARGET: f64 = 25.0;
/// How much slower than by CPU cache-local IDs may be, in percent.
const SLOWDOWN_TARGET: f64 = 15.0;

/// A table, and the machine to simulate it on.
#[derive(Clone, Debug)]
pub struct IdPlan {
    /// The table.
    pub table: IdTable,
    rows: Vec<IdRow>,
    /// The machine.
    pub machine: Machine,
    workload: workloads::Kind,
}

/// One table.
#[derive(Debug, Serialize)]
pub struct IdTableEntry {
    /// Its name.
    pub table: &'static str,
    /// Where it was published, or why it is here.
    pub source: &'static str,
    /// The machine that was simulated.
    pub machine: MachineEntry,
    /// The workload that was simulated.
    pub workload: WorkloadEntry,
    /// What the rows are.
    pub row_key: &'static str,
    /// The unit of all columns but the last two.
    pub unit: &'static str,
    /// What the columns of policies are called, and the policies.
    pub policies: Vec<(&'static str, LockEntry)>,
    /// What every policy ran with, in order.
    pub variants: Vec<Variant>,
    /// How many targets there are.
    pub targets: usize,
    /// How many of them are met.
    pub met: usize,
    /// One per policy, `speedup` and `slowdown`, for each row.
    pub rows: Vec<IdRowEntry>,
}

/// One number.
#[derive(Debug, Serialize)]
pub struct IdRowEntry {
    /// Number of threads.
    pub key: usize,
    /// What the row is called.
    pub label: String,
    /// The column of a policy; `speedup`: cache-local over lowest-free; `slowdown`: cache-local's time over that of indexing by CPU.
    pub column: &'static str,
    /// The published number, if there is one.
    pub published: Option<f64>,
    /// The simulated one.
    pub simulated: Band,
    /// How far the simulated median is off, in percent of the published number.
    pub error_pct: Option<f64>,
    /// Whether that is within the target; `null` where there is none.
    pub pass: Option<bool>,
    /// What we believe is not modelled, if it is not within the target.
    pub note: &'static str,
    /// Which IDs the policy gave out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ids: Option<IdUse>,
}

impl IdPlan {
    /// For the rows of `table` with these numbers of threads, all if there are none, on its own machine or on `machine`.
    ///
    /// # Errors
    /// If the machine is none, or too small.
    pub fn new(table: IdTable, threads: &[usize], machine: Option<&str>) -> anyhow::Result<Self> {
        let mut rows = table.rows();
        rows.retain(|row| threads.is_empty() || threads.contains(&row.threads));
        let machine = Machine::load(machine.unwrap_or(table.machine))?;
        let workload = workloads::by_name(table.workload).expect("tables name known workloads");
        let threads: Vec<_> = rows.iter().map(|row| row.threads).collect();
        crate::sim::plan::check(&[workload], &[], machine.shape.cpus(), &threads)?;
        Ok(Self {
            table,
            rows,
            machine,
            workload,
        })
    }

    /// Whether all these numbers of threads have rows.
    pub fn has(&self, threads: &[usize]) -> bool {
        let rows = self.table.rows();
        threads
            .iter()
            .all(|&wanted| rows.iter().any(|row| row.threads == wanted))
    }

    /// The rows that are runs of their own: of phases, the first.
    fn runs(&self) -> impl Iterator<Item = &IdRow> {
        self.rows.iter().filter(|row| row.phase == 0)
    }

    /// All simulations: by row, policy and variant.
    pub fn jobs(&self, variants: &[Variant], seconds: f64) -> Vec<Job> {
        let mut jobs = Vec::new();
        for row in self.runs() {
            for (_, policy) in self.table.columns {
                let policy = locks::by_name(policy).expect("tables name known policies");
                for &variant in variants {
                    let machine = self.machine.clone();
                    let machine = machine.with_remote_latency(variant.remote_factor);
                    let run = Run {
                        seconds,
                        seed: variant.seed,
                        placement: Some(row.placement),
                        ..Run::new(machine, self.workload, policy, row.threads)
                    };
                    jobs.push(Job { run, variant });
                }
            }
        }
        jobs
    }
}

impl IdTableEntry {
    /// Of all samples of a plan, in order.
    pub fn new(plan: &IdPlan, variants: &[Variant], samples: &[Sample]) -> Self {
        let table = &plan.table;
        let columns = table.columns.len();
        let runs: Vec<_> = samples.chunks(columns * variants.len()).collect();
        let mut rows = Vec::new();
        for (index, row) in plan.rows.iter().enumerate() {
            let run = runs[if table.has_phases() { 0 } else { index }];
            let by_policy: Vec<_> = run.chunks(variants.len()).collect();
            rows.extend(entries(table, row, &by_policy));
        }
        Self {
            table: table.name,
            source: table.source,
            machine: MachineEntry::new(&plan.machine),
            workload: WorkloadEntry::new(&plan.workload, Some(plan.rows[0].placement)),
            row_key: table.key,
            unit: "ns per burst",
            policies: table
                .columns
                .iter()
                .map(|&(column, policy)| {
                    let kind = locks::by_name(policy).expect("tables name known policies");
                    (column, LockEntry::new(&kind))
                })
                .collect(),
            variants: variants.to_vec(),
            targets: rows.iter().filter(|row| row.pass.is_some()).count(),
            met: rows.iter().filter(|row| row.pass == Some(true)).count(),
            rows,
        }
    }
}

/// The entries of one row: the policies, then the ratios.
fn entries(table: &IdTable, row: &IdRow, by_policy: &[&[Sample]]) -> Vec<IdRowEntry> {
    let ns = |sample: &Sample| {
        sample
            .ids
            .get(row.phase)
            .map_or(0.0, |ids| ids.ns_per_burst)
    };
    let entry = |column, published: Option<f64>, simulated: Band, pass: Option<bool>, ids| {
        let note = if pass == Some(false) { row.note } else { "" };
        IdRowEntry {
            key: row.threads,
            label: row.label.clone(),
            column,
            published,
            simulated,
            error_pct: error(published, simulated.median),
            pass,
            note,
            ids,
        }
    };
    let mut entries = Vec::new();
    for (index, &(column, _)) in table.columns.iter().enumerate() {
        let samples = by_policy[index];
        let usual = samples.iter().filter(|sample| sample.remote_factor == 1.0);
        let ids = IdUse::over(usual.flat_map(|sample| sample.ids.get(row.phase)));
        let band = Band::of(samples, ns);
        entries.push(entry(column, row.published[index], band, None, Some(ids)));
    }
    let ratio = |of: &str, to: &str| {
        let place = |policy| table.columns.iter().position(|(_, name)| *name == policy);
        let samples = |policy| by_policy[place(policy).expect("each table has the policy")];
        let pairs: Vec<_> = samples(of).iter().zip(samples(to)).collect();
        Band::of_pairs(&pairs, |(a, b)| over(ns(a), ns(b)), |(a, _)| a)
    };
    // Judged where there is something to be judged by.
    let is_published = row.speedup.is_some();
    let speedup = ratio("lowest-free", "recent-first");
    let off = error(row.speedup, speedup.median);
    let pass = off.map(|off| off.abs() <= SPEEDUP_TARGET);
    entries.push(entry("speedup", row.speedup, speedup, pass, None));
    let slowdown = ratio("recent-first", "per-cpu");
    let published = row.published[2].zip(row.published[0]);
    let pass = is_published.then_some(slowdown.median <= 1.0 + SLOWDOWN_TARGET / 100.0);
    entries.push(entry(
        "slowdown",
        published.map(|(a, b)| a / b),
        slowdown,
        pass,
        None,
    ));
    entries
}

fn error(published: Option<f64>, simulated: f64) -> Option<f64> {
    published.map(|published| 100.0 * (simulated / published - 1.0))
}

/// A table as it is shown.
pub fn shown(entry: &IdTableEntry) -> Shown<'_> {
    let about = format!("{}; {}", simulated(entry), entry.unit);
    Shown {
        name: entry.table,
        source: entry.source,
        markdown_about: format!("{about}."),
        about,
        table: Table {
            headings: headings(entry),
            rows: rows(entry).map(|row| cells(entry, row)).collect(),
        },
        labels: 1,
        remarks: remarks(entry),
    }
}

fn simulated(entry: &IdTableEntry) -> String {
    let policies = entry.policies.iter();
    let policies: Vec<_> = policies
        .map(|(column, policy)| format!("{column} = {}", policy.name))
        .collect();
    format!(
        "simulated: {}; workload {}; {}",
        entry.machine.name,
        entry.workload.name,
        policies.join(", ")
    )
}

fn rows(entry: &IdTableEntry) -> impl Iterator<Item = &[IdRowEntry]> {
    entry.rows.chunk_by(|a, b| a.label == b.label)
}

/// Whether a column has published numbers.
fn is_published(entry: &IdTableEntry, column: &str) -> bool {
    let mut rows = entry.rows.iter();
    rows.any(|row| row.column == column && row.published.is_some())
}

/// Tables without published numbers are about density.
fn shows_ids(entry: &IdTableEntry) -> bool {
    entry.rows.iter().all(|row| row.published.is_none())
}

fn headings(entry: &IdTableEntry) -> Vec<String> {
    let mut headings = vec![format!("\n{}", entry.row_key)];
    let first = rows(entry).next().unwrap_or_default();
    for row in first {
        let name = match row.column {
            "slowdown" => "over per_cpu",
            column => column,
        };
        if is_published(entry, row.column) {
            headings.extend([format!("{name}\npubl."), "\nsim.".into(), "\nerror".into()]);
        } else {
            headings.push(format!("{name}\nsim."));
        }
        if shows_ids(entry) && row.ids.is_some() {
            headings.push("\nmean, max ID".into());
        }
    }
    headings
}

fn cells(entry: &IdTableEntry, row: &[IdRowEntry]) -> Vec<String> {
    let mut cells = vec![row[0].label.clone()];
    for number in row {
        let mark = if number.pass == Some(false) { "!" } else { " " };
        let simulated = three_digits(number.simulated.median);
        if let Some((published, error)) = number.published.zip(number.error_pct) {
            cells.extend([
                three_digits(published),
                simulated,
                format!("{error:+.0}%{mark}"),
            ]);
        } else {
            cells.push(simulated);
        }
        if let Some(ids) = number.ids.filter(|_| shows_ids(entry)) {
            cells.push(format!("{:.1}, {}", ids.mean_id, ids.max_id));
        }
    }
    cells
}

fn remarks(entry: &IdTableEntry) -> Vec<String> {
    let mut remarks = Vec::new();
    if entry.targets > 0 {
        remarks.push(format!(
            "{} of {} targets met (! misses): speed-ups over lowest-free within {SPEEDUP_TARGET} % of the published, at most {SLOWDOWN_TARGET} % slower than by CPU",
            entry.met, entry.targets,
        ));
    }
    let noted = entry.rows.iter().filter(|row| !row.note.is_empty());
    remarks.extend(notes(noted.map(|row| (row.label.clone(), row.note))));
    remarks
}
