//! Measurements that others published, and how to simulate them.
//!
//! The numbers are in `published/` of this crate, one file per table, as they were published; the first line of each says
//! where. What we believe about rows that the simulation misses is in `published/notes.toml`, apart from them.
//!
//! To add one: its file, and a line in [`TABLES`].

use std::collections::BTreeMap;

/// A published table: two locks under the same load, by number of threads.
#[derive(Clone, Copy, Debug)]
pub struct Table {
    /// Its name on the command line.
    pub name: &'static str,
    /// The machine it was measured on, of [`Machine::BUILT_IN`](crate::Machine::BUILT_IN).
    pub machine: &'static str,
    /// The workload, of [`workloads::ALL`](crate::workloads::ALL).
    pub workload: &'static str,
    /// The lock behind the column `stock`, of [`locks::ALL`](crate::locks::ALL).
    pub stock: &'static str,
    /// The lock behind the column `cna`.
    pub cna: &'static str,
    /// The unit of throughput.
    pub unit: &'static str,
    /// Operations per microsecond in that unit.
    pub per_ops_per_us: f64,
    text: &'static str,
}

/// A row of a table.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Number of threads.
    pub threads: usize,
    /// Throughput with the stock lock, in the table's unit.
    pub stock: f64,
    /// Throughput with the other one.
    pub cna: f64,
    /// The latter over the former, as published.
    pub speedup: f64,
    /// What we believe is not modelled, if the simulation misses this row; empty if we do not know.
    pub note: String,
}

/// All tables.
pub const TABLES: &[Table] = &[
    Table {
        name: "cna-lock2",
        machine: "haswell-ex-4s",
        workload: "lock2",
        stock: "qspinlock",
        cna: "cna-v10",
        unit: "operations/us",
        per_ops_per_us: 1.0,
        text: include_str!("../published/cna-lock2.csv"),
    },
    Table {
        name: "cna-locktorture",
        machine: "haswell-ex-4s",
        workload: "locktorture",
        stock: "qspinlock",
        cna: "cna-v10",
        unit: "10^7 operations/run of 30 s",
        per_ops_per_us: 30e6 / 1e7,
        text: include_str!("../published/cna-locktorture.csv"),
    },
];

const NOTES: &str = include_str!("../published/notes.toml");

/// The table called `name`.
pub fn by_name(name: &str) -> Option<Table> {
    TABLES.iter().copied().find(|table| table.name == name)
}

impl Table {
    /// Where the table was published, and on what it was measured.
    pub fn source(&self) -> &'static str {
        let first = self.text.lines().next().unwrap_or_default();
        first.trim_start_matches('#').trim()
    }

    /// The rows, as published.
    ///
    /// # Panics
    ///
    /// If a file of this crate is damaged.
    pub fn rows(&self) -> Vec<Row> {
        let mut lines = self.text.lines().filter(|line| !line.starts_with('#'));
        let heading: Vec<_> = lines.next().unwrap_or_default().split(',').collect();
        let notes: BTreeMap<String, BTreeMap<String, String>> =
            toml::from_str(NOTES).expect("published/notes.toml has tables of strings");
        lines
            .map(|line| {
                let fields: Vec<_> = line.split(',').collect();
                let field = |name: &str| {
                    let place = heading.iter().position(|&heading| heading == name);
                    place.and_then(|place| fields.get(place)).copied()
                };
                let number = |name: &str| -> f64 {
                    let number = field(name).and_then(|text| text.parse().ok());
                    number.unwrap_or_else(|| panic!("{}: no {name} in {line}", self.name))
                };
                let threads = number("threads") as usize;
                let note = notes
                    .get(self.name)
                    .and_then(|notes| notes.get(&threads.to_string()));
                Row {
                    threads,
                    stock: number("stock"),
                    cna: number("cna"),
                    speedup: number("speedup"),
                    note: note.cloned().unwrap_or_default(),
                }
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Machine, locks, workloads};

    #[test]
    fn tables_are_whole_and_can_be_simulated() {
        for table in TABLES {
            let rows = table.rows();
            assert_eq!(rows[0].threads, 1, "{}", table.name);
            assert!(rows.is_sorted_by(|a, b| a.threads < b.threads));
            for row in &rows {
                // The published speed-up is rounded, and so are the columns.
                let speedup = row.cna / row.stock;
                assert!((row.speedup / speedup - 1.0).abs() < 0.01, "{row:?}");
            }
            assert!(table.source().contains("CNA"), "{}", table.source());
            assert!(Machine::load(table.machine).is_ok());
            assert!(workloads::by_name(table.workload).is_some());
            assert!(locks::by_name(table.stock).is_some() && locks::by_name(table.cna).is_some());
        }
    }

    #[test]
    fn notes_belong_to_rows() {
        let notes: BTreeMap<String, BTreeMap<String, String>> = toml::from_str(NOTES).unwrap();
        for (table, notes) in notes {
            let rows = by_name(&table).unwrap().rows();
            for threads in notes.keys() {
                let threads: usize = threads.parse().unwrap();
                assert!(rows.iter().any(|row| row.threads == threads), "{table}");
            }
        }
    }
}
