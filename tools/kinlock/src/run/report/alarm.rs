//! Alarms: one line when a wait or a hold has become too long.
//!
//! The command looks at the process from outside again and again, as [`now`](super::now) does once.
//! So an alarm costs the process nothing, and is late by at most an eighth of its limit, or by a
//! quarter of a second if that is less.

use std::collections::{HashMap, HashSet};
use std::mem::replace;
use std::time::{Duration, Instant};

use kinlock_cli::outcome::tell;
use kinlock_cli::report::units::time;
use kinlock_core::platform::Platform;
use kinlock_linux::Native;

use super::calls::path;
use super::gate::quantity;
use super::now::{Found, Thread, called};
use super::others::runs;
use super::outside::Outside;

#[derive(clap::Args, Clone, Copy)]
#[group(skip)]
pub struct Limits {
    /// Print a line on stderr when a thread has waited for a lock for TIME, such as 1s, with its
    /// calls and those of the thread that holds the lock; at most 100 lines
    #[arg(long, value_name = "TIME", value_parser = nanos)]
    alarm_wait: Option<u64>,
    /// Likewise when a thread has held a lock for TIME, such as 100ms, while others wait for it
    #[arg(long, value_name = "TIME", value_parser = nanos)]
    alarm_hold: Option<u64>,
}

fn nanos(text: &str) -> Result<u64, String> {
    let (number, unit) = quantity(text);
    let factor = match unit {
        "ms" => 1e6,
        "s" => 1e9,
        _ => return Err("write a time with its unit, as 100ms or 1s".to_owned()),
    };
    match number.map(|number| number * factor) {
        Some(nanos) if (1e6..=1e14).contains(&nanos) => Ok(nanos as u64),
        _ => Err("it has to be from 1ms to 100000s".to_owned()),
    }
}

impl Limits {
    pub fn are_any(&self) -> bool {
        self.alarm_wait.or(self.alarm_hold).is_some()
    }
}

/// The most lines.
const MOST: usize = 100;
/// After this time the process's libraries are looked up again.
const LIBRARIES: Duration = Duration::from_secs(1);

pub struct Alarms {
    pid: u32,
    limits: Limits,
    outside: Option<(Outside, Instant)>,
    /// The waits for which there was an alarm: the thread, and when the wait began.
    told: HashSet<(u32, u64)>,
    /// By the address of a lock that others wait for: its holder, when that holder was first seen,
    /// and whether there was an alarm for it.
    holds: HashMap<u64, (u32, u64, bool)>,
    lines: usize,
    /// Whether the last look at the process failed.
    has_failed: bool,
    /// Whether the user was told that the process cannot be looked at.
    is_told: bool,
}

impl Alarms {
    pub fn new(pid: u32, limits: Limits) -> Self {
        Alarms {
            pid,
            limits,
            outside: None,
            told: HashSet::new(),
            holds: HashMap::new(),
            lines: 0,
            has_failed: false,
            is_told: false,
        }
    }

    /// How long to wait between two looks.
    pub fn period(&self) -> Duration {
        let limits = [self.limits.alarm_wait, self.limits.alarm_hold];
        let least = limits.into_iter().flatten().min().unwrap_or(u64::MAX);
        Duration::from_nanos((least / 8).clamp(1_000_000, 250_000_000))
    }

    /// Prints what has become too long since the last look, or, once, why that cannot be seen.
    pub fn look(&mut self) {
        match self.late() {
            Ok(lines) => {
                lines.iter().for_each(|line| tell(line));
                self.has_failed = false;
            }
            Err(error) => {
                // After a single failure the process may be about to end.
                let is_lasting = replace(&mut self.has_failed, true);
                if is_lasting && !self.is_told && runs(self.pid) {
                    self.is_told = true;
                    tell(&format!("kinlock: no alarms: {error:#}"));
                }
            }
        }
    }

    /// What has become too long since the last look. An error if the process may not be looked at.
    /// Nothing if kinlock's library is not loaded in it, or not yet.
    fn late(&mut self) -> anyhow::Result<Vec<String>> {
        match &mut self.outside {
            Some((outside, at)) if at.elapsed() < LIBRARIES => outside.look_for_threads(),
            outside => {
                *outside = Outside::look(self.pid)?.map(|found| (found, Instant::now()));
            }
        }
        let Some((outside, _)) = self.outside.as_ref().filter(|_| self.lines <= MOST) else {
            return Ok(Vec::new());
        };
        let found = Found::of(outside, self.pid);
        let now = Native::now();
        let mut due = Vec::new();
        for (&thread, wait) in &found.waits {
            let since = now.saturating_sub(wait.since);
            let is_late = self.limits.alarm_wait.is_some_and(|limit| since >= limit);
            if is_late && found.is_for_lock(thread) && self.told.insert((thread, wait.since)) {
                due.push((thread, None));
            }
        }
        self.told.retain(|&(thread, since)| {
            let wait = found.waits.get(&thread);
            wait.is_some_and(|wait| wait.since == since)
        });
        let mut held: HashMap<u64, (u32, u64, bool)> = HashMap::new();
        for &thread in found
            .waits
            .keys()
            .filter(|&&thread| found.is_for_lock(thread))
        {
            let (address, mut holders) = (found.awaited(thread), found.holders(thread));
            let (Some(holder), None) = (holders.next(), holders.next()) else {
                continue;
            };
            let before = self
                .holds
                .get(&address)
                .filter(|(known, ..)| *known == holder);
            let hold = held
                .entry(address)
                .or_insert(before.copied().unwrap_or((holder, now, false)));
            let lasted = now.saturating_sub(hold.1);
            let is_late = self.limits.alarm_hold.is_some_and(|limit| lasted >= limit);
            if is_late && !hold.2 {
                hold.2 = true;
                due.push((thread, Some(lasted)));
            }
        }
        self.holds = held;
        if due.is_empty() {
            return Ok(Vec::new());
        }
        // Looked at anew, since at the earlier look the program may have been loaded only in part.
        let Some(outside) = Outside::look(self.pid)? else {
            return Ok(Vec::new());
        };
        let mut symbols = outside.symbols();
        let (locks, _) = found.report(&outside, &mut symbols);
        let threads = found.threads(&outside, &mut symbols);
        let mut lines = Vec::new();
        for (thread, held) in due {
            self.lines += 1;
            if self.lines > MOST {
                lines.push("kinlock: alarm: there are more, which are not told".to_owned());
                break;
            }
            let lock = locks.iter().find(|lock| lock.waiting.contains(&thread));
            let by_id = |id: u32| threads.iter().find(|thread| thread.id == id);
            let (Some(lock), Some(waiter)) = (lock, by_id(thread)) else {
                continue;
            };
            let waits = |what: &str| {
                let (who, nanos) = (called(waiter.id, &waiter.name), waiter.waits_for_ns as f64);
                let since = time(nanos);
                format!("{who} has waited {since}{what}: {}", path(&waiter.stack))
            };
            let holder = lock.held_by.and_then(by_id);
            let line = match (held, holder) {
                (Some(nanos), Some(holder)) => format!(
                    "{} has held {} for {} at least, {}; {}",
                    called(holder.id, &holder.name),
                    lock.name,
                    time(nanos as f64),
                    does(holder),
                    waits("")
                ),
                (_, Some(holder)) => format!(
                    "{}; held by {}, which {}",
                    waits(&format!(" for {}", lock.name)),
                    called(holder.id, &holder.name),
                    does(holder)
                ),
                (_, None) => waits(&format!(" for {}", lock.name)),
            };
            lines.push(format!("kinlock: alarm: {line}"));
        }
        Ok(lines)
    }
}

fn does(holder: &Thread) -> String {
    match (holder.ended, holder.waits_for, &holder.stack[..]) {
        _ if holder.elsewhere => "is one of another process".to_owned(),
        (true, ..) => "has ended".to_owned(),
        (_, 0, []) => "runs".to_owned(),
        (_, 0, stack) => format!("is in {}", path(stack)),
        (_, _, stack) => format!("waits itself: {}", path(stack)),
    }
}
