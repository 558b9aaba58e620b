//! How tables are shown: published numbers next to simulated ones, then the parameters of the
//! simulation with their origins.

use std::io::Write;
use std::ops::Range;

use kinlock_cli::report::html::{Page, Picture};
use kinlock_cli::report::table::{Columns, Table};
use kinlock_cli::report::units::three_digits;
use kinlock_cli::report::{self, Flags};
use kinlock_measure::machine::Parameter;

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
            // An origin is only shown in its first row.
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

    fn page(&self, pictures: &[Picture]) -> anyhow::Result<Page> {
        let mut page = Page::new("kinlock-lab reproduce");
        pictures.iter().for_each(|picture| page.picture(picture));
        for entry in &self.tables {
            page.heading(2, entry.table);
            page.paragraph(&format!(
                "Published: {}.\nSimulated{}.",
                entry.source,
                simulated(entry)
            ));
            let table = table(entry);
            page.table(entry.table, &table, 1..table.headings.len());
            page.list(remarks(entry));
        }
        for (what, parameters) in parameters(self) {
            let heading = format!("Parameters of {what}");
            page.heading(2, &heading);
            page.table(&heading, &by_origin(parameters), VALUE);
        }
        Ok(page)
    }

    fn csv(&self) -> Table {
        let all = self.tables.iter();
        let rows = all.flat_map(|entry| {
            let rows = entry.rows.iter().chain(&entry.observed);
            rows.map(move |row| (entry.table, row))
        });
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
            .add("published_sd", move |(_, row)| {
                or_empty(row.published_sd.map(|sd| format!("{sd:.4}")))
            })
            .add("simulated_sd", move |(_, row)| {
                or_empty(row.simulated_sd.map(|sd| format!("{sd:.4}")))
            })
            .of(&rows.collect::<Vec<_>>())
    }
}

/// What was simulated, to follow the word "simulated".
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

/// Published numbers next to simulated ones, each with its standard deviation if there is one. An
/// exclamation mark means that the error is beyond the target.
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
            let simulated = with_deviation(band.median, number.simulated_sd);
            let Some((published, error)) = number.published.zip(number.error_pct) else {
                cells.push(simulated);
                continue;
            };
            cells.extend([with_deviation(published, number.published_sd), simulated]);
            let (low, high) = (three_digits(band.min), three_digits(band.max));
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

/// As `4.37±0.24`.
fn with_deviation(value: f64, deviation: Option<f64>) -> String {
    let value = three_digits(value);
    match deviation {
        Some(deviation) => format!("{value}±{}", three_digits(deviation)),
        None => value,
    }
}

/// How many of the assumed numbers that affect speed-ups are shown.
const SHOWN: usize = 4;

/// The remarks below a table: how many targets were met, the scale, and each note on a miss once,
/// with the names of its rows.
fn remarks(entry: &TableEntry) -> Vec<String> {
    let mut remarks = vec![entry.verdict.clone()];
    if let Some(scale) = entry.scale {
        let first = entry.columns[0];
        remarks.push(format!(
            "simulated throughputs are times {scale:.3}: published over simulated, {first}, first \
             row"
        ));
    }
    remarks.extend(missed(entry, true));
    remarks.extend(missed(entry, false));
    remarks.extend(deviations(entry));
    remarks.extend(entry.observed.iter().map(observed));
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
        let name = name(entry, noted);
        match notes.iter_mut().find(|(_, known)| *known == noted.note) {
            Some((names, _)) => *names += &format!("; {name}"),
            None => notes.push((name, &noted.note)),
        }
    }
    let notes = notes.into_iter();
    remarks.extend(notes.map(|(names, note)| format!("{names}: believed cause: {note}")));
    remarks
}

/// The name of a row in a sentence.
fn name(entry: &TableEntry, row: &RowEntry) -> String {
    match entry.row_key {
        "threads" => format!("{} threads", row.key),
        _ => row.label.clone(),
    }
}

/// The numbers that miss because the simulated one is better, or because it is worse.
fn missed(entry: &TableEntry, too_good: bool) -> Option<String> {
    let missed = entry.rows.iter();
    let missed = missed.filter(|row| row.too_good == Some(too_good));
    let mut by_column: Vec<(&str, Vec<String>)> = Vec::new();
    for row in missed {
        let name = format!("{} ({:+.0} %)", row.label, row.error_pct.unwrap_or(0.0));
        match by_column
            .iter_mut()
            .find(|(column, _)| *column == row.column)
        {
            Some((_, names)) => names.push(name),
            None => by_column.push((row.column, vec![name])),
        }
    }
    let than = if too_good { "better" } else { "worse" };
    let columns = by_column.iter();
    let columns: Vec<_> = columns
        .map(|(column, names)| format!("{column}, {} {}", entry.row_key, names.join(", ")))
        .collect();
    (!columns.is_empty()).then(|| {
        format!(
            "simulated {than} than published, beyond the target: {}",
            columns.join("; ")
        )
    })
}

/// By how many standard deviations of a published run a speed-up may be off without a remark.
const DEVIATIONS: f64 = 2.0;

/// The speed-ups that are farther off than published runs are from each other, if that is
/// published.
fn deviations(entry: &TableEntry) -> Option<String> {
    let rows = entry.rows.iter().filter(|row| row.column == "speedup");
    let known = rows.filter_map(|row| {
        let (published, sd) = row.published.zip(row.published_sd)?;
        Some((row, (row.simulated.median - published).abs() / sd))
    });
    let known: Vec<_> = known.collect();
    let beyond = known.iter().filter(|(_, times)| *times > DEVIATIONS);
    let beyond = beyond.map(|(row, times)| format!("{} ({times:.1})", row.label));
    let beyond: Vec<_> = beyond.collect();
    let which = match beyond.is_empty() {
        true => "none".to_owned(),
        false => format!("{} {}", entry.row_key, beyond.join(", ")),
    };
    (!known.is_empty()).then(|| {
        format!(
            "speed-ups more than {DEVIATIONS} standard deviations of a published run off: {which}"
        )
    })
}

/// What was observed inside of a run.
fn observed(row: &RowEntry) -> String {
    let mark = if row.pass == Some(false) { "!" } else { "" };
    let simulated = with_deviation(row.simulated.median, row.simulated_sd);
    format!(
        "{}, {}: published {}, simulated {simulated} ({:+.0} %{mark})",
        row.column,
        row.label,
        three_digits(row.published.unwrap_or(0.0)),
        row.error_pct.unwrap_or(0.0),
    )
}

/// The parameters of every machine and workload of the tables, each once.
fn parameters(report: &Report) -> Vec<(String, &[Parameter])> {
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

fn by_origin(parameters: &[Parameter]) -> Table {
    let mut sorted: Vec<_> = parameters.iter().collect();
    sorted.sort_by_key(|parameter| parameter.origin);
    Columns::<Parameter>::new()
        .add("origin", |p| p.origin)
        .add("parameter", |p| p.name)
        .add("value", |p| p.value.clone())
        .add("source, or what it was fitted on", |p| p.source.clone())
        .of(sorted)
}

/// The column of values, which is aligned at the right.
const VALUE: Range<usize> = 2..3;
