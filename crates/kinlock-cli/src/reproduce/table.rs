//! The tables on stdout: published beside simulated, then what the simulation rests on.

use std::io::Write;

use comfy_table::Table;

use super::ids;
use super::results::{Report, RowEntry, TableEntry};
use crate::output::table;
use crate::output::units::three_digits;
use crate::sim::provenance::ParameterEntry;

/// Writes all tables.
///
/// # Errors
/// As the writer has them.
pub fn write(report: &Report, mut out: impl Write) -> anyhow::Result<()> {
    for entry in &report.tables.locks {
        writeln!(out, "{}", entry.table)?;
        writeln!(out, "published: {}", entry.source)?;
        writeln!(
            out,
            "simulated: {}; workload {}; {}",
            entry.machine.name,
            entry.workload.name,
            locks(entry)
        )?;
        writeln!(out, "both in {}\n", entry.unit)?;
        writeln!(out, "{}\n", comparison(entry))?;
        writeln!(out, "{}", entry.verdict())?;
        writeln!(out, "{}", scale(entry))?;
        for (rows, note) in notes(entry) {
            writeln!(out, "{rows}: believed cause: {note}")?;
        }
        writeln!(out)?;
    }
    for entry in &report.tables.ids {
        ids::write(entry, &mut out)?;
    }
    for (what, parameters) in parameters(report) {
        writeln!(out, "parameters of {what}")?;
        writeln!(out, "{}\n", by_origin(parameters))?;
    }
    Ok(())
}

/// How many columns the comparison has.
pub const WIDTH: usize = 13;

/// The headings of the comparison, one per column of [`cells`].
pub fn headings(entry: &TableEntry) -> [String; WIDTH] {
    let [first, second] = entry.columns;
    let mut headings = [
        "", "", "\nsim.", "\nband", "\nerror", "", "\nsim.", "\nband", "\nerror", "", "\nsim.",
        "\nband", "\nerror",
    ]
    .map(str::to_owned);
    headings[0] = format!("\n{}", entry.row_key);
    for (place, name) in [(1, first), (5, second), (9, "speed-up")] {
        headings[place] = format!("{name}\npubl.");
    }
    headings
}

/// The texts of a published row. An error with an exclamation mark is beyond its target.
pub fn cells(row: &[RowEntry]) -> Vec<String> {
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

/// What the throughputs were scaled by, in a sentence.
pub fn scale(entry: &TableEntry) -> String {
    format!(
        "simulated throughputs are times {:.3}: published over simulated, {}, first row",
        entry.scale, entry.columns[0]
    )
}

/// Which locks stand for the columns.
pub fn locks(entry: &TableEntry) -> String {
    let [first, second] = entry.columns;
    let (stock, cna) = (&entry.stock.name, &entry.cna.name);
    format!("{first} = {stock}, {second} = {cna}")
}

/// The notes on rows that were missed, each once, with the names of their rows.
pub fn notes(entry: &TableEntry) -> Vec<(String, &str)> {
    let mut notes: Vec<(String, &str)> = Vec::new();
    for row in entry.published_rows() {
        let Some(noted) = row.iter().find(|entry| !entry.note.is_empty()) else {
            continue;
        };
        let name = match entry.row_key {
            "threads" => format!("{} threads", noted.key),
            _ => noted.label.clone(),
        };
        match notes.iter_mut().find(|(_, note)| *note == noted.note) {
            Some((names, _)) => *names += &format!("; {name}"),
            None => notes.push((name, &noted.note)),
        }
    }
    notes
}

/// The parameters of every machine and workload of the tables, each once.
pub fn parameters(report: &Report) -> Vec<(String, &[ParameterEntry])> {
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

/// The parameters in the order of their origins.
pub fn sorted(parameters: &[ParameterEntry]) -> Vec<&ParameterEntry> {
    let mut sorted: Vec<_> = parameters.iter().collect();
    let rank = |origin: &str| ORIGINS.iter().position(|known| *known == origin);
    sorted.sort_by_key(|parameter| rank(&parameter.origin).unwrap_or(ORIGINS.len()));
    sorted
}

fn comparison(entry: &TableEntry) -> Table {
    let mut table = table::plain();
    table.set_header(headings(entry));
    for row in entry.published_rows() {
        table.add_row(cells(row));
    }
    let labels = (entry.row_key != "threads") as usize;
    table::align_right(&mut table, labels, WIDTH - labels);
    table
}

fn by_origin(parameters: &[ParameterEntry]) -> Table {
    let mut table = table::plain();
    table.set_header([
        "origin",
        "parameter",
        "value",
        "source, or what it was fitted on",
    ]);
    let mut origin = "";
    for parameter in sorted(parameters) {
        let is_new = std::mem::replace(&mut origin, &parameter.origin) != origin;
        table.add_row([
            if is_new { origin } else { "" },
            &parameter.name,
            &parameter.value,
            &parameter.source,
        ]);
    }
    table::align_right(&mut table, 2, 1);
    table
}
