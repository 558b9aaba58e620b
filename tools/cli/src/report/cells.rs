//! Reports in cells. A cell is one workload with one number of threads. It has an entry for each
//! lock, or whatever else was compared.

use std::io::Write;

use comfy_table::Cell;
use kinlock_measure::stats::{Fairness, Summary};
use serde::Serialize;

use super::html::{Page, Picture};
use super::table::{Columns, Table, wrapped};
use super::units::{rate, three_digits};
use super::{Flags, Report};

/// A report in cells. The implementation of [`Report`] below holds for all such reports.
pub trait Cells: Serialize + Sized + 'static {
    type Entry: Compared;
    const FLAGS: Flags;
    /// The heading of the column of names.
    const NAMES: &'static str = "lock";

    /// All entries, cell by cell.
    fn entries(&self) -> &[Self::Entry];

    /// The columns for people, without the names, of the cell to which `entry` belongs.
    fn columns(&self, entry: &Self::Entry) -> Columns<Self::Entry>;

    fn csv_columns() -> Columns<Self::Entry>;

    fn page_title(&self) -> String;

    /// The heading of all tables on stdout.
    fn heading(&self) -> String;

    /// The heading of all tables in Markdown.
    fn markdown_heading(&self) -> String;

    /// A sentence about a workload, shown above its tables.
    fn about(&self, _workload: &str) -> Option<String> {
        None
    }

    /// The heading of the table of a cell.
    fn title(&self, entry: &Self::Entry) -> String {
        entry.usual().cell()
    }

    /// A text as a cell on stdout.
    fn paint(_heading: &str, text: &str) -> Cell {
        Cell::new(text)
    }

    /// Whether stdout has a table of each cell.
    fn shows_tables(&self) -> bool {
        true
    }

    /// Writes what follows the tables on stdout.
    fn overview(&self, _out: &mut dyn Write) -> anyhow::Result<()> {
        Ok(())
    }

    /// Adds a summary of all tables to a page.
    fn page_overview(&self, _page: &mut Page) -> anyhow::Result<()> {
        Ok(())
    }

    /// What to keep in mind when reading the results.
    fn warnings(&self) -> &[String] {
        &[]
    }

    fn cells(&self) -> impl Iterator<Item = &[Self::Entry]> {
        self.entries().chunk_by(|a, b| {
            let (a, b) = (a.usual(), b.usual());
            (a.workload, a.threads) == (b.workload, b.threads)
        })
    }

    fn by_workload(&self) -> Vec<&[Self::Entry]> {
        let entries = self.entries();
        let workloads = entries.chunk_by(|a, b| a.usual().workload == b.usual().workload);
        workloads.collect()
    }
}

pub trait Compared: 'static {
    /// The fields that all kinds of entries have.
    fn usual(&self) -> Usual<'_>;
}

/// The fields that all kinds of entries have.
#[derive(Clone, Copy, Debug)]
pub struct Usual<'a> {
    pub suite: &'static str,
    pub workload: &'a str,
    pub threads: usize,
    /// What was measured or simulated.
    pub lock: &'a str,
    /// Throughput: operations in a unit of time.
    pub ops: Summary,
    /// Nanoseconds from one operation to the next.
    pub ns_per_op: Summary,
    pub baseline: &'a str,
    /// Throughput divided by the baseline's.
    pub ratio: Summary,
    /// Whether the ratio is too noisy to mean anything.
    pub noisy: bool,
    pub fairness: Fairness,
}

impl Usual<'_> {
    /// The name of the cell: `counter, 8 threads`.
    pub fn cell(&self) -> String {
        let plural = if self.threads == 1 { "" } else { "s" };
        format!("{}, {} thread{plural}", self.workload, self.threads)
    }

    /// The ratio, marked if it is noisy.
    pub fn shown_ratio(&self) -> String {
        let mark = if self.noisy { "~" } else { "" };
        format!("{mark}{}", three_digits(self.ratio.median))
    }
}

/// Columns for people; those that begin with `csv_` are for spreadsheets.
impl<E: Compared> Columns<E> {
    pub fn speed(self) -> Self {
        self.add("ops/s", |e| rate(e.usual().ops.median))
            .add("ns/op", |e| three_digits(e.usual().ns_per_op.median))
    }

    pub fn ratio(self, heading: impl Into<String>) -> Self {
        self.add(heading, |e| e.usual().shown_ratio())
    }

    /// For people: the lowest and the highest value.
    pub fn spread(self, heading: &str, value: impl Fn(Usual) -> Summary + 'static) -> Self {
        self.add(heading, move |e| {
            let Summary { min, max, .. } = value(e.usual());
            format!("{}..{}", three_digits(min), three_digits(max))
        })
    }

    pub fn jain(self) -> Self {
        self.number("jain", 2, |e| e.usual().fairness.jain)
    }

    pub fn min_over_mean(self) -> Self {
        self.number("min/mean", 2, |e| e.usual().fairness.min_over_mean)
    }

    pub fn csv_key(self) -> Self {
        self.add("suite", |e| e.usual().suite)
            .add("workload", |e| e.usual().workload.to_owned())
            .add("threads", |e| e.usual().threads)
            .add("lock", |e| e.usual().lock.to_owned())
    }

    /// For spreadsheets: throughput, with the extremes under names with these ends.
    pub fn csv_ops(self, name: &str, ends: [&str; 2], decimals: usize) -> Self {
        self.band(name, ends, decimals, |e| e.usual().ops.into())
    }

    pub fn csv_ns_per_op(self) -> Self {
        self.number("ns_per_op", 3, |e| e.usual().ns_per_op.median)
    }

    pub fn csv_ratio(self) -> Self {
        self.add("ratio_to", |e| e.usual().baseline.to_owned())
            .band("ratio", ["min", "max"], 6, |e| e.usual().ratio.into())
            .number("jain", 4, |e| e.usual().fairness.jain)
    }

    pub fn csv_min_over_mean(self) -> Self {
        self.number("min_over_mean", 4, |e| e.usual().fairness.min_over_mean)
    }
}

/// The entries of a cell, the fastest first.
pub fn best_first<E: Compared>(cell: &[E]) -> Vec<&E> {
    let mut entries: Vec<&E> = cell.iter().collect();
    entries.sort_by(|a, b| b.usual().ops.median.total_cmp(&a.usual().ops.median));
    entries
}

/// The table of a cell, with its names.
fn table<R: Cells>(report: &R, cell: &[R::Entry]) -> Table {
    let entries = best_first(cell);
    let mut table = report.columns(&cell[0]).of(entries.iter().copied());
    table.headings.insert(0, R::NAMES.to_owned());
    for (row, entry) in table.rows.iter_mut().zip(entries) {
        row.insert(0, entry.usual().lock.to_owned());
    }
    table
}

/// A page with more tables than this has them folded.
const MOST_TABLES: usize = 32;

/// Adds the tables of all cells to a page.
fn add_tables<R: Cells>(report: &R, page: &mut Page) {
    let mut workload = "";
    for cell in report.cells() {
        let name = cell[0].usual().workload;
        if std::mem::replace(&mut workload, name) != name {
            page.heading(2, name);
            page.paragraph(&report.about(name).unwrap_or_default());
        }
        let table = table(report, cell);
        page.table(&report.title(&cell[0]), &table, 1..table.headings.len());
    }
}

impl<R: Cells> Report for R {
    const FLAGS: Flags = <R as Cells>::FLAGS;

    fn text(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        writeln!(out, "{}\n", self.heading())?;
        let mut workload = "";
        for cell in self.cells().filter(|_| self.shows_tables()) {
            let name = cell[0].usual().workload;
            let is_new = std::mem::replace(&mut workload, name) != name;
            if let Some(about) = self.about(name).filter(|_| is_new) {
                writeln!(out, "{name}: {about}\n")?;
            }
            let table = table(self, cell);
            let table = table.painted(1..table.headings.len(), R::paint);
            writeln!(out, "{}\n{table}\n", self.title(&cell[0]))?;
        }
        self.overview(out)?;
        for warning in self.warnings() {
            writeln!(out, "{}", wrapped(&format!("note: {warning}"), "      "))?;
        }
        Ok(())
    }

    fn markdown(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        writeln!(out, "{}\n", self.markdown_heading())?;
        for cell in self.cells() {
            let table = table(self, cell);
            writeln!(out, "### {}\n", self.title(&cell[0]))?;
            table.markdown(1..table.headings.len(), out)?;
            writeln!(out)?;
        }
        for warning in self.warnings() {
            writeln!(out, "- {warning}")?;
        }
        Ok(())
    }

    fn page(&self, pictures: &[Picture]) -> anyhow::Result<Page> {
        let mut page = Page::new(&self.page_title());
        page.paragraph(&self.markdown_heading());
        self.page_overview(&mut page)?;
        page.notes(self.warnings());
        pictures.iter().for_each(|picture| page.picture(picture));
        match self.cells().count() {
            cells if cells > MOST_TABLES => {
                page.folded(&format!("All {cells} tables"), |page| {
                    add_tables(self, page)
                });
            }
            _ => add_tables(self, &mut page),
        }
        Ok(page)
    }

    fn csv(&self) -> Table {
        R::csv_columns().of(self.entries())
    }
}
