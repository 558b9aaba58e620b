//! The shape of the JSON report. Field names are a contract: add, never rename.

use kinlock_measure::machine::MachineEntry;
use kinlock_measure::stats::Summary;
use kinlock_sim::locks;
use kinlock_sim::published::{Measure, Observed, Row};
use kinlock_sim::workloads::Bursts;
use serde::{Serialize, Serializer};
use serde_json::json;
use std::collections::BTreeMap;

use super::plan::{Plan, TARGETS, error_pct, number_is_met, ratio_is_met};
use crate::simulation::band::{band, band_of_pairs, over, scaled, with_edges};
use crate::simulation::draws::{self, rank_correlation};
use crate::simulation::provenance::WorkloadEntry;
use crate::simulation::sample::{Sample, bursts, usual};
use crate::simulation::sampling::Variant;

/// With fewer threads than this, neither the choice of lock nor the assumed numbers matter much.
const MANY_THREADS: usize = 8;

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
    /// The sum of the times of all simulations.
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
    /// The assumed numbers that affect speed-ups, the most important first; with `--bands` only.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hangs_on: Vec<HangsOn>,
    /// What the rows stand for: `threads`, or what their labels say.
    pub row_key: &'static str,
    pub columns: Vec<&'static str>,
    /// The locks behind the columns: `stock` and `cna` if there are two, else `policies`.
    #[serde(flatten, serialize_with = "by_role")]
    pub locks: Vec<(&'static str, locks::Kind)>,
    pub unit: &'static str,
    pub variants: Vec<Variant>,
    /// The factor by which all simulated throughputs of the table were multiplied: the published
    /// number of the first column and row, divided by the simulated one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scale: Option<f64>,
    /// The number of targets. If one simulation stands for several rows, their numbers are one
    /// target, which is met if it is met in each of these rows.
    pub targets: usize,
    pub met: usize,
    /// The numbers row by row: the columns, then ratios.
    pub rows: Vec<RowEntry>,
    /// Numbers about what happened inside of runs, if they were published.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub observed: Vec<RowEntry>,
    /// The headings of the numbers of a row in tables.
    #[serde(skip)]
    pub headings: Vec<&'static str>,
    /// What the first ratio means.
    #[serde(skip)]
    pub speedup_is: String,
    /// How many targets were met, and what they are.
    #[serde(skip)]
    pub verdict: String,
}

/// An assumed number, and how much speed-ups depend on it.
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
    /// The column; or `speedup`: the second column divided by the first, or cache-local IDs against
    /// lowest-free ones; or `slowdown`: cache-local's time divided by that of indexing by CPU; or
    /// the name of an observation.
    pub column: &'static str,
    /// The published number, if there is one.
    pub published: Option<f64>,
    /// The standard deviation of a published run, if it was published; for a ratio it is computed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub published_sd: Option<f64>,
    /// The simulated number, scaled if it is a throughput.
    #[serde(serialize_with = "with_edges")]
    pub simulated: Summary,
    /// The standard deviation of the simulated numbers over seeds, if there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub simulated_sd: Option<f64>,
    /// How far the simulated median is off, in percent of the published number.
    pub error_pct: Option<f64>,
    /// Whether the error is within the target; `null` if there is no target.
    pub pass: Option<bool>,
    /// If the target is missed, whether the simulated number is better. `null` for observations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub too_good: Option<bool>,
    /// What we believe the model lacks, if the target is missed.
    pub note: String,
    /// The IDs that the policy gave out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ids: Option<Bursts>,
}

impl TableEntry {
    /// The entry for a plan, from all its samples in order.
    pub fn new(plan: &Plan, variants: &[Variant], samples: &[Sample]) -> Self {
        let table = &plan.table;
        let first = |published| {
            let band = band(&samples[..variants.len()], |outcome| plan.value(outcome));
            over(published, scaled(band, plan.unit()).median)
        };
        let scale = plan.scale_to.map(first);
        let times = plan.unit() * scale.unwrap_or(1.0);

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
                let value = |sample: &Sample| times * plan.value(&sample.outcome);
                let values: Vec<_> = by_column[index].iter().map(|s| (s, value(s))).collect();
                let mut entry = RowEntry::new(row, index, name, &values);
                // The scale makes the first number of the table fit, so that has no target, whether
                // it is shown or not.
                let is_first = index == 0 && row.threads == plan.runs[0].0;
                let is_scale = is_first && scale.is_some() && row.published[0] == plan.scale_to;
                if !is_scale && !table.fitted.contains(&(row.threads, index)) {
                    let small_is_good = matches!(table.measure, Measure::Bursts);
                    entry.judge(small_is_good, number_is_met);
                }
                entry.ids = bursts(usual(by_column[index]));
                rows.push(entry);
            }
            for (index, ratio) in (table.columns.len()..).zip(table.ratios) {
                let pairs = by_column[ratio.of].iter().zip(by_column[ratio.by]);
                let value = |sample: &Sample| plan.value(&sample.outcome);
                let ratios: Vec<_> = pairs.map(|(a, b)| (a, over(value(a), value(b)))).collect();
                if index == table.columns.len() && row.threads >= MANY_THREADS {
                    let drawn = ratios.iter().filter(|(a, _)| a.variant.draw.is_some());
                    speedups.push(drawn.map(|(_, ratio)| *ratio).collect());
                }
                let mut entry = RowEntry::new(row, index, ratio.name, &ratios);
                let deviation = entry.published_sd;
                entry.judge(ratio.small_is_good, |published, simulated| {
                    ratio_is_met(published, deviation, simulated)
                });
                rows.push(entry);
            }
        }
        for entry in &mut rows {
            if entry.pass == Some(false) {
                let row = plan.rows.iter().find(|row| row.label == entry.label);
                entry.note = row.map(|row| row.note.clone()).unwrap_or_default();
            }
        }
        let observed = table.observed.iter().filter_map(|observed| {
            let run = plan.runs.iter().position(|run| run.0 == observed.threads);
            let row = plan.rows.iter().find(|row| row.threads == observed.threads);
            let samples = runs[run?].chunks(variants.len()).nth(observed.column)?;
            Some(RowEntry::observed(observed, row?, samples))
        });
        let observed: Vec<_> = observed.collect();
        let locks = plan.locks.iter().copied();
        let columns: Vec<_> = table.columns.iter().map(|(name, _)| *name).collect();
        let ratios = table.ratios.iter().map(|ratio| ratio.heading);
        let mut passes: BTreeMap<(usize, &str), bool> = BTreeMap::new();
        for entry in rows.iter().chain(&observed) {
            if let Some(pass) = entry.pass {
                *passes.entry((entry.key, entry.column)).or_insert(true) &= pass;
            }
        }
        let targets = passes.len();
        let met = passes.values().filter(|pass| **pass).count();
        let (of, by) = (table.ratios[0].of, table.ratios[0].by);
        Self {
            table: table.name,
            source: table.source(),
            machine: MachineEntry::new(&plan.machine),
            workload: WorkloadEntry::new(&plan.workload, plan.runs[0].1),
            seconds: plan.seconds,
            row_key: table.key,
            locks: columns.iter().copied().zip(locks).collect(),
            unit: table.unit,
            variants: variants.to_vec(),
            scale,
            hangs_on: hangs_on(plan, variants, &speedups),
            targets,
            met,
            rows,
            observed,
            headings: columns.iter().copied().chain(ratios).collect(),
            speedup_is: format!("{} over {}", columns[of], columns[by]),
            verdict: format!("{met} of {targets} {TARGETS}"),
            columns,
        }
    }

    /// The entries row by row of the published table.
    pub fn published_rows(&self) -> impl Iterator<Item = &[RowEntry]> {
        self.rows.chunks(self.headings.len())
    }
}

impl RowEntry {
    /// A number without a target, from its values, each with the sample to which it belongs.
    fn new(row: &Row, index: usize, column: &'static str, values: &[(&Sample, f64)]) -> Self {
        let published = row.published[index];
        let simulated = band_of_pairs(values.iter().copied());
        let usual = values.iter().filter(|(sample, _)| sample.is_usual());
        Self {
            key: row.threads,
            label: row.label.clone(),
            column,
            published,
            published_sd: row.deviations[index],
            simulated,
            simulated_sd: deviation(usual.map(|(_, value)| *value)),
            error_pct: published.map(|published| error_pct(published, simulated.median)),
            pass: None,
            too_good: None,
            note: String::new(),
            ids: None,
        }
    }

    /// An observation in a run, with a target.
    fn observed(observed: &Observed, row: &Row, samples: &[Sample]) -> Self {
        let row = Row {
            published: vec![Some(observed.published)],
            deviations: vec![None],
            ..row.clone()
        };
        let value = |sample: &Sample| {
            let count = |name| sample.outcome.observed.get(name).copied().unwrap_or(0.0);
            let of = count(observed.of);
            observed.by.map_or(of, |by| over(of, count(by)))
        };
        let values: Vec<_> = samples.iter().map(|s| (s, value(s))).collect();
        let mut entry = RowEntry::new(&row, 0, observed.name, &values);
        entry.judge(false, number_is_met);
        // For observations, neither direction is better.
        entry.too_good = None;
        if entry.pass == Some(false) {
            entry.note.clone_from(&row.note);
        }
        entry
    }

    /// Gives the number a target, if it was published.
    fn judge(&mut self, small_is_good: bool, is_met: impl Fn(f64, f64) -> bool) {
        let simulated = self.simulated.median;
        self.pass = self.published.map(|published| is_met(published, simulated));
        self.too_good = self
            .published
            .filter(|_| self.pass == Some(false))
            .map(|published| (simulated > published) != small_is_good);
    }
}

/// The standard deviation of a sample of at least two.
fn deviation(values: impl Iterator<Item = f64>) -> Option<f64> {
    let values: Vec<_> = values.collect();
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (values.len() > 1).then(|| (squares / (n - 1.0)).sqrt())
}

/// Every assumed number with the mean of its rank correlations, the strongest first. `speedups` has
/// the speed-ups of all draws, row by row.
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

fn by_role<S: Serializer>(
    locks: &[(&'static str, locks::Kind)],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match locks {
        [(_, stock), (_, cna)] => serializer.collect_map([("stock", stock), ("cna", cna)]),
        policies => serializer.collect_map([("policies", json!(policies))]),
    }
}
