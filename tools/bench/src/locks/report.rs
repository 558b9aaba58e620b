//! The results for locks besides throughput, and how they are shown.

use std::collections::BTreeMap;
use std::io::Write;

use comfy_table::{Attribute, Cell, Color};
use kinlock_cli::args::Named;
use kinlock_cli::report::table::{Columns, wrapped};
use kinlock_cli::report::units::time;
use kinlock_measure::stats::Summary;
use serde::Serialize;

use super::contenders::LockName;
use super::flags::NOISY;
use super::round::Watched;
use super::trace::Handoffs;
use super::{Locks, grid};
use crate::harness::results::{Report, Shown, names};
use crate::harness::slice::Sample;
use crate::harness::suite::{Entry, Ratio};

/// The results of all rounds of a lock.
#[derive(Serialize)]
pub struct Detail {
    /// From asking for the lock to having it, over all rounds.
    pub acquire_ns: Acquire,
    /// The 99.9 % quantile of a round's acquisition times, divided by the baseline's in the same
    /// round. Both are known within 1 %. With fewer than a thousand acquisitions they are the
    /// longest times.
    acquire_p999_ratio: Ratio,
    /// How the lock travelled in the instrumented slices, over all rounds.
    handoffs: Handoffs,
    /// Events that our locks counted on their slow paths in the warm-ups of the instrumented slices
    /// (`warm_up_seconds` each), over all rounds; none for others' locks. Compare them with each
    /// other, for example with `slow_path`, but not with `handoffs`, which are from other spans.
    events: BTreeMap<&'static str, u64>,
    /// Flags: `unfair`, `long_tail`, `noisy`.
    pub flags: Vec<&'static str>,
}

/// Quantiles of acquisition times in ns, from the instrumented slices; upper bounds within 1 %.
#[derive(Serialize)]
pub struct Acquire {
    p50: u64,
    pub p99: u64,
    pub p999: u64,
    pub max: u64,
}

/// The 99.9 % quantile of the acquisition times.
pub fn p999(sample: &Sample<Watched>) -> u64 {
    sample.extra.acquire.value_at_quantile(0.999)
}

/// That quantile, divided by the baseline's.
pub fn tail_ratio(own: &Sample<Watched>, baseline: &Sample<Watched>) -> f64 {
    p999(own).max(1) as f64 / p999(baseline).max(1) as f64
}

impl Detail {
    /// The results of at least one round.
    pub fn new(own: &[&Sample<Watched>], baseline: &[&Sample<Watched>], to: &str) -> Self {
        let mut sum = Watched::default();
        own.iter().for_each(|sample| sum.add(&sample.extra));
        let pairs = own.iter().zip(baseline);
        let ratios = pairs.map(|(own, other)| tail_ratio(own, other));
        let mut events = BTreeMap::new();
        for &(name, count) in own.iter().flat_map(|sample| &sample.extra.events) {
            *events.entry(name).or_default() += count;
        }
        Self {
            acquire_ns: Acquire {
                p50: sum.acquire.value_at_quantile(0.5),
                p99: sum.acquire.value_at_quantile(0.99),
                p999: sum.acquire.value_at_quantile(0.999),
                max: sum.acquire.max(),
            },
            acquire_p999_ratio: Ratio {
                to: to.to_owned(),
                over_rounds: Summary::of(ratios),
            },
            handoffs: sum.handoffs,
            events,
            flags: Vec::new(),
        }
    }

    /// The share of hand-offs within a locality domain, if there were any.
    fn local_share(&self) -> String {
        match self.handoffs.local + self.handoffs.remote {
            0 => "-".to_owned(),
            all => format!("{:.0}%", 100.0 * self.handoffs.local as f64 / all as f64),
        }
    }
}

/// The heading of the column of remarks.
const REMARKS: &str = "remarks";

impl Shown for Locks {
    const SUBJECTS: &'static str = "lock";
    const OURS: &'static [&'static str] = &[
        "kinlock-mutex",
        "kinlock-mutex-joined",
        "kinlock-fair",
        "kinlock-spin",
        "kinlock-spin-cna",
        "kinlock-spin-fifo",
    ];

    fn columns(report: &Report<Self>, entry: &Entry<Self>) -> Columns<Entry<Self>> {
        let mut columns = Columns::<Entry<Self>>::new()
            .speed()
            .ratio(format!("x {}", entry.ratio.to))
            .spread("spread", |usual| usual.ratio);
        if entry.threads > 1 {
            columns = columns
                .jain()
                .min_over_mean()
                .add("wait p50", |e| time(e.detail.acquire_ns.p50 as f64))
                .add("p99", |e| time(e.detail.acquire_ns.p99 as f64))
                .add("p99.9", |e| time(e.detail.acquire_ns.p999 as f64))
                .number("tail x", 2, |e| {
                    e.detail.acquire_p999_ratio.over_rounds.median
                })
                .add("max", |e| time(e.detail.acquire_ns.max as f64));
            if report.machine.domains > 1 {
                columns = columns.add("local", |e| e.detail.local_share());
            }
        }
        columns
            .add("cpu/op", |e| time(e.cpu_ns_per_op.median))
            .add(REMARKS, |e| Self::remarks(e).join(", "))
    }

    fn csv_columns() -> Columns<Entry<Self>> {
        Columns::<Entry<Self>>::new()
            .csv_key()
            .csv_ops("ops_per_s", ["min", "max"], 1)
            .csv_ns_per_op()
            .csv_ratio()
            .csv_min_over_mean()
            .add("acquire_p50_ns", |e| e.detail.acquire_ns.p50)
            .add("acquire_p99_ns", |e| e.detail.acquire_ns.p99)
            .add("acquire_p999_ns", |e| e.detail.acquire_ns.p999)
            .add("acquire_max_ns", |e| e.detail.acquire_ns.max)
            .add("handoffs_local", |e| e.detail.handoffs.local)
            .add("handoffs_remote", |e| e.detail.handoffs.remote)
            .add("handoffs_retaken", |e| e.detail.handoffs.retaken)
            .add("longest_remote_wait_ns", |e| {
                e.detail.handoffs.longest_remote_wait_ns
            })
            .add("longest_local_run_ns", |e| {
                e.detail.handoffs.longest_local_run_ns
            })
            .number("cpu_ns_per_op", 3, |e| e.cpu_ns_per_op.median)
            .add("flags", |e| e.detail.flags.join(" "))
            .add("rounds", |e| e.rounds.len())
            .band("acquire_p999_ratio", ["min", "max"], 6, |e| {
                e.detail.acquire_p999_ratio.over_rounds.into()
            })
    }

    fn remarks(entry: &Entry<Self>) -> Vec<String> {
        let flags = entry.detail.flags.iter().filter(|&&flag| flag != NOISY);
        flags.map(|flag| flag.replace('_', " ")).collect()
    }

    fn has_row(report: &Report<Self>, entry: &Entry<Self>) -> bool {
        grid::part_of(entry).is_none() || grid::standings(&report.results).is_empty()
    }

    fn write_more(report: &Report<Self>, out: &mut dyn Write) -> anyhow::Result<()> {
        grid::write(report, out)?;
        for name in names(&report.results)
            .into_iter()
            .filter(|_| report.details)
        {
            let lock = LockName::find(name).expect("what was measured has a name");
            writeln!(
                out,
                "{}",
                wrapped(&format!("{name}: {}", lock.summary()), "    ")
            )?;
        }
        Ok(())
    }

    fn paint(heading: &str, text: &str) -> Cell {
        match heading {
            // An empty coloured cell would still have colour codes in the text.
            REMARKS if !text.is_empty() => Cell::new(text).fg(Color::Red),
            Self::SUBJECTS if Self::OURS.contains(&text) => {
                Cell::new(text).add_attribute(Attribute::Bold)
            }
            _ => Cell::new(text),
        }
    }
}
