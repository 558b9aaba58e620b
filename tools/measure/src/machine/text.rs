//! Positions in a machine file: which line, which field.

use super::MachineError;
use std::fmt;
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A machine file.
pub(super) struct Text<'a> {
    pub(super) origin: &'a str,
    pub(super) text: &'a str,
}

impl Text<'_> {
    pub(super) fn error(&self, at: usize, what: impl fmt::Display) -> MachineError {
        let line = self.before(at).matches('\n').count() + 1;
        MachineError::new(self.origin, format!("line {line}: {what}"))
    }

    /// The parser's message, with the field that it often leaves out.
    pub(super) fn parse_error(&self, error: &toml::de::Error) -> MachineError {
        let at = error.span().map_or(0, |span| span.start);
        let field = match DeTable::parse(self.text) {
            Ok(table) => field_at(table.get_ref(), at),
            // The text is no TOML. The first word of the line is the best guess.
            Err(_) => self.key_of_line(at),
        };
        match field {
            Some(field) => self.error(at, format!("`{field}`: {}", error.message())),
            None => self.error(at, error.message()),
        }
    }

    /// A number from `low` to `high`.
    pub(super) fn whole(
        &self,
        name: &str,
        value: &Spanned<i64>,
        low: i64,
        high: i64,
    ) -> Result<usize, MachineError> {
        let v = *value.get_ref();
        if (low..=high).contains(&v) {
            Ok(v as usize)
        } else {
            Err(self.error(
                value.span().start,
                format!("`{name}` has to be {low} to {high}, not {v}"),
            ))
        }
    }

    fn before(&self, at: usize) -> &str {
        // If a position were within a character, the whole text would do.
        self.text.get(..at).unwrap_or(self.text)
    }

    fn key_of_line(&self, at: usize) -> Option<String> {
        let start = self.before(at).rfind('\n').map_or(0, |newline| newline + 1);
        let line = self.text[start..].lines().next()?;
        let key = line.split_once('=').map_or(line, |(key, _)| key).trim();
        let bare = |c: char| c.is_ascii_alphanumeric() || "_-.[]".contains(c);
        (!key.is_empty() && key.len() < 64 && key.chars().all(bare)).then(|| key.to_owned())
    }
}

/// The innermost field, such as `latency.rmw.ns`, whose key or value is at a position.
fn field_at(table: &DeTable<'_>, at: usize) -> Option<String> {
    // The span of a table with a header covers only the header, not what the table holds.
    table.iter().find_map(|(key, value)| {
        let name = key.get_ref();
        let within = match value.get_ref() {
            DeValue::Table(inner) => field_at(inner, at).map(|rest| format!("{name}.{rest}")),
            _ => None,
        };
        let here = holds(&key.span(), at) || holds(&value.span(), at);
        within.or_else(|| here.then(|| name.to_string()))
    })
}

fn holds(span: &Range<usize>, at: usize) -> bool {
    span.contains(&at)
}
