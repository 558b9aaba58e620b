//! The shape of the JSON report. Field names are a contract: add, never rename.

use kinlock_measure::machine::MachineEntry;
use kinlock_sim::published::{Judged, Measure, Row};
use serde::{Serialize, Serializer};
use serde_json::json;

use super::plan::{Plan, error_pct};
use crate::simulation::band::{Band, over};
use crate::simulation::draws::{self, rank_correlation};
use crate::simulation::provenance::{LockEntry, WorkloadEntry};
use crate::simulation::sample::{IdUse, Sample};
use crate::simulation::sampling::Variant;

/// All tables. All but the fields with `host` in their names are the same on every machine.
#[derive(Debug, Serialize)]
pub struct Report {
    pub kind: &'static str,
    pub version: &'static str,
    /// Commit that it was built from, if it was built in a checkout.
    pub commit: Option<&'static str>,
    /// Simulated seconds per run, after the warm-up, if all tables have the same.
    pub seconds: Option<f64>,
    pub seeds: Vec<u64>,
    pub host_threads: usize,
    /// What all simulations took, one after the other.
    pub host_seconds: f64,
    pub tables: Vec<TableEntry>,
}

/// One table.
#[derive(Debug, Serialize)]
pub struct TableEntry {
    pub table: &'static str,
    pub source: &'static str,
    pub machine: MachineEntry,
    pub workload: WorkloadEntry,
    /// Simulated seconds per run, after the warm-up; none where the workload decides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
    /// The assumed numbers that speed-ups hang on, the most important first; with `--bands` only.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hangs_on: Vec<HangsOn>,
    /// What the rows are: `threads`, or what their labels say.
    pub row_key: &'static str,
    pub columns: Vec<&'static str>,
    /// `numbers` or `direction`.
    pub judged: &'static str,
    /// The locks behind the columns: `stock` and `cna` if there are two, else `policies`.
    #[serde(flatten, serialize_with = "by_role")]
    pub locks: Vec<(&'static str, LockEntry)>,
    pub unit: &'static str,
    pub variants: Vec<Variant>,
    /// What all simulated throughputs of the table were multiplied by: published over simulated,
    /// first column, first row.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scale: Option<f64>,
    pub targets: usize,
    pub met: usize,
    /// The numbers row by row: the columns, then ratios.
    pub rows: Vec<RowEntry>,
    /// What the numbers of a row are called in tables.
    #[serde(skip)]
    pub headings: Vec<&'static str>,
    /// What the first ratio is.
    #[serde(skip)]
    pub speedup_is: String,
    /// How many targets were met, in a sentence.
    #[serde(skip)]
    pub verdict: String,
}

/// An assumed number, and how much speed-ups hang on it.
#[derive(Clone, Debug, Serialize)]
pub struct HangsOn {
    pub name: &'static str,
    /// The mean over rows of the rank correlation between the number and the speed-up.
    pub rank_correlation: f64,
}

/// One number, published and simulated.
#[derive(Debug, Serialize)]
pub struct RowEntry {
    /// Number of threads.
    pub key: usize,
    pub label: String,
    /// The column, or `speedup`: of the second column over the first, or of cache-local IDs over
    /// lowest-free; or `slowdown`: cache-local's time over that of indexing by CPU.
    pub column: &'static str,
    /// The published number, if there is one.
    pub published: Option<f64>,
    /// The simulated one: throughputs are scaled.
    pub simulated: Band,
    /// How far the simulated median is off, in percent of the published number.
    pub error_pct: Option<f64>,
    /// Whether that is within the target; `null` where there is none.
    pub pass: Option<bool>,
    /// What we believe is not modelled, if it is not within the target.
    pub note: String,
    /// Which IDs the policy gave out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ids: Option<IdUse>,
}

impl TableEntry {
    /// Of all samples of a plan, in order.
    pub fn new(plan: &Plan, variants: &[Variant], samples: &[Sample]) -> Self {
        let table = &plan.table;
        let measured = |samples: &[Sample]| {
            let band = Band::of(samples, |sample| plan.value(sample));
            band.times(plan.unit())
        };
        let first = |published| over(published, measured(&samples[..variants.len()]).median);
        let scale = plan.scale_to.map(first);

        let mut rows = Vec::new();
        let mut speedups: Vec<Vec<f64>> = Vec::new();
        let runs: Vec<_> = samples
            .chunks(table.columns.len() * variants.len())
            .collect();
        for row in &plan.rows {
            let mut threads = plan.runs.iter().map(|(threads, _)| *threads);
            let run = threads.position(|threads| threads == row.threads);
            let run = runs[run.expect("every row is simulated")];
            let by_column: Vec<_> = run.chunks(variants.len()).collect();
            for (index, (name, _)) in table.columns.iter().enumerate() {
                let band = measured(by_column[index]).times(scale.unwrap_or(1.0));
                let entry = RowEntry::new(plan, row, index, name, band);
                let ids = ids(table.measure, by_column[index]);
                rows.push(RowEntry { ids, ..entry });
            }
            for (index, ratio) in (table.columns.len()..).zip(table.ratios) {
                let pairs = by_column[ratio.of].iter().zip(by_column[ratio.by]);
                if index == table.columns.len() && row.threads >= plan.from_threads {
                    let drawn = pairs.clone().filter(|(a, _)| a.variant.draw.is_some());
                    let ratios = drawn.map(|(a, b)| over(plan.value(a), plan.value(b)));
                    speedups.push(ratios.collect());
                }
                let ratios = pairs.map(|(a, b)| (a, over(plan.value(a), plan.value(b))));
                let band = Band::of_pairs(ratios);
                rows.push(RowEntry::new(plan, row, index, ratio.name, band));
            }
        }
        let locks = plan.locks.iter().map(LockEntry::new);
        let columns: Vec<_> = table.columns.iter().map(|(name, _)| *name).collect();
        let ratios = table.ratios.iter().map(|ratio| ratio.heading);
        let targets = rows.iter().filter(|row| row.pass.is_some()).count();
        let met = rows.iter().filter(|row| row.pass == Some(true)).count();
        let (of, by) = (table.ratios[0].of, table.ratios[0].by);
        Self {
            table: table.name,
            source: table.source(),
            machine: MachineEntry::new(&plan.machine),
            workload: WorkloadEntry::new(&plan.workload, plan.runs[0].1),
            seconds: plan.seconds,
            row_key: table.key,
            judged: match table.judged {
                Judged::Numbers => "numbers",
                Judged::Direction => "direction",
            },
            locks: columns.iter().copied().zip(locks).collect(),
            unit: table.unit,
            variants: variants.to_vec(),
            scale,
            hangs_on: hangs_on(plan, variants, &speedups),
            targets,
            met,
            rows,
            headings: columns.iter().copied().chain(ratios).collect(),
            speedup_is: format!("{} over {}", columns[of], columns[by]),
            verdict: format!("{met} of {targets} {}", plan.targets_are),
            columns,
        }
    }

    /// The entries row by row of the published table.
    pub fn published_rows(&self) -> impl Iterator<Item = &[RowEntry]> {
        self.rows.chunks(self.headings.len())
    }
}

impl RowEntry {
    fn new(plan: &Plan, row: &Row, index: usize, column: &'static str, simulated: Band) -> Self {
        let published = row.published[index];
        let pass = plan.targets[index].is_met(published, simulated.median);
        let pass = pass.filter(|_| row.threads >= plan.from_threads);
        let is_missed = pass == Some(false);
        Self {
            key: row.threads,
            label: row.label.clone(),
            column,
            published,
            simulated,
            error_pct: published.map(|published| error_pct(published, simulated.median)),
            pass,
            note: if is_missed {
                row.note.clone()
            } else {
                Default::default()
            },
            ids: None,
        }
    }
}

/// Every assumed number with the mean of its rank correlations, the strongest first. `speedups`: of
/// all draws, row by row.
fn hangs_on(plan: &Plan, variants: &[Variant], speedups: &[Vec<f64>]) -> Vec<HangsOn> {
    let draws = variants.iter().filter_map(|variant| variant.draw);
    let factors = draws.map(|draw| draws::factors(&plan.machine, &plan.workload, draw));
    let factors: Vec<Vec<(&str, f64)>> = factors.collect();
    let Some(first) = factors.first().filter(|_| factors.len() > 2) else {
        return Vec::new();
    };
    let of = |(index, &(name, _)): (usize, &(&'static str, f64))| {
        let values: Vec<_> = factors.iter().map(|draw| draw[index].1).collect();
        let each = speedups.iter().map(|row| rank_correlation(&values, row));
        let rank_correlation = each.sum::<f64>() / (speedups.len() as f64).max(1.0);
        HangsOn {
            name,
            rank_correlation,
        }
    };
    let mut all: Vec<_> = first.iter().enumerate().map(of).collect();
    all.sort_by(|a, b| {
        b.rank_correlation
            .abs()
            .total_cmp(&a.rank_correlation.abs())
    });
    all
}

/// The IDs given out in samples with the usual latencies.
fn ids(measure: Measure, samples: &[Sample]) -> Option<IdUse> {
    let usual = samples.iter().filter(|sample| sample.is_usual());
    match measure {
        Measure::Throughput(_) => None,
        Measure::Bursts => Some(IdUse::over(usual.flat_map(|sample| sample.ids.first()))),
    }
}

fn by_role<S: Serializer>(
    locks: &[(&'static str, LockEntry)],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match locks {
        [(_, stock), (_, cna)] => serializer.collect_map([("stock", stock), ("cna", cna)]),
        policies => serializer.collect_map([("policies", json!(policies))]),
    }
}
