//! Measurements that others published, and how to simulate them.
//!
//! The numbers are in `published/` of this crate, one file per table, as they were published; the
//! first line of each says where. Notes on rows that the simulation misses are separate, in
//! `published/notes.toml`.
//!
//! To add a table, add its file, and a line in [`TABLES`].

use std::collections::BTreeMap;

use crate::locks::observed::{LONGEST_QUEUE, POLLED, QUEUED, RESTARTS};
use crate::world::Placement;

/// A published table: several locks under the same load, row by row.
#[derive(Clone, Copy, Debug)]
pub struct Table {
    /// Its name on the command line.
    pub name: &'static str,
    /// The machine it was measured on, or the most similar one, of
    /// [`machine::BUILT_IN`](crate::machine::BUILT_IN).
    pub machine: &'static str,
    /// The workload, as [`workloads::by_name`](crate::workloads::by_name) knows it.
    pub workload: &'static str,
    /// What the rows stand for.
    pub key: &'static str,
    /// The headings of the columns, and their locks or policies, as
    /// [`locks::by_name`](crate::locks::by_name) knows them.
    pub columns: &'static [(&'static str, &'static str)],
    /// The ratios that follow the columns.
    pub ratios: &'static [Ratio],
    /// The unit of the columns.
    pub unit: &'static str,
    /// What the columns show.
    pub measure: Measure,
    /// How many simulated seconds a run should last, unless the workload decides.
    pub seconds: Option<f64>,
    /// Published numbers about what happened inside of runs.
    pub observed: &'static [Observed],
    /// Cells to which a constant was fitted, which therefore have no target: threads, and the index
    /// of the column.
    pub fitted: &'static [(usize, usize)],
    read: fn(&Fields<'_>) -> Vec<Row>,
    text: &'static str,
}

/// One column divided by another.
#[derive(Clone, Copy, Debug)]
pub struct Ratio {
    /// Its name.
    pub name: &'static str,
    /// Its heading in tables.
    pub heading: &'static str,
    /// The index of the column that is divided.
    pub of: usize,
    /// The index of the column it is divided by.
    pub by: usize,
    /// Whether a smaller ratio is better for the lock that is divided: the ratio is one of times.
    pub small_is_good: bool,
}

/// A number about what happened inside of a run.
#[derive(Clone, Copy, Debug)]
pub struct Observed {
    /// What it is.
    pub name: &'static str,
    /// The number of threads.
    pub threads: usize,
    /// The index of the column.
    pub column: usize,
    /// The published number.
    pub published: f64,
    /// The [observation](crate::locks::Lock::observed) of the simulated lock that it is compared
    /// with.
    pub of: &'static str,
    /// The observation by which that is divided, if it is.
    pub by: Option<&'static str>,
}

/// What columns show.
#[derive(Clone, Copy, Debug)]
pub enum Measure {
    /// Throughput, with the number of the table's units in an operation per microsecond.
    Throughput(f64),
    /// Nanoseconds per burst under concurrency IDs.
    Bursts,
}

/// A row of a table.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Its label. Rows with the same number of threads are simulated once.
    pub label: String,
    /// Number of threads to simulate.
    pub threads: usize,
    /// Where they run; `None`: as the workload was measured.
    pub placement: Option<Placement>,
    /// The published numbers, if there are any: columns, then ratios.
    pub published: Vec<Option<f64>>,
    /// Their standard deviations, as far as these were published. Those of ratios are computed.
    pub deviations: Vec<Option<f64>>,
    /// What the model probably lacks, if the simulation misses this row; empty if unknown.
    pub note: String,
}

/// All tables.
pub const TABLES: &[Table] = &[
    LOCK2,
    Table {
        name: "cna-locktorture",
        workload: "locktorture",
        unit: "10^7 operations/run of 30 s",
        measure: Measure::Throughput(30e6 / 1e7),
        text: include_str!("../published/cna-locktorture.csv"),
        ..LOCK2
    },
    Table {
        name: "cna-open1",
        workload: "open1",
        text: include_str!("../published/cna-open1.csv"),
        ..LOCK2
    },
    Table {
        name: "cna-leveldb-readrandom",
        workload: "leveldb-readrandom",
        text: include_str!("../published/cna-leveldb-readrandom.csv"),
        ..LOCK2
    },
    MUTEX,
    // The same load represents six other programs.
    Table {
        name: "mutex-aim7-others",
        unit: "sections/us",
        measure: Measure::Throughput(1.0),
        observed: &[],
        read: by_program,
        text: include_str!("../published/mutex-aim7-others.csv"),
        ..MUTEX
    },
    OSQ,
    Table {
        name: "osq-own-line",
        columns: &[
            ("shared", "polled-osq-shared"),
            ("own line", "polled-osq-own-line"),
        ],
        read: |fields| gain(fields, "own_line_pct"),
        ..OSQ
    },
    INVALIDATION,
    // The same list, with other mutexes than the measured kernel's: ours, and a plain one.
    Table {
        name: "invalidation-ours",
        columns: &[
            ("our mutex", "invalidation-locked"),
            ("list", "invalidation-list"),
        ],
        seconds: Some(0.02),
        observed: &[],
        ..INVALIDATION
    },
    Table {
        name: "invalidation-polled",
        columns: &[
            ("polled mutex", "invalidation-mutex-polled"),
            ("list", "invalidation-list"),
        ],
        seconds: Some(0.02),
        observed: &[],
        ..INVALIDATION
    },
    Table {
        name: "invalidation-96",
        machine: "haswell-ex-4s",
        columns: &[
            ("mutex with back-off", "invalidation-mutex"),
            ("epochs", "invalidation-slots"),
        ],
        seconds: Some(0.02),
        observed: &[],
        read: |fields| by_processes(fields, "epochs"),
        text: include_str!("../published/invalidation-96.csv"),
        ..INVALIDATION
    },
    CID,
    Table {
        name: "cid-10ms",
        workload: "cid-intermittent-10ms",
        fitted: &[(8, 0)],
        text: include_str!("../published/cid-10ms.csv"),
        ..CID
    },
];

/// The second lock divided by the first.
const SPEEDUP: Ratio = Ratio {
    name: "speedup",
    heading: "speed-up",
    of: 1,
    by: 0,
    small_is_good: false,
};

const LOCK2: Table = Table {
    name: "cna-lock2",
    machine: "haswell-ex-4s",
    workload: "lock2",
    key: "threads",
    columns: &[("stock", "qspinlock"), ("cna", "cna-v10")],
    ratios: &[SPEEDUP],
    unit: "operations/us",
    measure: Measure::Throughput(1.0),
    seconds: Some(0.1),
    observed: &[],
    fitted: &[],
    read: by_threads,
    text: include_str!("../published/cna-lock2.csv"),
};

const MUTEX: Table = Table {
    name: "mutex-spinners",
    machine: "westmere-ex-8s",
    workload: "mutex-spinners",
    key: "load",
    columns: &[("unqueued", "polled"), ("queued", "polled-fifo")],
    ratios: &[SPEEDUP],
    unit: "jobs/minute",
    // A job has thousands of critical sections; the exact number is unknown. The scale compensates
    // for that.
    measure: Measure::Throughput(1e6),
    seconds: Some(0.05),
    observed: &[Observed {
        name: "spinners in the queue for each at its head",
        threads: 80,
        column: 1,
        // 9.90 % of the time in the function that queues, 2.33 % in the one that watches the owner.
        published: 9.90 / 2.33,
        of: QUEUED,
        by: Some(POLLED),
    }],
    fitted: &[],
    read: by_nodes,
    text: include_str!("../published/mutex-mcs-spinners.csv"),
};

const OSQ: Table = Table {
    name: "osq-prev-cpu",
    machine: "epyc-9654-2s",
    workload: "osq",
    key: "test",
    columns: &[
        ("shared", "polled-osq-shared"),
        ("cached", "polled-osq-cached"),
    ],
    ratios: &[SPEEDUP],
    unit: "sections/us",
    measure: Measure::Throughput(1.0),
    seconds: Some(0.002),
    observed: &[],
    fitted: &[],
    read: |fields| gain(fields, "cached_prev_pct"),
    text: include_str!("../published/osq-prev-cpu.csv"),
};

const INVALIDATION: Table = Table {
    name: "invalidation",
    machine: "ivybridge-2s",
    workload: "invalidation",
    key: "processes",
    // The mutex of the measured kernel, as its source documents it since 2018, and its list.
    columns: &[
        ("mutex with back-off", "invalidation-mutex"),
        ("list", "invalidation-list"),
    ],
    ratios: &[SPEEDUP],
    unit: "operations/s",
    measure: Measure::Throughput(1e6),
    // The longest queue grows with the length of the run: the log has nine or ten samples of a
    // second.
    seconds: Some(1.0),
    observed: &[
        Observed {
            name: "longest queue",
            threads: 32,
            column: 1,
            published: 8.0,
            of: LONGEST_QUEUE,
            by: None,
        },
        Observed {
            name: "restarts of a begin",
            threads: 32,
            column: 1,
            published: 41_367_043.0 / (1_299_108.0 * 9.5),
            of: RESTARTS[0],
            by: None,
        },
        Observed {
            name: "restarts of an end",
            threads: 32,
            column: 1,
            published: 55_959.0 / (1_299_108.0 * 9.5),
            of: RESTARTS[1],
            by: None,
        },
    ],
    fitted: &[],
    read: |fields| by_processes(fields, "list"),
    text: include_str!("../published/invalidation.csv"),
};

const CID: Table = Table {
    name: "cid-200ms",
    machine: "epyc-9654-2s",
    workload: "cid-intermittent",
    key: "config",
    columns: &[
        ("per_cpu", "per-cpu"),
        ("mm_cid", "lowest-free"),
        ("cache_local_mm_cid", "recent-first"),
        ("task_owned", "task-owned"),
    ],
    ratios: &[
        Ratio {
            of: 1,
            by: 2,
            ..SPEEDUP
        },
        Ratio {
            name: "slowdown",
            heading: "over per_cpu",
            of: 2,
            by: 0,
            small_is_good: true,
        },
    ],
    unit: "ns per burst",
    measure: Measure::Bursts,
    seconds: None,
    observed: &[],
    // The time after idling, and the first write to a page.
    fitted: &[(8, 0), (8, 1)],
    read: by_config,
    text: include_str!("../published/cid-200ms.csv"),
};

/// A line of a file, by the headings of its columns.
struct Fields<'a> {
    headings: &'a [&'a str],
    line: &'a str,
}

impl Fields<'_> {
    fn text(&self, heading: &str) -> &str {
        self.optional(heading)
            .unwrap_or_else(|| panic!("no {heading} in {}", self.line))
    }

    /// `None`: the file has no such column.
    fn optional(&self, heading: &str) -> Option<&str> {
        let place = self.headings.iter().position(|&known| known == heading);
        place.and_then(|place| self.line.split(',').nth(place))
    }

    fn number(&self, heading: &str) -> f64 {
        let number = self.text(heading).parse();
        number.unwrap_or_else(|_| panic!("{heading} is no number in {}", self.line))
    }
}

fn row(label: &str, threads: usize, published: [f64; 3]) -> Row {
    Row {
        label: label.to_owned(),
        threads,
        placement: None,
        published: published.map(Some).to_vec(),
        deviations: vec![None; published.len()],
        note: String::new(),
    }
}

fn by_threads(fields: &Fields<'_>) -> Vec<Row> {
    let numbers = ["stock", "cna", "speedup"].map(|heading| fields.number(heading));
    let threads = fields.number("threads") as usize;
    let deviation = |heading| fields.optional(heading).and_then(|text| text.parse().ok());
    let deviations = deviation("stock_sd").zip(deviation("cna_sd"));
    let deviations = deviations.map(|(stock, cna): (f64, f64)| {
        // The deviation of a quotient of two independent means.
        let relative = (stock / numbers[0]).hypot(cna / numbers[1]);
        [stock, cna, relative * numbers[2]].map(Some).to_vec()
    });
    let row = row(fields.text("threads"), threads, numbers);
    vec![Row {
        deviations: deviations.unwrap_or(row.deviations),
        ..row
    }]
}

/// A thread for each of the ten CPUs of a node, since there were many more users than CPUs.
fn by_nodes(fields: &Fields<'_>) -> Vec<Row> {
    let nodes = fields.number("nodes") as usize;
    let plural = if nodes == 1 { "" } else { "s" };
    let label = format!("{nodes} node{plural} {} users", fields.text("users"));
    let speedup = 1.0 + fields.number("change_patch12_over_patch1_pct") / 100.0;
    let (before, after) = (fields.number("patch1"), fields.number("patch12"));
    vec![row(&label, 10 * nodes, [before, after, speedup])]
}

/// Changes by number of users. If there were more users than the 80 CPUs, there is a thread for
/// each CPU; otherwise one for each of 55 users, the mean, on CPUs of all nodes.
fn by_program(fields: &Fields<'_>) -> Vec<Row> {
    let program = fields.text("workload");
    let users = [
        ("users_10_100", "10-100 users", 55, Some(Placement::Spread)),
        ("users_200_1000", "200-1000 users", 80, None),
        ("users_1100_2000", "1100-2000 users", 80, None),
    ];
    let rows = users.map(|(heading, users, threads, placement)| Row {
        placement,
        ..change(
            &format!("{program} {users}"),
            threads,
            fields.number(heading),
        )
    });
    rows.to_vec()
}

fn by_processes(fields: &Fields<'_>, second: &str) -> Vec<Row> {
    let processes = fields.number("processes") as usize;
    let (mutex, second) = (fields.number("mutex"), fields.number(second));
    let label = fields.text("processes");
    vec![row(label, processes, [mutex, second, second / mutex])]
}

/// A thread for each of the 128 cores.
fn gain(fields: &Fields<'_>, heading: &str) -> Vec<Row> {
    vec![change(fields.text("test"), 128, fields.number(heading))]
}

/// A row of which only a change in percent is published.
fn change(label: &str, threads: usize, percent: f64) -> Row {
    Row {
        published: vec![None, None, Some(1.0 + percent / 100.0)],
        ..row(label, threads, [0.0; 3])
    }
}

/// Rows with a policy of our own next to three published ones.
fn by_config(fields: &Fields<'_>) -> Vec<Row> {
    let label = fields.text("config");
    let threads = label.split('-').next().and_then(|n| n.parse().ok());
    let threads = threads.expect("a configuration begins with a number");
    let number = |heading| Some(fields.number(heading));
    let (per_cpu, local) = (number("per_cpu"), number("cache_local_mm_cid"));
    let slowdown = local.zip(per_cpu).map(|(local, per_cpu)| local / per_cpu);
    let speedup = number("cache_local_speedup");
    vec![Row {
        // Eight cores share one cache. Larger numbers are spread evenly over the caches.
        placement: Some(match threads {
            8 => Placement::Compact,
            _ => Placement::Spread,
        }),
        published: vec![per_cpu, number("mm_cid"), local, None, speedup, slowdown],
        deviations: vec![None; 6],
        ..row(label, threads, [0.0; 3])
    }]
}

const NOTES: &str = include_str!("../published/notes.toml");

impl Table {
    /// Where the table was published, and the machine on which it was measured.
    pub fn source(&self) -> &'static str {
        let first = self.text.lines().next().unwrap_or_default();
        first.trim_start_matches('#').trim()
    }

    /// The rows as published, with the fewest threads first.
    ///
    /// # Panics
    ///
    /// If a file of this crate is damaged.
    pub fn rows(&self) -> Vec<Row> {
        let mut lines = self.text.lines().filter(|line| !line.starts_with('#'));
        let headings: Vec<_> = lines.next().unwrap_or_default().split(',').collect();
        let notes: BTreeMap<String, BTreeMap<String, String>> =
            toml::from_str(NOTES).expect("published/notes.toml has tables of strings");
        let read = |line| {
            let headings = &headings;
            (self.read)(&Fields { headings, line })
        };
        let mut rows: Vec<Row> = lines.flat_map(read).collect();
        for row in &mut rows {
            let note = notes
                .get(self.name)
                .and_then(|notes| notes.get(&row.label).or(notes.get("all")));
            row.note = note.cloned().unwrap_or_default();
        }
        rows.sort_by_key(|row| row.threads);
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{locks, machine, workloads};

    fn by_name(name: &str) -> Table {
        *TABLES.iter().find(|table| table.name == name).unwrap()
    }

    #[test]
    fn tables_are_whole_and_can_be_simulated() {
        for table in TABLES {
            let rows = table.rows();
            assert!(!rows.is_empty() && rows.is_sorted_by_key(|row| row.threads));
            let is_cna = table.name.starts_with("cna-");
            assert!(!is_cna || rows[0].threads == 1);
            for row in &rows {
                let columns = table.columns.len();
                assert_eq!(row.published.len(), columns + table.ratios.len());
                assert_eq!(row.deviations.len(), row.published.len());
                // The published speed-up is rounded, and so are the columns.
                for (published, ratio) in row.published[columns..].iter().zip(table.ratios) {
                    let columns = row.published[ratio.of].zip(row.published[ratio.by]);
                    let computed = columns.map_or(published.unwrap(), |(of, by)| of / by);
                    let off = published.unwrap() / computed - 1.0;
                    assert!(off.abs() < 0.01, "{row:?}");
                }
            }
            for (threads, column) in table.fitted {
                assert!(rows.iter().any(|row| row.threads == *threads));
                assert!(*column < table.columns.len());
            }
            for observed in table.observed {
                let has = |row: &Row| row.threads == observed.threads;
                assert!(rows.iter().any(has) && observed.column < table.columns.len());
            }
            assert!(table.source().contains("(20"), "{}", table.source());
            assert!(machine::load(table.machine).is_ok());
            let workload = workloads::by_name(table.workload).unwrap();
            for (_, lock) in table.columns {
                assert_eq!(workload.takes(), locks::by_name(lock).unwrap().genre());
            }
        }
    }

    #[test]
    fn deviations_are_read_where_they_were_published() {
        let of = |table, row: usize| by_name(table).rows()[row].deviations.clone();
        let [stock, cna, speedup] = of("cna-lock2", 2)[..] else {
            panic!("two columns and a ratio");
        };
        assert_eq!((stock, cna), (Some(0.234), Some(0.252)));
        // 4.5 and 4.9 % of the columns.
        assert!((speedup.unwrap() - 0.065).abs() < 0.001, "{speedup:?}");
        let open1 = of("cna-open1", 2);
        assert_eq!(open1[..2], [Some(0.023), Some(0.032)]);
        assert_eq!(of("mutex-spinners", 2), [None; 3]);
    }

    #[test]
    fn notes_belong_to_rows() {
        let notes: BTreeMap<String, BTreeMap<String, String>> = toml::from_str(NOTES).unwrap();
        for (table, notes) in notes {
            let rows = by_name(&table).rows();
            for label in notes.keys() {
                let is_there = rows.iter().any(|row| row.label == *label);
                assert!(is_there || label == "all", "{table}: {label}");
            }
        }
    }
}
