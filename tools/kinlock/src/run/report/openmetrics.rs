//! Counters for dashboards, in the text format of OpenMetrics.
//!
//! Locks are told apart by name, not by address: a variable's name, or for memory without one the
//! line or the function that took the lock first. So the number of series does not grow with the
//! program's objects, and it is [bounded](MOST): further names are counted together. As long as the
//! command runs, a name that has its own series keeps it, and no counter falls.

use std::collections::BTreeMap;
use std::io::Write;

use super::calls::place;
use super::{Lock, Process, Report};

/// The most series with names of their own. Further locks share one.
const MOST: usize = 100;
/// The name of the shared series.
const OTHERS: &str = "(others)";

/// A kind of series: its name, its unit, its description, and its value.
struct Family {
    name: &'static str,
    unit: Unit,
    help: &'static str,
    of: fn(&Lock) -> u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Unit {
    /// A counter.
    Times,
    /// A counter of nanoseconds, shown in seconds.
    Seconds,
    /// The largest of some nanoseconds, shown in seconds.
    Longest,
    /// A present number, which may fall.
    Now,
}

const FAMILIES: [Family; 8] = [
    Family {
        name: "kinlock_lock_acquisitions",
        unit: Unit::Times,
        help: "How often locks of that name were taken",
        of: |lock| lock.locked,
    },
    Family {
        name: "kinlock_lock_contended",
        unit: Unit::Times,
        help: "How often one was found taken and waited for",
        of: |lock| lock.contended,
    },
    Family {
        name: "kinlock_lock_failed_tries",
        unit: Unit::Times,
        help: "How often a try found one taken",
        of: |lock| lock.failed_tries,
    },
    Family {
        name: "kinlock_lock_wait_seconds",
        unit: Unit::Seconds,
        help: "How long all threads together waited",
        of: |lock| lock.wait.total_ns,
    },
    Family {
        name: "kinlock_lock_hold_seconds",
        unit: Unit::Seconds,
        help: "How long they were held, an estimate",
        of: |lock| lock.hold.total_ns,
    },
    Family {
        name: "kinlock_lock_longest_wait_seconds",
        unit: Unit::Longest,
        help: "The longest wait since measuring began",
        of: |lock| lock.wait.max_ns,
    },
    Family {
        name: "kinlock_lock_longest_hold_seconds",
        unit: Unit::Longest,
        help: "The longest measured hold since measuring began",
        of: |lock| lock.hold.max_ns,
    },
    Family {
        name: "kinlock_lock_waiting_threads",
        unit: Unit::Now,
        help: "Threads that wait now",
        of: |lock| lock.waiting.len() as u64,
    },
];

/// The labels of a series. Those of processes have OpenTelemetry's names: `process.pid`,
/// `process.executable.name`. It defines none for locks.
type Labels = String;
type Values = [u64; FAMILIES.len()];

/// All series, as they were written last.
#[derive(Default)]
pub struct Series(BTreeMap<Labels, Values>);

impl Series {
    /// Writes the report's numbers, or earlier ones where they are higher.
    pub fn write(&mut self, report: &Report, out: &mut dyn Write) -> anyhow::Result<()> {
        let mut now: BTreeMap<Labels, Values> = BTreeMap::new();
        for process in &report.processes {
            let mut locks: Vec<&Lock> = process.locks.iter().collect();
            locks.sort_by_key(|lock| std::cmp::Reverse((lock.kept_off(), lock.locked)));
            for lock in locks {
                let named = labels(process, &name(lock), lock);
                let has_own = self.0.contains_key(&named) || now.contains_key(&named);
                let rest = labels(process, OTHERS, lock);
                let is_room = has_own || self.own(&now) < MOST;
                let sums = now.entry(if is_room { named } else { rest }).or_default();
                for (sum, family) in sums.iter_mut().zip(&FAMILIES) {
                    let value = (family.of)(lock);
                    *sum = match family.unit {
                        Unit::Longest => (*sum).max(value),
                        _ => *sum + value,
                    };
                }
            }
        }
        for (labels, before) in &mut self.0 {
            let new = now.remove(labels).unwrap_or_default();
            for ((value, new), family) in before.iter_mut().zip(new).zip(&FAMILIES) {
                *value = match family.unit {
                    Unit::Now => new,
                    _ => new.max(*value),
                };
            }
        }
        self.0.append(&mut now);
        for (at, family) in FAMILIES.iter().enumerate() {
            let name = family.name;
            let (kind, end, is_time) = match family.unit {
                Unit::Times => ("counter", "_total", false),
                Unit::Seconds => ("counter", "_total", true),
                Unit::Longest => ("gauge", "", true),
                Unit::Now => ("gauge", "", false),
            };
            writeln!(out, "# TYPE {name} {kind}")?;
            if is_time {
                writeln!(out, "# UNIT {name} seconds")?;
            }
            writeln!(out, "# HELP {name} {}.", family.help)?;
            for (labels, values) in &self.0 {
                match is_time {
                    true => {
                        let seconds = values[at] as f64 / 1e9;
                        writeln!(out, "{name}{end}{{{labels}}} {seconds:?}")?;
                    }
                    false => writeln!(out, "{name}{end}{{{labels}}} {}", values[at])?,
                }
            }
        }
        writeln!(out, "# EOF")?;
        Ok(())
    }

    /// How many series there are with these new ones.
    fn own(&self, now: &BTreeMap<Labels, Values>) -> usize {
        let new = now.keys().filter(|labels| !self.0.contains_key(*labels));
        self.0.len() + new.count()
    }
}

/// The name that a lock shares with those that are the same to a reader of a dashboard.
fn name(lock: &Lock) -> String {
    let is_variable = !lock.name.starts_with("0x") && !lock.name.contains("+0x");
    let is_one = lock.others == 0 && lock.address != 0;
    match lock.line() {
        Some(line) if is_one => line.to_owned(),
        _ if is_variable && is_one => lock.name.clone(),
        _ => place(&lock.first),
    }
}

fn labels(process: &Process, name: &str, lock: &Lock) -> Labels {
    let mut all = vec![
        ("process_pid", process.pid.to_string()),
        ("process_executable_name", process.program.clone()),
        ("lock_name", name.to_owned()),
    ];
    if name != OTHERS {
        all.push(("lock_type", lock.kind.to_owned()));
        all.extend(lock.side.map(|side| ("lock_side", side.to_owned())));
    }
    let escaped = |text: &str| {
        let text = text.replace('\\', r"\\").replace('"', "\\\"");
        text.replace('\n', r"\n")
    };
    let all = all
        .iter()
        .map(|(label, text)| format!("{label}=\"{}\"", escaped(text)));
    all.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use super::super::folder::{Seen, zeros};
    use super::super::read;
    use super::*;

    /// A program in Rust records the line. The report adds the address once there are two locks.
    #[test]
    fn locks_of_one_line_have_one_series() {
        let table = zeros();
        let place = &table.places[0];
        for (to, from) in place.path.iter().zip(b"src/hot.rs") {
            to.store(*from, Relaxed);
        }
        place.line.store(28, Relaxed);
        let mut series = Series::default();
        for (count, sum) in [(1, 3), (2, 6)] {
            for (at, lock) in table.locks[..count].iter().enumerate() {
                lock.address.store(0x1000 * (at as u64 + 1), Relaxed);
                lock.place.store(1, Relaxed);
                lock.locked.store(3, Relaxed);
            }
            table.header.locks_used.store(count as u32, Relaxed);
            let report = Report {
                processes: vec![read::process(&table, Seen::default())],
                ..Report::default()
            };
            let mut text = Vec::new();
            series.write(&report, &mut text).unwrap();
            let text = String::from_utf8(text).unwrap();
            let lines = text.lines();
            let taken = lines.filter(|line| line.starts_with("kinlock_lock_acquisitions_total"));
            let taken: Vec<_> = taken.collect();
            assert_eq!(taken.len(), 1, "{text}");
            let end = format!("lock_name=\"hot.rs:28\",lock_type=\"mutex\"}} {sum}");
            assert!(taken[0].ends_with(&end), "{text}");
        }
    }
}
