//! The columns of the tables for people, on stdout and in Markdown.

use crate::output::units::{rate, three_digits, time};
use crate::sim::results::Entry;
use crate::sim::sample::IdUse;

/// A column: its heading and the text of an entry in it.
pub struct Column {
    /// The heading.
    pub heading: String,
    /// The text.
    pub text: fn(&Entry) -> String,
}

/// The columns of a cell.
pub fn of_cell(cell: &[&Entry]) -> Vec<Column> {
    let column = |heading: &str, text| Column {
        heading: heading.to_owned(),
        text,
    };
    if cell[0].ids.is_some() {
        return vec![
            column("ns/burst", |e| three_digits(e.ns_per_op.median)),
            column("band", |e| {
                let ns = &e.ns_per_op;
                format!("{}..{}", three_digits(ns.min), three_digits(ns.max))
            }),
            column(&format!("x {}", cell[0].ratio.to), |e| {
                three_digits(e.ratio.over_runs.median)
            }),
            column("mean ID", |e| of_ids(e, |ids| ids.mean_id)),
            column("max ID", |e| of_ids(e, |ids| ids.max_id as f64)),
            column("foreign lines", |e| of_ids(e, |ids| ids.foreign_lines)),
            column("ns to get the ID", |e| of_ids(e, |ids| ids.acquire_ns)),
            column("events/s", |e| rate(e.events_per_host_second)),
        ];
    }
    vec![
        column("ops/us", |e| three_digits(e.ops_per_us.median)),
        column("band", |e| {
            let band = &e.ops_per_us;
            format!("{}..{}", three_digits(band.low), three_digits(band.high))
        }),
        column(&format!("x {}", cell[0].ratio.to), |e| {
            three_digits(e.ratio.over_runs.median)
        }),
        column("band", |e| {
            let ratio = &e.ratio.over_runs;
            format!("{}..{}", three_digits(ratio.min), three_digits(ratio.max))
        }),
        column("min/mean", |e| format!("{:.2}", e.fairness.min_over_mean)),
        column("wait p50", |e| time(e.acquire_ns.p50 as f64)),
        column("p99", |e| time(e.acquire_ns.p99 as f64)),
        column("max", |e| time(e.acquire_ns.max as f64)),
        column("local", |e| match e.handoffs.local_share() {
            Some(share) => format!("{:.0}%", 100.0 * share),
            None => "-".to_owned(),
        }),
        column("remote/op", |e| three_digits(e.traffic.remote)),
        column("events/s", |e| rate(e.events_per_host_second)),
    ]
}

fn of_ids(entry: &Entry, value: fn(&IdUse) -> f64) -> String {
    entry
        .ids
        .as_ref()
        .map(value)
        .map_or_else(String::new, three_digits)
}

/// The entries of a cell, the fastest lock first.
pub fn best_first(cell: &[Entry]) -> Vec<&Entry> {
    let mut entries: Vec<&Entry> = cell.iter().collect();
    entries.sort_by(|a, b| b.ops_per_us.median.total_cmp(&a.ops_per_us.median));
    entries
}

/// What a cell is called: `lock2, 8 threads`.
pub fn title(cell: &[Entry]) -> String {
    let plural = if cell[0].threads == 1 { "" } else { "s" };
    format!("{}, {} thread{plural}", cell[0].workload, cell[0].threads)
}
