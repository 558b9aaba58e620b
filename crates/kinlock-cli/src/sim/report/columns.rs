//! The columns of the tables for people, on stdout and in Markdown.

use crate::output::units::{rate, three_digits, time};
use crate::sim::results::Entry;

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
