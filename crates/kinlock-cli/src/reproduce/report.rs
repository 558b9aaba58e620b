//! How tables are shown: published beside simulated, then what the simulation rests on.

use std::io::Write;
use std::ops::Range;

use super::results::{Report, RowEntry, TableEntry};
use super::{ids, plot};
use crate::report::table::{Columns, Table};
use crate::report::units::three_digits;
use crate::report::{self, Flags, Plot};
use crate::sim::provenance::ParameterEntry;
use crate::sim::results::Band;

impl report::Report for Report {
    const FLAGS: Flags<Self> = Flags {
        json: "Write the full report as JSON (- for stdout)",
        csv: "Write one line per published number as CSV (- for stdout)",
        plot: Some(Plot {
            help: "Draw each table; the name ends in .svg or .png, and with several tables each one's name is put before that",
            size: plot::size,
            draw: plot::draw,
        }),
    };

    fn text(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        for shown in all(self) {
            let table = shown.table.text(shown.labels..shown.table.headings.len());
            writeln!(out, "{}\npublished: {}", shown.name, shown.source)?;
            writeln!(out, "{}\n\n{table}\n", shown.about)?;
            for remark in &shown.remarks {
                writeln!(out, "{remark}")?;
            }
            writeln!(out)?;
        }
        for (what, parameters) in parameters(self) {
            let mut table = by_origin(parameters);
            // An origin stands in its first row only.
            let mut origin = String::new();
            for row in &mut table.rows {
                match row[0] == origin {
                    true => row[0].clear(),
                    false => origin.clone_from(&row[0]),
                }
            }
            writeln!(out, "parameters of {what}\n{}\n", table.text(VALUE))?;
        }
        Ok(())
    }

    fn markdown(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        for shown in all(self) {
            writeln!(out, "### {}\n", shown.name)?;
            writeln!(out, "Published: {}.\n", shown.source)?;
            writeln!(out, "{}\n", shown.markdown_about)?;
            shown.table.markdown(0..shown.table.headings.len(), out)?;
            writeln!(out)?;
            for remark in &shown.remarks {
                writeln!(out, "- {remark}")?;
            }
            writeln!(out)?;
        }
        for (what, parameters) in parameters(self) {
            writeln!(out, "### Parameters of {what}\n")?;
            by_origin(parameters).markdown(VALUE, out)?;
            writeln!(out)?;
        }
        Ok(())
    }

    fn csv(&self) -> Table {
        let locks = self.tables.locks.iter().flat_map(|table| {
            table.rows.iter().map(|row| {
                let key = [table.table, &row.key.to_string(), row.column];
                let published = row.published.to_string();
                let error = two_decimals(Some(row.error_pct));
                line(key, published, row.simulated, error, row.pass, &row.label)
            })
        });
        let ids = self.tables.ids.iter().flat_map(|table| {
            table.rows.iter().map(|row| {
                let key = [table.table, &row.key.to_string(), row.column];
                let published = two_decimals(row.published);
                let error = two_decimals(row.error_pct);
                line(key, published, row.simulated, error, row.pass, &row.label)
            })
        });
        let headings = "table,threads,column,published,simulated,simulated_low,simulated_high,error_pct,pass,label";
        Table {
            headings: headings.split(',').map(str::to_owned).collect(),
            rows: locks.chain(ids).collect(),
        }
    }
}

fn two_decimals(number: Option<f64>) -> String {
    number.map_or_else(String::new, |number| format!("{number:.2}"))
}

/// A line of CSV.
fn line(
    key: [&str; 3],
    published: String,
    simulated: Band,
    error: String,
    pass: Option<bool>,
    label: &str,
) -> Vec<String> {
    let simulated = <[f64; 3]>::from(simulated).map(|number| format!("{number:.6}"));
    let pass = pass.map_or_else(String::new, |pass| pass.to_string());
    let key = key.map(str::to_owned).into_iter();
    key.chain([published])
        .chain(simulated)
        .chain([error, pass, label.to_owned()])
        .collect()
}

/// A table as it is shown.
pub struct Shown<'a> {
    /// Its name.
    pub name: &'a str,
    /// Where it was published.
    pub source: &'a str,
    /// What was simulated.
    pub about: String,
    /// The same for Markdown.
    pub markdown_about: String,
    /// The table.
    pub table: Table,
    /// How many columns are no numbers.
    pub labels: usize,
    /// What to say below it.
    pub remarks: Vec<String>,
}

fn all(report: &Report) -> impl Iterator<Item = Shown<'_>> {
    let locks = report.tables.locks.iter().map(shown);
    locks.chain(report.tables.ids.iter().map(ids::shown))
}

fn shown(entry: &TableEntry) -> Shown<'_> {
    let [first, second] = entry.columns;
    let what = format!(
        ": {}; workload {}; {first} = {}, {second} = {}",
        entry.machine.name, entry.workload.name, entry.stock.name, entry.cna.name
    );
    let scale = format!(
        "simulated throughputs are times {:.3}: published over simulated, {first}, first row",
        entry.scale
    );
    let mut remarks = vec![entry.verdict(), scale];
    remarks.extend(notes(entry.published_rows().filter_map(|row| {
        let noted = row.iter().find(|entry| !entry.note.is_empty())?;
        let name = match entry.row_key {
            "threads" => format!("{} threads", noted.key),
            _ => noted.label.clone(),
        };
        Some((name, &*noted.note))
    })));
    Shown {
        name: entry.table,
        source: entry.source,
        about: format!("simulated{what}\nboth in {}", entry.unit),
        markdown_about: format!("Simulated{what}; both in {}.", entry.unit),
        table: Table {
            headings: headings(entry),
            rows: entry.published_rows().map(cells).collect(),
        },
        labels: (entry.row_key != "threads") as usize,
        remarks,
    }
}

/// The headings of the comparison, one per column of [`cells`].
fn headings(entry: &TableEntry) -> Vec<String> {
    let [first, second] = entry.columns;
    let mut headings = vec![format!("\n{}", entry.row_key)];
    for name in [first, second, "speed-up"] {
        headings.push(format!("{name}\npubl."));
        headings.extend(["\nsim.", "\nband", "\nerror"].map(str::to_owned));
    }
    headings
}

/// The texts of a published row. An error with an exclamation mark is beyond its target.
fn cells(row: &[RowEntry]) -> Vec<String> {
    let mut cells = vec![row[0].label.clone()];
    for entry in row {
        let band = &entry.simulated;
        let mark = if entry.pass == Some(false) { "!" } else { " " };
        cells.extend([
            three_digits(entry.published),
            three_digits(band.median),
            format!("{}..{}", three_digits(band.low), three_digits(band.high)),
            format!("{:+.0}%{mark}", entry.error_pct),
        ]);
    }
    cells
}

/// The notes on what was missed, each once, with the names of the rows that have it.
pub fn notes<'a>(noted: impl Iterator<Item = (String, &'a str)>) -> Vec<String> {
    let mut notes: Vec<(String, &str)> = Vec::new();
    for (name, note) in noted {
        match notes.iter_mut().find(|(_, known)| *known == note) {
            Some((names, _)) => *names += &format!("; {name}"),
            None => notes.push((name, note)),
        }
    }
    let lines = notes.into_iter();
    lines
        .map(|(names, note)| format!("{names}: believed cause: {note}"))
        .collect()
}

/// The parameters of every machine and workload of the tables, each once.
fn parameters(report: &Report) -> Vec<(String, &[ParameterEntry])> {
    let mut all: Vec<(String, &[ParameterEntry])> = Vec::new();
    let locks = report.tables.locks.iter();
    let locks = locks.map(|table| (&table.machine, &table.workload));
    let ids = report.tables.ids.iter();
    let tables = locks.chain(ids.map(|table| (&table.machine, &table.workload)));
    let machines = tables
        .clone()
        .map(|(machine, _)| (format!("machine {}", machine.name), &*machine.parameters));
    let workloads = tables.map(|(_, workload)| {
        let name = format!("workload {}", workload.name);
        (name, &*workload.parameters)
    });
    for (what, parameters) in machines.chain(workloads) {
        if !all.iter().any(|(known, _)| *known == what) {
            all.push((what, parameters));
        }
    }
    all
}

/// The order in which parameters are shown: the firmest first. Others follow.
const ORIGINS: [&str; 4] = ["published", "measured", "fitted", "assumed"];

fn by_origin(parameters: &[ParameterEntry]) -> Table {
    let mut sorted: Vec<_> = parameters.iter().collect();
    let rank = |origin: &str| ORIGINS.iter().position(|known| *known == origin);
    sorted.sort_by_key(|parameter| rank(&parameter.origin).unwrap_or(ORIGINS.len()));
    Columns::<ParameterEntry>::new()
        .add("origin", |p| p.origin.clone())
        .add("parameter", |p| p.name.clone())
        .add("value", |p| p.value.clone())
        .add("source, or what it was fitted on", |p| p.source.clone())
        .of(sorted)
}

/// The column of values, which are aligned at the right.
const VALUE: Range<usize> = 2..3;
