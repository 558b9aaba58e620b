//! How tables are shown: published beside simulated, then what the simulation rests on.

use std::io::Write;
use std::ops::Range;

use kinlock_cli::report::table::{Columns, Table};
use kinlock_cli::report::units::three_digits;
use kinlock_cli::report::{self, Flags};
use kinlock_measure::machine::ParameterEntry;

use super::results::{Report, RowEntry, TableEntry};

impl report::Report for Report {
    const FLAGS: Flags = Flags {
        json: "Write the full report as JSON (- for stdout)",
        csv: "Write one line per number as CSV (- for stdout)",
    };

    fn text(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        for entry in &self.tables {
            let table = table(entry);
            let labels = (entry.row_key != "threads") as usize;
            writeln!(out, "{}\npublished: {}", entry.table, entry.source)?;
            writeln!(out, "simulated{}\n", simulated(entry))?;
            writeln!(out, "{}\n", table.text(labels..table.headings.len()))?;
            for remark in remarks(entry) {
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
        for entry in &self.tables {
            let table = table(entry);
            writeln!(out, "### {}\n\nPublished: {}.\n", entry.table, entry.source)?;
            writeln!(out, "Simulated{}.\n", simulated(entry))?;
            table.markdown(0..table.headings.len(), out)?;
            writeln!(out)?;
            for remark in remarks(entry) {
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
        let all = self.tables.iter();
        let rows = all.flat_map(|entry| entry.rows.iter().map(move |row| (entry.table, row)));
        let or_empty = |number: Option<String>| number.unwrap_or_default();
        Columns::<(&str, &RowEntry)>::new()
            .add("table", |(table, _)| *table)
            .add("threads", |(_, row)| row.key)
            .add("column", |(_, row)| row.column)
            .add("published", move |(_, row)| {
                or_empty(row.published.map(|n| n.to_string()))
            })
            .band("simulated", ["low", "high"], 6, |(_, row)| {
                row.simulated.into()
            })
            .add("error_pct", move |(_, row)| {
                or_empty(row.error_pct.map(|n| format!("{n:.2}")))
            })
            .add("pass", move |(_, row)| {
                or_empty(row.pass.map(|pass| pass.to_string()))
            })
            .add("label", |(_, row)| row.label.clone())
            .of(&rows.collect::<Vec<_>>())
    }
}

/// What was simulated, after that word.
fn simulated(entry: &TableEntry) -> String {
    let locks = entry.locks.iter();
    let locks: Vec<_> = locks
        .map(|(column, lock)| format!("{column} = {}", lock.name))
        .collect();
    let (machine, workload) = (&entry.machine.name, &entry.workload.name);
    let locks = locks.join(", ");
    let unit = entry.unit;
    format!(": {machine}; workload {workload}; {locks}; in {unit}")
}

/// Published beside simulated. An error with an exclamation mark is beyond its target.
fn table(entry: &TableEntry) -> Table {
    // There is no room for the bands of more than two locks.
    let shows_bands = entry.locks.len() <= 2;
    let is_published = |index: usize| {
        entry
            .published_rows()
            .any(|row| row[index].published.is_some())
    };
    let mut headings = vec![format!("\n{}", entry.row_key)];
    for (index, heading) in entry.headings.iter().enumerate() {
        if !is_published(index) {
            headings.push(format!("{heading}\nsim."));
            continue;
        }
        headings.extend([format!("{heading}\npubl."), "\nsim.".to_owned()]);
        headings.extend(shows_bands.then(|| "\nband".to_owned()));
        headings.push("\nerror".to_owned());
    }
    let cells = |row: &[RowEntry]| {
        let mut cells = vec![row[0].label.clone()];
        for number in row {
            let band = &number.simulated;
            let simulated = three_digits(band.median);
            let Some((published, error)) = number.published.zip(number.error_pct) else {
                cells.push(simulated);
                continue;
            };
            cells.extend([three_digits(published), simulated]);
            let (low, high) = (three_digits(band.low), three_digits(band.high));
            cells.extend(shows_bands.then(|| format!("{low}..{high}")));
            let mark = if number.pass == Some(false) { "!" } else { " " };
            cells.push(format!("{error:+.0}%{mark}"));
        }
        cells
    };
    Table {
        headings,
        rows: entry.published_rows().map(cells).collect(),
    }
}

/// How many assumed numbers are shown, of those that speed-ups hang on.
const SHOWN: usize = 4;

/// What to say below a table: how many targets were met, the scale, and each note on what was
/// missed once, with the names of the rows that have it.
fn remarks(entry: &TableEntry) -> Vec<String> {
    let mut remarks = vec![entry.verdict.clone()];
    if let Some(scale) = entry.scale {
        let first = entry.columns[0];
        remarks.push(format!(
            "simulated throughputs are times {scale:.3}: published over simulated, {first}, first \
             row"
        ));
    }
    if !entry.hangs_on.is_empty() {
        let first = entry.hangs_on.iter().take(SHOWN);
        let first = first.map(|on| format!("{} {:+.2}", on.name, on.rank_correlation));
        let first: Vec<_> = first.collect();
        remarks.push(format!(
            "assumed numbers that speed-ups hang on (mean rank correlation): {}",
            first.join(", ")
        ));
    }
    let mut notes: Vec<(String, &str)> = Vec::new();
    for row in entry.published_rows() {
        let Some(noted) = row.iter().find(|number| !number.note.is_empty()) else {
            continue;
        };
        let name = match entry.row_key {
            "threads" => format!("{} threads", noted.key),
            _ => noted.label.clone(),
        };
        match notes.iter_mut().find(|(_, known)| *known == noted.note) {
            Some((names, _)) => *names += &format!("; {name}"),
            None => notes.push((name, &noted.note)),
        }
    }
    let notes = notes.into_iter();
    remarks.extend(notes.map(|(names, note)| format!("{names}: believed cause: {note}")));
    remarks
}

/// The parameters of every machine and workload of the tables, each once.
fn parameters(report: &Report) -> Vec<(String, &[ParameterEntry])> {
    let tables = report.tables.iter();
    let machines = tables.clone().map(|table| {
        let machine = &table.machine;
        (format!("machine {}", machine.name), &*machine.parameters)
    });
    let workloads = tables.map(|table| {
        let workload = &table.workload;
        (format!("workload {}", workload.name), &*workload.parameters)
    });
    let mut all = machines.chain(workloads).collect();
    kinlock_cli::args::keep_first(&mut all, |(what, _)| what.clone());
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
