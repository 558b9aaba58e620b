//! What a report must not say (`--fail-if`): a limit, and whether it is exceeded.

use std::str::FromStr;

use kinlock_cli::report::units::{grouped, percent, time};

use super::{Lock, Process, Report, waited_share};

/// A limit that the program must not exceed.
#[derive(Clone, Debug)]
pub struct Gate {
    /// As it was written.
    text: String,
    what: What,
    limit: f64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum What {
    /// Of all acquisitions of locks, those that found the lock taken.
    Contended,
    /// Of the lives of all threads, what they waited for locks.
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
        let limit = limit.trim();
        let end = limit.find(|c: char| !c.is_ascii_digit() && c != '.');
        let (number, unit) = limit.split_at(end.unwrap_or(limit.len()));
        let number: f64 = number.parse().ok()?;
        let (what, factor) = match (what.trim(), unit.trim()) {
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
            limit: number * factor,
        })
    }

    /// Whether it is about the order of locks.
    pub fn needs_order(&self) -> bool {
        self.what == What::Circles
    }

    /// What exceeds the limit, in one line; `None`: nothing does.
    pub fn exceeded(&self, report: &Report) -> Option<String> {
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
                orders.map(|order| order.cycles()).sum::<usize>() as f64
            }
        };
        let said = match self.what {
            What::Contended | What::Waited => percent(found),
            What::LongestWait | What::LongestHold => time(found),
            What::Circles => grouped(found as u64),
        };
        (found > self.limit).then(|| format!("--fail-if '{}': it is {said}", self.text))
    }
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
    use super::*;

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
