//! The columns of the tables for people, on stdout and in Markdown.

use crate::bench::flags::Flag;
use crate::bench::results::Entry;
use crate::output::units::{rate, three_digits, time};

/// A column: its heading and the text of an entry in it.
pub struct Column {
    /// The heading.
    pub heading: String,
    /// The text.
    pub text: fn(&Entry) -> String,
}

/// The columns that tell something about a cell.
pub fn of_cell(cell: &[&Entry], domains: usize) -> Vec<Column> {
    let crowd = cell[0].threads > 1;
    let mut columns = vec![
        column("ops/s", |e| rate(e.ops_per_s.median)),
        column("ns/op", |e| three_digits(e.ns_per_op.median)),
        column(&format!("x {}", cell[0].ratio.to), ratio),
        column("spread", |e| {
            let ratio = &e.ratio.over_rounds;
            format!("{}..{}", three_digits(ratio.min), three_digits(ratio.max))
        }),
    ];
    if crowd {
        columns.extend([
            column("jain", |e| format!("{:.2}", e.fairness.jain)),
            column("min/mean", |e| format!("{:.2}", e.fairness.min_over_mean)),
            column("wait p50", |e| time(e.acquire_ns.p50 as f64)),
            column("p99", |e| time(e.acquire_ns.p99 as f64)),
            column("p99.9", |e| time(e.acquire_ns.p999 as f64)),
            column("max", |e| time(e.acquire_ns.max as f64)),
        ]);
        if domains > 1 {
            columns.push(column("local", |e| match e.handoffs.local_share() {
                Some(share) => format!("{:.0}%", 100.0 * share),
                None => "-".to_owned(),
            }));
        }
    }
    columns.push(column("cpu/op", |e| time(e.cpu_ns_per_op.median)));
    columns.push(column("", |e| {
        let flags = e.flags.iter().filter(|&&flag| flag != Flag::Noisy);
        flags.map(Flag::to_string).collect::<Vec<_>>().join(", ")
    }));
    columns
}

/// The ratio, marked if it means nothing.
pub fn ratio(entry: &Entry) -> String {
    let mark = if entry.flags.contains(&Flag::Noisy) {
        "~"
    } else {
        ""
    };
    format!("{mark}{}", three_digits(entry.ratio.over_rounds.median))
}

/// The entries of a cell, the fastest lock first.
pub fn best_first(cell: &[Entry]) -> Vec<&Entry> {
    let mut entries: Vec<&Entry> = cell.iter().collect();
    entries.sort_by(|a, b| b.ops_per_s.median.total_cmp(&a.ops_per_s.median));
    entries
}

/// What a cell is called: `counter, 8 threads`.
pub fn title(cell: &[Entry]) -> String {
    let plural = if cell[0].threads == 1 { "" } else { "s" };
    format!("{}, {} thread{plural}", cell[0].workload, cell[0].threads)
}

fn column(heading: &str, text: fn(&Entry) -> String) -> Column {
    Column {
        heading: heading.to_owned(),
        text,
    }
}
