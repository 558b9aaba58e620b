//! How much a better lock could gain, from what the locks did in one run.

use kinlock_cli::report::units::{grouped, percent, time};
use serde::{Deserialize, Serialize};

use super::child::Usage;

/// The counts that one process of the counting run leaves. Missing numbers are 0.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Line {
    calls: u64,
    locked: u64,
    contended: u64,
    wait_ns: u64,
    cond_waits: u64,
    threads: u64,
}

/// The counts of all processes of a run.
#[derive(Clone, Serialize)]
pub struct Counting {
    /// Processes that left counts.
    pub processes: usize,
    /// Intercepted calls.
    pub calls: u64,
    /// Mutexes and spinlocks taken.
    pub locked: u64,
    /// Acquisitions among these that found the lock taken.
    pub contended: u64,
    pub wait_ns: u64,
    pub cond_waits: u64,
    pub threads: u64,
    pub cpu_ns: u64,
    /// The share of the threads' time, computed or waited, that locks can change at most.
    pub at_stake: f64,
}

/// The most that an uncontended lock and unlock cost, in nanoseconds, and so the most that another
/// lock could save.
const PAIR: f64 = 20.0;
/// The most by which another lock can shorten a wait, in nanoseconds: about the time to wake a
/// sleeping thread. The rest of a wait is the hold time, which depends on the program.
const WAKE_UP: f64 = 100_000.0;
/// A share of the time below this is not worth gaining.
const LITTLE: f64 = 0.01;

impl Counting {
    /// Sums up the lines that the processes of a run left.
    pub fn of(text: &str, usage: &Usage) -> Self {
        let lines = text
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok());
        let lines: Vec<Line> = lines.collect();
        let sum = |number: fn(&Line) -> u64| lines.iter().map(number).sum::<u64>();
        let (locked, wait_ns) = (sum(|line| line.locked), sum(|line| line.wait_ns));
        let cpu = 1e9 * usage.cpu_s();
        let wait = wait_ns as f64;
        Counting {
            processes: lines.len(),
            calls: sum(|line| line.calls),
            locked,
            contended: sum(|line| line.contended),
            wait_ns,
            cond_waits: sum(|line| line.cond_waits),
            threads: sum(|line| line.threads),
            cpu_ns: cpu as u64,
            at_stake: (wait + PAIR * locked as f64) / (cpu + wait).max(1.0),
        }
    }

    /// The result in a sentence or two.
    pub fn words(&self) -> String {
        if self.locked == 0 {
            return "no mutex or spinlock was taken in the counting run".to_owned();
        }
        let found = percent(self.contended as f64 / self.locked as f64);
        let (wait, cpu) = (self.wait_ns as f64, self.cpu_ns as f64);
        let little = LITTLE * (cpu + wait);
        let means = match self.at_stake {
            stake if stake < LITTLE => "no lock can change this program".to_owned(),
            _ if wait < little => {
                "threads hardly wait, and only what a lock costs by itself can matter".to_owned()
            }
            _ if WAKE_UP * self.contended as f64 + PAIR * (self.locked as f64) < little => {
                let average = time(wait / self.contended.max(1) as f64);
                format!(
                    "waits are few and long, {average} on average, so that it matters what threads \
                     do while they hold a lock, and hardly which lock it is"
                )
            }
            _ => "which lock it is can matter".to_owned(),
        };
        format!(
            "{found} of {} acquisitions found the lock taken: {means} (threads waited {} for locks \
             and used {} of CPU time)",
            grouped(self.locked),
            time(wait),
            time(cpu),
        )
    }

    /// Why the locks under comparison may not have been those of the program. A process without an
    /// intercepted call may leave no counts at all.
    pub fn warning(&self) -> Option<String> {
        (self.calls == 0).then(|| {
            "no call of the program was intercepted: it takes no locks, or they do not go through \
             pthread (Go, Rust's std, the crate kinlock, CPython's own), or it takes them in a \
             child process that nothing can be preloaded into (static, set-uid), or a signal ended \
             it: the ratios say nothing about locks"
                .to_owned()
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn words(locked: u64, contended: u64, wait_ns: u64, cpu_ns: u64) -> String {
        let numbers = json!({ "locked": locked, "contended": contended, "wait_ns": wait_ns });
        let usage = Usage {
            user_s: cpu_ns as f64 / 1e9,
            ..Usage::default()
        };
        Counting::of(&numbers.to_string(), &usage).words()
    }

    #[test]
    fn the_sentence_says_what_another_lock_can_change() {
        const SECOND: u64 = 1_000_000_000;
        for (locked, contended, wait, expected) in [
            (0, 0, 0, "no mutex or spinlock was taken"),
            (1_000, 0, 0, "no lock can change this program"),
            (1_000_000, 10, 1_000, "only what a lock costs by itself"),
            // 60 waits in many acquisitions, for 5 ms each: the hold times decide.
            (
                875_510,
                60,
                300_000_000,
                "waits are few and long, 5.00 ms on average",
            ),
            (
                100_000,
                10,
                900_000_000,
                "waits are few and long, 90.0 ms on average",
            ),
            (875_510, 60_000, 300_000_000, "which lock it is can matter"),
        ] {
            // Except in the third row, the locks themselves cost less than a percent of CPU time.
            let cpu = if contended == 10 && wait == 1_000 {
                SECOND
            } else {
                4 * SECOND
            };
            let words = words(locked, contended, wait, cpu);
            assert!(
                words.contains(expected),
                "{locked} {contended} {wait}: {words}"
            );
        }
    }
}
