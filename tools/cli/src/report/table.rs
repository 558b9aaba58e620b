//! Tables, in every form: with aligned columns for stdout, in Markdown, as CSV.

use std::borrow::Cow;
use std::fmt::Display;
use std::io::Write;
use std::ops::Range;

use comfy_table::{Cell, CellAlignment, TableComponent, presets};

/// Headings and rows of texts.
pub struct Table {
    /// The headings. One with a line break takes two lines where the form allows it.
    pub headings: Vec<String>,
    /// The rows, each with a text for each heading.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// The width on stdout in characters, with one space between columns.
    pub fn width(&self) -> usize {
        let lines = |text: &String| text.lines().map(|line| line.chars().count()).max();
        let columns = (0..self.headings.len()).map(|column| {
            let cells = self.rows.iter().map(|row| &row[column]);
            let cells = cells.chain([&self.headings[column]]);
            cells.filter_map(lines).max().unwrap_or(0)
        });
        columns.map(|width| width + 1).sum::<usize>() - 1
    }

    /// For stdout, with a rule under the headings and no other lines. The columns `right` are
    /// aligned at the right.
    pub fn text(&self, right: Range<usize>) -> comfy_table::Table {
        self.painted(right, |_, text| Cell::new(text))
    }

    /// The same, but `paint` makes each cell, from its heading and its text.
    pub fn painted(
        &self,
        right: Range<usize>,
        paint: impl Fn(&str, &str) -> Cell,
    ) -> comfy_table::Table {
        let mut table = comfy_table::Table::new();
        table.load_preset(presets::NOTHING);
        table.set_style(TableComponent::HeaderLines, '─');
        table.set_style(TableComponent::MiddleHeaderIntersections, '─');
        table.set_header(&self.headings);
        for row in &self.rows {
            let cells = self.headings.iter().zip(row);
            table.add_row(cells.map(|(heading, text)| paint(heading, text)));
        }
        for column in table.column_iter_mut().take(right.end).skip(right.start) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        table
    }

    /// The result of `painted` or `text` as lines: with two spaces between columns if that fits,
    /// else with one.
    pub fn fitted(&self, mut text: comfy_table::Table) -> String {
        let padding = u16::from(self.width() + self.headings.len() <= WIDTH);
        for column in text.column_iter_mut() {
            column.set_padding((0, padding));
        }
        text.trim_fmt()
    }

    /// Writes it in Markdown. The columns `right` are aligned at the right.
    pub fn markdown(&self, right: Range<usize>, out: &mut dyn Write) -> anyhow::Result<()> {
        let headings = self.headings.iter().enumerate();
        let headings = headings.map(|(index, heading)| match &**heading {
            "" if index == 0 => " ".to_owned(),
            lines if lines.contains('\n') => lines.replace('\n', " "),
            line => format!(" {line} "),
        });
        writeln!(out, "|{}|", headings.collect::<Vec<_>>().join("|"))?;
        let columns = 0..self.headings.len();
        let rules = columns.map(|index| match right.contains(&index) {
            true => " ---: |",
            false => " --- |",
        });
        writeln!(out, "|{}", rules.collect::<String>())?;
        for row in &self.rows {
            let cells: Vec<_> = row.iter().map(|cell| cell.replace('|', "\\|")).collect();
            writeln!(out, "| {} |", cells.join(" | "))?;
        }
        Ok(())
    }

    pub fn csv(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        for row in [&self.headings].into_iter().chain(&self.rows) {
            let fields: Vec<_> = row.iter().map(|field| quoted(field)).collect();
            writeln!(out, "{}", fields.join(","))?;
        }
        Ok(())
    }
}

/// A field of CSV, quoted if it has to be (RFC 4180).
fn quoted(field: &str) -> Cow<'_, str> {
    match field.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", field.replace('"', "\"\"")).into(),
        false => field.into(),
    }
}

/// The width of text for people, in characters.
pub const WIDTH: usize = 110;

/// `text` in lines of at most [`WIDTH`] characters. All but the first begin with `indent`.
pub fn wrapped(text: &str, indent: &str) -> String {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let last = lines
            .last_mut()
            .expect("there is a line from the beginning");
        if last.chars().count() + 1 + word.chars().count() > WIDTH {
            lines.push(format!("{indent}{word}"));
        } else {
            *last += if last.is_empty() { "" } else { " " };
            *last += word;
        }
    }
    lines.join("\n")
}

/// Columns of a table that has a row for each `E`.
pub struct Columns<E>(Vec<(String, Text<E>)>);

type Text<E> = Box<dyn Fn(&E) -> String>;

impl<E> Default for Columns<E> {
    fn default() -> Self {
        Self::new()
    }
}

impl<E> Columns<E> {
    pub fn new() -> Self {
        Self(Vec::new())
    }

    pub fn add<D: Display>(
        mut self,
        heading: impl Into<String>,
        value: impl Fn(&E) -> D + 'static,
    ) -> Self {
        let text: Text<E> = Box::new(move |entry| value(entry).to_string());
        self.0.push((heading.into(), text));
        self
    }

    /// One more column, of numbers with `decimals` decimals.
    pub fn number(
        self,
        heading: impl Into<String>,
        decimals: usize,
        value: impl Fn(&E) -> f64 + 'static,
    ) -> Self {
        self.add(heading, move |entry| format!("{:.decimals$}", value(entry)))
    }

    /// Three more columns: a median called `name`, and the extremes, whose names are `name` with
    /// one of the `ends` appended.
    pub fn band(
        self,
        name: &str,
        ends: [&str; 2],
        decimals: usize,
        value: impl Fn(&E) -> [f64; 3] + Copy + 'static,
    ) -> Self {
        let [low, high] = ends.map(|end| format!("{name}_{end}"));
        self.number(name, decimals, move |entry| value(entry)[0])
            .number(low, decimals, move |entry| value(entry)[1])
            .number(high, decimals, move |entry| value(entry)[2])
    }

    pub fn of<'a>(&self, entries: impl IntoIterator<Item = &'a E>) -> Table
    where
        E: 'a,
    {
        let row = |entry: &'a E| self.0.iter().map(|(_, text)| text(entry)).collect();
        Table {
            headings: self.0.iter().map(|(heading, _)| heading.clone()).collect(),
            rows: entries.into_iter().map(row).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_with_a_meaning_are_quoted() {
        let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect();
        let table = Table {
            headings: words(&["a", "b"]),
            rows: vec![words(&["x|y", "1,\"2\""])],
        };
        let (mut csv, mut markdown) = (Vec::new(), Vec::new());
        table.csv(&mut csv).unwrap();
        table.markdown(1..2, &mut markdown).unwrap();
        assert_eq!(csv, b"a,b\nx|y,\"1,\"\"2\"\"\"\n");
        assert!(markdown.ends_with(b"| x\\|y | 1,\"2\" |\n"));
    }
}
