//! Measurements that others published, and how to simulate them.
//!
//! The numbers are in `published/` of this crate, one file per table, as they were published; the
//! first line of each says where. Notes on rows that the simulation misses are in
//! `published/notes.toml`, apart from them.
//!
//! To add one: its file, and a line in [`TABLES`].

mod ids;

pub use ids::{ID_TABLES, IdRow, IdTable, id_table};

use std::collections::BTreeMap;

/// A published table: two locks under the same load, row by row.
#[derive(Clone, Copy, Debug)]
pub struct Table {
    /// Its name on the command line.
    pub name: &'static str,
    /// The machine it was measured on, or the most similar one, of
    /// [`Machine::BUILT_IN`](crate::Machine::BUILT_IN).
    pub machine: &'static str,
    /// The workload, of [`workloads::ALL`](crate::workloads::ALL).
    pub workload: &'static str,
    /// What the rows are.
    pub key: &'static str,
    /// What the two columns are called.
    pub columns: [&'static str; 2],
    /// The lock behind the first column, as [`locks::by_name`](crate::locks::by_name) knows it.
    pub stock: &'static str,
    /// The lock behind the second one.
    pub cna: &'static str,
    /// The unit of throughput.
    pub unit: &'static str,
    /// Operations per microsecond in that unit.
    pub per_ops_per_us: f64,
    /// For how many simulated seconds a run should last.
    pub seconds: f64,
    /// What the simulation is expected to meet.
    pub judged: Judged,
    read: fn(&Fields<'_>) -> Row,
    text: &'static str,
}

/// What a simulated table is expected to meet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Judged {
    /// The numbers.
    Numbers,
    /// Which lock is faster. The simulated system is too far from the measured one for more.
    Direction,
}

/// A row of a table.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// What it is called. Rows with the same number of threads are simulated once.
    pub label: String,
    /// Number of threads to simulate.
    pub threads: usize,
    /// Throughput with the stock lock, in the table's unit.
    pub stock: f64,
    /// Throughput with the other one.
    pub cna: f64,
    /// The latter over the former, as published.
    pub speedup: f64,
    /// What is probably not modelled, if the simulation misses this row; empty if unknown.
    pub note: String,
}

/// All tables.
pub const TABLES: &[Table] = &[
    LOCK2,
    Table {
        name: "cna-locktorture",
        workload: "locktorture",
        unit: "10^7 operations/run of 30 s",
        per_ops_per_us: 30e6 / 1e7,
        text: include_str!("../published/cna-locktorture.csv"),
        ..LOCK2
    },
    MUTEX,
    Table {
        name: "mutex-spinners-ours",
        stock: "mutex-unqueued",
        cna: "mutex",
        judged: Judged::Direction,
        ..MUTEX
    },
    // Not published: the same rows, with a queue that serves local waiters first.
    Table {
        name: "mutex-spinners-cna",
        columns: ["unqueued", "queued, local first"],
        cna: "polled-cna",
        judged: Judged::Direction,
        ..MUTEX
    },
    Table {
        name: "mutex-spinners-ours-cna",
        columns: ["unqueued", "queued, local first"],
        stock: "mutex-unqueued",
        cna: "mutex-cna",
        judged: Judged::Direction,
        ..MUTEX
    },
    OSQ,
    Table {
        name: "osq-own-line",
        columns: ["shared", "own line"],
        cna: "polled-osq-own-line",
        read: |fields| gain(fields, "own_line_pct"),
        ..OSQ
    },
    INVALIDATION,
    // The same list under other mutexes: that of the measured kernel, as its source documents it,
    // and a plain one.
    Table {
        name: "invalidation-backoff",
        columns: ["mutex, back-off", "list"],
        stock: "invalidation-mutex",
        judged: Judged::Direction,
        ..INVALIDATION
    },
    Table {
        name: "invalidation-polled",
        columns: ["mutex, polled", "list"],
        stock: "invalidation-mutex-polled",
        judged: Judged::Direction,
        ..INVALIDATION
    },
    Table {
        name: "invalidation-96",
        machine: "haswell-ex-4s",
        columns: ["mutex, back-off", "epochs"],
        stock: "invalidation-mutex",
        cna: "invalidation-slots",
        judged: Judged::Direction,
        read: |fields| by_processes(fields, "epochs"),
        text: include_str!("../published/invalidation-96.csv"),
        ..INVALIDATION
    },
];

const LOCK2: Table = Table {
    name: "cna-lock2",
    machine: "haswell-ex-4s",
    workload: "lock2",
    key: "threads",
    columns: ["stock", "cna"],
    stock: "qspinlock",
    cna: "cna-v10",
    unit: "operations/us",
    per_ops_per_us: 1.0,
    seconds: 0.1,
    judged: Judged::Numbers,
    read: by_threads,
    text: include_str!("../published/cna-lock2.csv"),
};

const MUTEX: Table = Table {
    name: "mutex-spinners",
    machine: "westmere-ex-8s",
    workload: "mutex-spinners",
    key: "load",
    columns: ["unqueued", "queued"],
    stock: "polled",
    cna: "polled-fifo",
    unit: "jobs/minute",
    // A job has thousands of critical sections, an unknown number. The scale makes up for it.
    per_ops_per_us: 1e6,
    seconds: 0.05,
    judged: Judged::Numbers,
    read: by_nodes,
    text: include_str!("../published/mutex-mcs-spinners.csv"),
};

const OSQ: Table = Table {
    name: "osq-prev-cpu",
    machine: "epyc-9654-2s",
    workload: "osq",
    key: "test",
    columns: ["shared", "cached"],
    stock: "polled-osq-shared",
    cna: "polled-osq-cached",
    unit: "percent of shared",
    per_ops_per_us: 100.0,
    seconds: 0.002,
    judged: Judged::Direction,
    read: |fields| gain(fields, "cached_prev_pct"),
    text: include_str!("../published/osq-prev-cpu.csv"),
};

const INVALIDATION: Table = Table {
    name: "invalidation",
    machine: "ivybridge-2s",
    workload: "invalidation",
    key: "processes",
    columns: ["mutex", "list"],
    stock: "invalidation-locked",
    cna: "invalidation-packed",
    unit: "operations/s",
    per_ops_per_us: 1e6,
    seconds: 0.02,
    judged: Judged::Numbers,
    read: |fields| by_processes(fields, "list"),
    text: include_str!("../published/invalidation.csv"),
};

/// A line of a file, by the headings of its columns.
struct Fields<'a> {
    headings: &'a [&'a str],
    line: &'a str,
}

impl Fields<'_> {
    fn text(&self, heading: &str) -> &str {
        let place = self.headings.iter().position(|&known| known == heading);
        place
            .and_then(|place| self.line.split(',').nth(place))
            .unwrap_or_else(|| panic!("no {heading} in {}", self.line))
    }

    fn number(&self, heading: &str) -> f64 {
        let number = self.text(heading).parse();
        number.unwrap_or_else(|_| panic!("{heading} is no number in {}", self.line))
    }
}

/// A row whose speed-up follows from its columns, yet without a note.
fn row(label: &str, threads: usize, stock: f64, cna: f64) -> Row {
    Row {
        label: label.to_owned(),
        threads,
        stock,
        cna,
        speedup: cna / stock,
        note: String::new(),
    }
}

fn by_threads(fields: &Fields<'_>) -> Row {
    let threads = fields.number("threads") as usize;
    let (stock, cna) = (fields.number("stock"), fields.number("cna"));
    Row {
        speedup: fields.number("speedup"),
        ..row(fields.text("threads"), threads, stock, cna)
    }
}

/// A thread for each of the ten CPUs of a node: there were many more users than that.
fn by_nodes(fields: &Fields<'_>) -> Row {
    let nodes = fields.number("nodes") as usize;
    let plural = if nodes == 1 { "" } else { "s" };
    let label = format!("{nodes} node{plural} {} users", fields.text("users"));
    let (before, after) = (fields.number("patch1"), fields.number("patch12"));
    Row {
        speedup: 1.0 + fields.number("change_patch12_over_patch1_pct") / 100.0,
        ..row(&label, 10 * nodes, before, after)
    }
}

fn by_processes(fields: &Fields<'_>, second: &str) -> Row {
    let processes = fields.number("processes") as usize;
    let (mutex, second) = (fields.number("mutex"), fields.number(second));
    row(fields.text("processes"), processes, mutex, second)
}

/// Only a gain in percent is published. A thread for each of the 128 cores.
fn gain(fields: &Fields<'_>, heading: &str) -> Row {
    let percent = fields.number(heading);
    Row {
        speedup: 1.0 + percent / 100.0,
        ..row(fields.text("test"), 128, 100.0, 100.0 + percent)
    }
}

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

    /// The rows, as published, those with the fewest threads first.
    ///
    /// # Panics
    ///
    /// If a file of this crate is damaged.
    pub fn rows(&self) -> Vec<Row> {
        let mut lines = self.text.lines().filter(|line| !line.starts_with('#'));
        let headings: Vec<_> = lines.next().unwrap_or_default().split(',').collect();
        let notes: BTreeMap<String, BTreeMap<String, String>> =
            toml::from_str(NOTES).expect("published/notes.toml has tables of strings");
        let row = |line| {
            let mut row = (self.read)(&Fields {
                headings: &headings,
                line,
            });
            let note = notes
                .get(self.name)
                .and_then(|notes| notes.get(&row.label).or(notes.get("all")));
            row.note = note.cloned().unwrap_or_default();
            row
        };
        let mut rows: Vec<Row> = lines.map(row).collect();
        rows.sort_by_key(|row| row.threads);
        rows
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
            assert!(!rows.is_empty() && rows.is_sorted_by_key(|row| row.threads));
            let is_cna = table.name.starts_with("cna-");
            assert!(!is_cna || rows[0].threads == 1);
            for row in &rows {
                // The published speed-up is rounded, and so are the columns.
                let speedup = row.cna / row.stock;
                assert!((row.speedup / speedup - 1.0).abs() < 0.01, "{row:?}");
            }
            assert!(table.source().contains("(20"), "{}", table.source());
            assert!(Machine::load(table.machine).is_ok());
            let workload = workloads::by_name(table.workload).unwrap();
            for lock in [table.stock, table.cna] {
                assert_eq!(workload.takes(), locks::by_name(lock).unwrap().genre());
            }
        }
    }

    #[test]
    fn notes_belong_to_rows() {
        let notes: BTreeMap<String, BTreeMap<String, String>> = toml::from_str(NOTES).unwrap();
        for (table, notes) in notes {
            let rows = by_name(&table).unwrap().rows();
            for label in notes.keys() {
                let is_there = rows.iter().any(|row| row.label == *label);
                assert!(is_there || label == "all", "{table}: {label}");
            }
        }
    }
}
