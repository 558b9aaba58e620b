//! Limits that a report must not exceed (`--fail-if`).

use std::str::FromStr;

use kinlock_cli::report::units::{counted, grouped, percent, time};

use super::{Lock, Process, Report, waited_share};

#[derive(Clone, Debug)]
pub struct Gate {
    /// The limit as the user wrote it.
    text: String,
    what: What,
    limit: f64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum What {
    /// The share of all acquisitions that found the lock taken.
    Contended,
    /// The share of the lives of all threads that they waited for locks.
    Waited,
    /// The longest wait for a lock, in ns.
    LongestWait,
    /// The longest hold of a lock, in ns.
    LongestHold,
    /// Lock orders that could deadlock.
    Circles,
}

const EXPECTED: &str = "write 'contended > 5 %', 'wait > 10 %', 'wait > 100 ms', 'hold > 10 ms' or \
                        'circles > 0', with another number";

impl FromStr for Gate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::parse(text).ok_or_else(|| EXPECTED.to_owned())
    }
}

impl Gate {
    fn parse(text: &str) -> Option<Self> {
        let (what, limit) = text.split_once('>')?;
        let (number, unit) = quantity(limit);
        let (what, factor) = match (what.trim(), unit) {
            ("contended", "%") => (What::Contended, 0.01),
            ("wait", "%") => (What::Waited, 0.01),
            ("wait", unit) => (What::LongestWait, nanos(unit)?),
            ("hold", unit) => (What::LongestHold, nanos(unit)?),
            ("circles", "") => (What::Circles, 1.0),
            _ => return None,
        };
        Some(Gate {
            text: text.trim().to_owned(),
            what,
            limit: number? * factor,
        })
    }

    /// Whether the limit is about the order of locks.
    pub fn needs_order(&self) -> bool {
        self.what == What::Circles
    }

    /// What exceeds the limit, in one line; `None`: nothing does. Something that was not measured
    /// counts as exceeding it. `report` is `None` if no report could be made.
    pub fn exceeded(&self, report: Option<&Report>) -> Option<String> {
        let (measured, missing) = match report {
            Some(report) => (self.measured(report), self.missing(report)),
            None => (
                None,
                Some("nothing: the report could not be made".to_owned()),
            ),
        };
        let missing = missing.map(|what| format!("not measured: {what}"));
        let all: Vec<_> = measured.into_iter().chain(missing).collect();
        (!all.is_empty()).then(|| format!("--fail-if '{}': {}", self.text, all.join("; ")))
    }

    /// What the limit is about and was not measured.
    fn missing(&self, report: &Report) -> Option<String> {
        match (report.without.count, report.without.reason.as_deref()) {
            (0, None) => {}
            (0, Some(reason)) => return Some(format!("all processes: {reason}")),
            (count, reason) => {
                let processes = counted(count.into(), "process", "processes");
                let reason = reason.unwrap_or("no table could be made");
                return Some(format!("{processes}: {reason}"));
            }
        }
        if report.processes.is_empty() && report.without.idle == 0 {
            return Some("the program: it ended without the library".to_owned());
        }
        report.processes.iter().find_map(|process| {
            let what = self.missing_of(process)?;
            Some(format!(
                "{what} of process {} ({})",
                process.pid, process.program
            ))
        })
    }

    fn missing_of(&self, process: &Process) -> Option<String> {
        let order = process.order.as_ref().filter(|_| self.needs_order());
        if self.needs_order() && order.is_none() {
            return Some("the order of locks".to_owned());
        }
        if order.is_some_and(|order| order.is_cut) {
            return Some("some of the circles".to_owned());
        }
        if process.no_memory {
            return Some("parts for which there was no memory".to_owned());
        }
        let dropped = &process.dropped;
        let all = [
            (dropped.locks, "acquisitions of further locks"),
            (dropped.threads, "acquisitions by further threads"),
            (order.map_or(0, |order| order.dropped), "pairs of locks"),
            (
                order.map_or(0, |order| order.untracked),
                "acquisitions by threads that held many locks",
            ),
        ];
        let first = all.into_iter().find(|(count, _)| *count > 0);
        first.map(|(count, what)| format!("{} {what}", grouped(count)))
    }

    /// What was measured and exceeds the limit.
    fn measured(&self, report: &Report) -> Option<String> {
        let processes = &report.processes;
        let found = match self.what {
            What::Contended => {
                let sum = |of: fn(&Lock) -> u64| locks(processes).map(of).sum::<u64>() as f64;
                sum(|lock| lock.contended) / sum(Lock::asked_for).max(1.0)
            }
            What::Waited => waited_share(processes),
            What::LongestWait => longest(processes, |lock| lock.wait.max_ns),
            What::LongestHold => longest(processes, |lock| lock.hold.max_ns),
            What::Circles => {
                let orders = processes
                    .iter()
                    .filter_map(|process| process.order.as_ref());
                orders.map(|order| order.cycles.len()).sum::<usize>() as f64
            }
        };
        let said = match self.what {
            What::Contended | What::Waited => percent(found),
            What::LongestWait | What::LongestHold => time(found),
            What::Circles => grouped(found as u64),
        };
        (found > self.limit).then(|| format!("it is {said}"))
    }
}

/// A number without a sign or an exponent, and its unit.
pub fn quantity(text: &str) -> (Option<f64>, &str) {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.');
    let (number, unit) = text.split_at(end.unwrap_or(text.len()));
    (number.parse().ok(), unit.trim())
}

fn nanos(unit: &str) -> Option<f64> {
    Some(match unit {
        "ns" => 1.0,
        "us" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        _ => return None,
    })
}

fn locks(processes: &[Process]) -> impl Iterator<Item = &Lock> {
    processes.iter().flat_map(|process| &process.locks)
}

fn longest(processes: &[Process], of: fn(&Lock) -> u64) -> f64 {
    locks(processes).map(of).max().unwrap_or(0) as f64
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use super::super::folder::{Seen, zeros};
    use super::super::read;
    use super::*;

    #[test]
    fn what_found_no_place_exceeds_the_limits_that_are_about_it() {
        let table = zeros();
        let header = &table.header;
        header.is_ordered.store(1, Relaxed);
        let told = |limit: &str| {
            let report = Report {
                processes: vec![read::process(&table, Seen::default())],
                ..Report::default()
            };
            limit.parse::<Gate>().unwrap().exceeded(Some(&report))
        };
        let all = [
            "contended > 5 %",
            "wait > 5 %",
            "wait > 1 s",
            "hold > 1 s",
            "circles > 0",
        ];
        assert_eq!(all.map(told), [const { None }; 5]);
        header.no_memory.store(1, Relaxed);
        assert!(all.iter().all(|limit| told(limit).is_some()));
        header.no_memory.store(0, Relaxed);
        let dropped = [
            (&header.dropped_locks, 5),
            (&header.dropped_threads, 5),
            (&header.dropped_orders, 1),
            (&header.dropped_held, 1),
            // Losing these affects no number that has a limit.
            (&header.dropped_stacks, 0),
            (&header.dropped_uses, 0),
        ];
        for (number, expected) in dropped {
            number.store(7, Relaxed);
            let lines: Vec<_> = all.iter().filter_map(|limit| told(limit)).collect();
            assert_eq!(lines.len(), expected, "{lines:?}");
            let are_told = |line: &String| line.contains("': not measured: 7 ");
            assert!(lines.iter().all(are_told), "{lines:?}");
            number.store(0, Relaxed);
        }
        header.is_ordered.store(0, Relaxed);
        assert!(told("circles > 0").is_some() && told("hold > 1 s").is_none());
        let none = Report::default();
        let gate: Gate = "hold > 1 s".parse().unwrap();
        assert!(gate.exceeded(Some(&none)).is_some() && gate.exceeded(None).is_some());
    }

    #[test]
    fn limits_have_units() {
        let limit = |text: &str| text.parse::<Gate>().map(|gate| (gate.what, gate.limit));
        for (text, expected) in [
            ("contended > 5 %", (What::Contended, 0.05)),
            ("wait>12.5%", (What::Waited, 0.125)),
            (" wait > 2s ", (What::LongestWait, 2e9)),
            ("hold > 10 ms", (What::LongestHold, 1e7)),
            ("circles > 0", (What::Circles, 0.0)),
        ] {
            assert_eq!(limit(text), Ok(expected), "{text}");
        }
        for text in [
            "",
            ">",
            "contended",
            "contended > 5",
            "contended < 5 %",
            "hold > 5 %",
            "wait > ms",
            "wait > 1 min",
            "circles > 1 %",
            "speed > 1 s",
            "hold > -1 ms",
            "hold > 1.2.3 ms",
        ] {
            assert!(limit(text).is_err(), "{text}");
        }
    }
}
