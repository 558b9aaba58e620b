//! The results on one screen: a row per cell, a column per subject, and what they mean in
//! sentences.

use std::io::Write;

use comfy_table::{Attribute, Cell, Color};
use kinlock_cli::report::cells::{Cells, best_first};
use kinlock_cli::report::html::Page;
use kinlock_cli::report::table::{Table, WIDTH, wrapped};
use kinlock_cli::report::units::{rate, three_digits, time};
use kinlock_measure::stats::geometric_mean;

use super::results::{Report, Shown, names};
use super::suite::Entry;

/// The most rows that fit on a screen. If there are more, each workload shows only its lowest, its
/// highest and a middle number of threads.
const MOST_ROWS: usize = 24;
/// The most subjects that fit side by side. If there are more, the fastest of the rest share a
/// column.
const MOST_COLUMNS: usize = 12;
/// A subject with this share of the best throughput counts as fast.
const FAST: f64 = 0.95;

pub fn write<S: Shown>(report: &Report<S>, out: &mut dyn Write) -> anyhow::Result<()> {
    if cells(report).next().is_some() {
        write_table(report, out)?;
    }
    S::write_more(report, out)
}

/// Adds the overview to a page, whose boxes have room for all columns.
pub fn page<S: Shown>(report: &Report<S>, page: &mut Page) -> anyhow::Result<()> {
    if cells(report).next().is_some() {
        page.list(sentences(report));
        let names = names(&report.results);
        let table = table(&rows(report), &names, true);
        page.table(&caption(report), &table, 1..table.headings.len());
    }
    let mut more = Vec::new();
    S::write_more(report, &mut more)?;
    page.lines(&String::from_utf8_lossy(&more));
    Ok(())
}

/// The caption of the table.
fn caption<S: Shown>(report: &Report<S>) -> String {
    let rounds = report.extent.rounds_per_cell(report.parameters.plan.rounds);
    format!(
        "Operations per second, median of {rounds} (* fastest, ~ noisy, ! unfair or long waits)"
    )
}

/// The cells that have a row of their own.
fn cells<S: Shown>(report: &Report<S>) -> impl Iterator<Item = &[Entry<S>]> {
    report.cells().filter(|cell| S::has_row(report, &cell[0]))
}

/// CPU time per operation, divided by the least among the fast subjects.
pub fn cpu_over_least<S: Shown>(own: &Entry<S>, cell: &[Entry<S>]) -> f64 {
    let least = fast(cell.iter()).map(|entry| entry.cpu_ns_per_op.median);
    own.cpu_ns_per_op.median / least.fold(f64::INFINITY, f64::min)
}

/// The entries that are about as fast as the fastest one.
pub fn fast<'a, S: Shown>(
    entries: impl Iterator<Item = &'a Entry<S>> + Clone,
) -> impl Iterator<Item = &'a Entry<S>> {
    let ops = |entry: &Entry<S>| entry.ops_per_s.median;
    let best = entries.clone().map(ops).fold(0.0, f64::max);
    entries.filter(move |entry| ops(entry) >= FAST * best)
}

fn write_table<S: Shown>(report: &Report<S>, out: &mut dyn Write) -> anyhow::Result<()> {
    writeln!(out, "{}", caption(report))?;
    let table = fitting(report);
    let painted = table.painted(1..table.headings.len(), |_, text| match text {
        _ if text.contains('!') => Cell::new(text).fg(Color::Red),
        _ if text.contains('*') => Cell::new(text).add_attribute(Attribute::Bold),
        _ => Cell::new(text),
    });
    writeln!(out, "{}\n", table.fitted(painted))?;
    for sentence in sentences(report) {
        writeln!(out, "{}", wrapped(&sentence, ""))?;
    }
    Ok(())
}

fn rows<S: Shown>(report: &Report<S>) -> Vec<&[Entry<S>]> {
    let all: Vec<_> = cells(report).collect();
    if all.len() <= MOST_ROWS {
        return all;
    }
    let workloads = all.chunk_by(|a, b| a[0].workload == b[0].workload);
    let chosen = workloads.flat_map(|cells| {
        let mut places = vec![0, (cells.len() - 1).div_ceil(2), cells.len() - 1];
        places.dedup();
        places.into_iter().map(|place| cells[place])
    });
    chosen.collect()
}

/// The table. If it is too wide for a screen, the last columns of the other subjects are left out.
fn fitting<S: Shown>(report: &Report<S>) -> Table {
    let rows = rows(report);
    let mut names = names(&report.results);
    let has_all = names.len() <= MOST_COLUMNS;
    if !has_all {
        names.retain(|name| S::OURS.contains(name));
    }
    loop {
        let table = table(&rows, &names, has_all);
        let other = names.iter().rposition(|name| !S::OURS.contains(name));
        match other {
            Some(other) if table.width() > WIDTH => names.remove(other),
            _ => return table,
        };
    }
}

fn table<S: Shown>(rows: &[&[Entry<S>]], names: &[&str], has_all: bool) -> Table {
    let mut headings = vec!["workload\nand threads".to_owned()];
    headings.extend(names.iter().map(|name| name.replace('-', "\n")));
    if !has_all {
        headings.extend(["baseline", "fastest of\nthe rest"].map(str::to_owned));
    }
    let mut ours = S::OURS.iter();
    let ours = ours.find(|name| {
        rows.iter()
            .any(|cell| cell.iter().any(|e| e.lock == **name))
    });
    headings.push(format!("cpu/op of\n{}", ours.unwrap_or(&"the fastest")));
    let rows = rows.iter().map(|cell| {
        let of = |name: &str| cell.iter().find(|entry| entry.lock == name);
        let shown = |name: &&str| of(name).map_or("-".to_owned(), |entry| value(entry, cell));
        let mut row = vec![format!("{:<10} {:>2}", cell[0].workload, cell[0].threads)];
        row.extend(names.iter().map(shown));
        if !has_all {
            let baseline = of(&cell[0].ratio.to);
            let rest = best_first(cell).into_iter();
            let mut rest = rest.filter(|e| !names.contains(&&*e.lock) && e.lock != e.ratio.to);
            let named = |entry: &Entry<S>| format!("{} {}", entry.lock, value(entry, cell));
            row.extend([baseline, rest.next()].map(|entry| entry.map_or("-".into(), named)));
        }
        let own = ours
            .and_then(|name| of(name))
            .unwrap_or(best_first(cell)[0]);
        row.push(cpu_time(own, cell));
        row
    });
    Table {
        headings,
        rows: rows.collect(),
    }
}

/// `213ns(1.30)`: CPU time per operation, and its ratio to the least among the fast locks.
fn cpu_time<S: Shown>(own: &Entry<S>, cell: &[Entry<S>]) -> String {
    let over = three_digits(cpu_over_least(own, cell));
    format!(
        "{}({over})",
        time(own.cpu_ns_per_op.median).replace(' ', "")
    )
}

/// `12.3M*`.
fn value<S: Shown>(entry: &Entry<S>, cell: &[Entry<S>]) -> String {
    let ops = entry.ops_per_s.median;
    let noisy = if entry.noisy { "~" } else { "" };
    let remarks = if S::remarks(entry).is_empty() {
        ""
    } else {
        "!"
    };
    let is_best = cell.len() > 1 && cell.iter().all(|other| other.ops_per_s.median <= ops);
    let best = if is_best { "*" } else { "" };
    format!("{noisy}{}{best}{remarks}", rate(ops).replace(' ', ""))
}

/// Sentences about the results of the first of our subjects that was measured.
fn sentences<S: Shown>(report: &Report<S>) -> Vec<String> {
    let is_there = |name: &&&str| report.results.iter().any(|entry| entry.lock == **name);
    let Some(&ours) = S::OURS.iter().find(is_there) else {
        return Vec::new();
    };
    let rows: Vec<Standing<S>> = cells(report)
        .filter_map(|cell| Standing::of(ours, cell))
        .collect();
    match rows.is_empty() {
        true => Vec::new(),
        false => [compared(ours, &rows), placed(&rows), alone(ours, &rows)]
            .into_iter()
            .flatten()
            .collect(),
    }
}

/// How our subject compares in a cell.
struct Standing<'a, S: Shown> {
    own: &'a Entry<S>,
    /// The baseline, or the fastest of the others if ours is the baseline.
    other: &'a Entry<S>,
    is_baseline: bool,
    best: &'a Entry<S>,
}

impl<'a, S: Shown> Standing<'a, S> {
    fn of(ours: &str, cell: &'a [Entry<S>]) -> Option<Self> {
        let own = cell.iter().find(|entry| entry.lock == ours)?;
        let order = best_first(cell);
        let is_baseline = own.ratio.to != ours;
        let mut others = order.iter().filter(|entry| match is_baseline {
            true => entry.lock == own.ratio.to,
            false => entry.lock != ours && !S::OURS.contains(&&*entry.lock),
        });
        let other = others.next()?;
        let best = order[0];
        Some(Standing {
            own,
            other,
            is_baseline,
            best,
        })
    }

    fn ratio(&self) -> f64 {
        match self.is_baseline {
            true => self.own.ratio.over_rounds.median,
            false => self.own.ops_per_s.median / self.other.ops_per_s.median,
        }
    }

    /// The name of the row in the table.
    fn place(&self) -> String {
        format!("{} {}", self.own.workload, self.own.threads)
    }

    /// Our throughput as a share of the best.
    fn share(&self) -> f64 {
        self.own.ops_per_s.median / self.best.ops_per_s.median
    }
}

fn compared<S: Shown>(ours: &str, rows: &[Standing<S>]) -> Option<String> {
    let same = rows.iter().all(|row| row.other.lock == rows[0].other.lock);
    let to = match (same, rows[0].is_baseline) {
        (true, _) => &rows[0].other.lock,
        (_, true) => "the baseline",
        (_, false) => "the fastest rival",
    };
    let by_ratio = |a: &&Standing<S>, b: &&Standing<S>| a.ratio().total_cmp(&b.ratio());
    let (least, most) = (rows.iter().min_by(by_ratio)?, rows.iter().max_by(by_ratio)?);
    let mean = three_digits(geometric_mean(rows.iter().map(Standing::ratio)));
    let shown = |row: &Standing<S>| format!("{} ({})", three_digits(row.ratio()), row.place());
    let range = match rows.len() {
        1 => format!("in {}.", most.place()),
        _ => format!("(geometric mean): {} to {}.", shown(least), shown(most)),
    };
    Some(format!(
        "On this machine {ours} is {mean} times as fast as {to} {range}"
    ))
}

fn placed<S: Shown>(rows: &[Standing<S>]) -> Option<String> {
    let fast = rows.iter().filter(|row| row.share() >= FAST).count();
    let worst = rows.iter().min_by(|a, b| a.share().total_cmp(&b.share()))?;
    let all = rows.len();
    let behind = match worst.share() < FAST {
        true => {
            let (place, share) = (worst.place(), 100.0 * worst.share());
            let best = &worst.best.lock;
            format!("; furthest behind in {place}, with {share:.0} % of {best}")
        }
        false => String::new(),
    };
    Some(format!(
        "It is the fastest, or within 5 % of that, in {fast} of {all} cases{behind}."
    ))
}

fn alone<S: Shown>(ours: &str, rows: &[Standing<S>]) -> Option<String> {
    let row = rows.iter().find(|row| row.own.threads == 1)?;
    let takes = |entry: &Entry<S>| time(entry.ns_per_op.median);
    let (place, own) = (row.place(), takes(row.own));
    let mut text = format!("Alone ({place}) it takes {own} per operation");
    text += &format!(", {} takes {}", row.other.lock, takes(row.other));
    if row.best.lock != ours && row.best.lock != row.other.lock {
        text += &format!(", and {}, the fastest, {}", row.best.lock, takes(row.best));
    }
    Some(text + ".")
}
