//! Tables about concurrency IDs: nanoseconds per burst under several policies.

use super::Fields;
use crate::workloads::PHASES;
use crate::world::Placement;

/// A table.
#[derive(Clone, Copy, Debug)]
pub struct IdTable {
    /// Its name.
    pub name: &'static str,
    /// The machine it was measured on, of [`Machine::BUILT_IN`](crate::Machine::BUILT_IN).
    pub machine: &'static str,
    /// The workload, of [`workloads::IDS`](crate::workloads::IDS).
    pub workload: &'static str,
    /// Where it was published, or why it is here.
    pub source: &'static str,
    /// What the rows are.
    pub key: &'static str,
    /// The policies, of [`locks::POLICIES`](crate::locks::POLICIES), and what their columns are
    /// called.
    pub columns: [(&'static str, &'static str); 4],
    rows: fn() -> Vec<IdRow>,
}

/// A row of a table.
#[derive(Clone, Debug, PartialEq)]
pub struct IdRow {
    /// What it is called.
    pub label: String,
    /// Number of threads to simulate.
    pub threads: usize,
    /// Where they run.
    pub placement: Placement,
    /// Which phase of the workload it is.
    pub phase: usize,
    /// Nanoseconds per burst as published, by column, as far as there are any.
    pub published: [Option<f64>; 4],
    /// Lowest-free over cache-local, as published.
    pub speedup: Option<f64>,
    /// What is probably not modelled, if the simulation misses this row.
    pub note: &'static str,
}

/// All of them.
pub const ID_TABLES: &[IdTable] = &[
    IdTable {
        name: "cid-200ms",
        machine: "epyc-9654-2s",
        workload: "cid-intermittent",
        source: "\"sched: Improve cache locality of RSEQ concurrency IDs for intermittent workloads\" \
                 v2 (2024-10-09), delay between bursts 200 ms",
        key: "config",
        columns: COLUMNS,
        rows: with_200ms,
    },
    IdTable {
        name: "cid-10ms",
        machine: "epyc-9654-2s",
        workload: "cid-intermittent-10ms",
        source: "nothing that is in this repository: a prediction",
        key: "config",
        columns: COLUMNS,
        rows: || {
            let with_10ms = |row| IdRow {
                published: [None; 4],
                speedup: None,
                note: "",
                ..row
            };
            with_200ms().into_iter().map(with_10ms).collect()
        },
    },
    IdTable {
        name: "cid-density",
        machine: "epyc-9654-2s",
        workload: "cid-changing",
        source: "nothing: density against locality while members and allowed CPUs change",
        key: "members/CPUs",
        columns: COLUMNS,
        rows: phases,
    },
];

const COLUMNS: [(&str, &str); 4] = [
    ("per_cpu", "per-cpu"),
    ("mm_cid", "lowest-free"),
    ("cache_local_mm_cid", "recent-first"),
    ("task_owned", "task-owned"),
];

const CID_200MS: &str = include_str!("../../published/cid-200ms.csv");

const TICKS: &str = "how often a scheduler tick finds a thread that runs for microseconds, and so how many \
                     areas are touched for the first time, depends on the kernel's configuration";

fn with_200ms() -> Vec<IdRow> {
    let mut lines = CID_200MS.lines().filter(|line| !line.starts_with('#'));
    let headings: Vec<_> = lines.next().unwrap_or_default().split(',').collect();
    let row = |line| {
        let fields = Fields {
            headings: &headings,
            line,
        };
        let label = fields.text("config");
        let threads = label.split('-').next().and_then(|n| n.parse().ok());
        let threads = threads.expect("a configuration begins with a number");
        let published = |i: usize| (i < 3).then(|| fields.number(COLUMNS[i].0));
        IdRow {
            label: label.to_owned(),
            threads,
            // Eight cores share one cache. Larger numbers are spread evenly over the caches.
            placement: if threads == 8 {
                Placement::Compact
            } else {
                Placement::Spread
            },
            phase: 0,
            published: std::array::from_fn(published),
            speedup: Some(fields.number("cache_local_speedup")),
            note: if threads > 24 { TICKS } else { "" },
        }
    };
    lines.map(row).collect()
}

fn phases() -> Vec<IdRow> {
    let row = |(phase, &(members, cpus)): (usize, &(usize, usize))| IdRow {
        label: format!("{members}/{cpus}"),
        threads: 384,
        placement: Placement::Spread,
        phase,
        published: [None; 4],
        speedup: None,
        note: "",
    };
    PHASES.iter().enumerate().map(row).collect()
}

impl IdTable {
    /// Its rows.
    ///
    /// # Panics
    ///
    /// If a file of this crate is damaged.
    pub fn rows(&self) -> Vec<IdRow> {
        (self.rows)()
    }

    /// Whether its rows are phases of one run, and not runs.
    pub fn has_phases(&self) -> bool {
        self.rows().iter().any(|row| row.phase > 0)
    }
}

/// The table called `name`.
pub fn id_table(name: &str) -> Option<IdTable> {
    ID_TABLES.iter().copied().find(|table| table.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Machine, locks, workloads};

    #[test]
    fn tables_are_whole_and_can_be_simulated() {
        for table in ID_TABLES {
            assert!(Machine::load(table.machine).is_ok());
            assert_eq!(
                workloads::by_name(table.workload).unwrap().takes(),
                locks::Genre::Policy
            );
            for (_, policy) in table.columns {
                assert!(locks::by_name(policy).unwrap().policy().is_some());
            }
            for row in table.rows() {
                let [_, lowest, local, _] = row.published;
                let speedup = lowest.zip(local).map(|(lowest, local)| lowest / local);
                assert_eq!(speedup.is_some(), row.speedup.is_some());
                let off = speedup.zip(row.speedup).map_or(0.0, |(a, b)| a / b - 1.0);
                assert!(off.abs() < 0.01, "{row:?}");
            }
        }
        let labels: Vec<_> = with_200ms().into_iter().map(|r| r.threads).collect();
        assert_eq!(labels, [8, 24, 192, 384]);
    }
}
