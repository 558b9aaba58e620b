//! Plays many schedules until one fails.

use super::{ENOUGH_TO_REACH, Failure, Outcome, PATIENCE, Settings, Subject, Tally, drawn, play};
use crate::report::Property;
use std::fmt;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// The result of many schedules.
pub(super) struct Hunt<S: Subject> {
    pub(super) totals: Totals,
    /// Schedules that failed, with the property that each violates, in order of their numbers.
    pub(super) failures: Vec<(u64, Property)>,
    /// The violation of the subject's defect, if only all schedules together show it.
    pub(super) together: Option<Failure<S>>,
}

/// Plays schedules until the failure is found: any failure, or for a broken subject the one that
/// its defect is meant to cause.
pub(super) fn hunt<S: Subject>(
    subject: &S,
    settings: &Settings,
    mut progress: impl FnMut(u64),
) -> Hunt<S> {
    let mut hunt = Hunt {
        totals: Totals::default(),
        failures: Vec::new(),
        together: None,
    };
    let patience = subject.defect().map_or(1, |_| PATIENCE);
    let schedules = settings.schedules.saturating_mul(patience);
    let mut start = 0;
    // They are judged together after fixed numbers of schedules, whatever the number of host
    // threads.
    while start < schedules && hunt.together.is_none() {
        let end = schedules.min(start + ENOUGH_TO_REACH);
        if hunt.through(subject, settings, start..end, &mut progress) {
            break;
        }
        if let Some(meant) = subject.defect().filter(|_| end >= ENOUGH_TO_REACH) {
            let mut judged = subject.judge(&hunt.totals.tally).into_iter();
            let failed = judged.find(|&(property, passed, _)| property == meant && !passed);
            hunt.together = failed.map(|(property, _, detail)| Failure {
                property,
                detail,
                number: end,
                schedule: None,
            });
        }
        start = end;
    }
    hunt
}

impl<S: Subject> Hunt<S> {
    /// Plays the schedules with these numbers. Returns whether the failure is found.
    fn through(
        &mut self,
        subject: &S,
        settings: &Settings,
        numbers: Range<u64>,
        mut progress: impl FnMut(u64),
    ) -> bool {
        let next = AtomicU64::new(numbers.start);
        // Later schedules do not matter. So the first failure does not depend on the host's
        // threads.
        let last = AtomicU64::new(numbers.end);
        let played = AtomicU64::new(numbers.start);
        let (totals, failures) = (Mutex::new(&mut self.totals), Mutex::new(&mut self.failures));
        let work = || {
            let mut own = Totals::default();
            loop {
                let n = next.fetch_add(1, Relaxed);
                if n >= last.load(Relaxed) {
                    break;
                }
                let outcome = play(&drawn(subject, settings, n), false);
                own.add(&outcome);
                played.fetch_add(1, Relaxed);
                if let Some((property, _)) = outcome.failure {
                    if subject.defect().is_none_or(|meant| meant == property) {
                        last.fetch_min(n, Relaxed);
                    }
                    failures.lock().expect("nobody panics").push((n, property));
                }
            }
            totals.lock().expect("nobody panics").merge(&own);
        };
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..settings.host_threads.max(1))
                .map(|_| scope.spawn(work))
                .collect();
            while !workers.iter().all(|worker| worker.is_finished()) {
                std::thread::sleep(Duration::from_millis(20));
                progress(played.load(Relaxed));
            }
        });
        self.failures.sort_by_key(|&(n, _)| n);
        last.load(Relaxed) < numbers.end
    }
}

/// Numbers of many schedules.
#[derive(Clone, Default)]
pub(super) struct Totals {
    pub(super) schedules: u64,
    pub(super) accesses: u64,
    disruptions: u64,
    pub(super) tally: Tally,
}

impl Totals {
    fn add(&mut self, outcome: &Outcome) {
        self.schedules += 1;
        if let Some(played) = &outcome.played {
            self.accesses += played.accesses;
            self.disruptions += played.disruptions.len() as u64;
            self.tally.merge(&outcome.tally);
        }
    }

    fn merge(&mut self, other: &Self) {
        self.schedules += other.schedules;
        self.accesses += other.accesses;
        self.disruptions += other.disruptions;
        self.tally.merge(&other.tally);
    }
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} schedules, {} accesses, {} disruptions: none failed",
            self.schedules, self.accesses, self.disruptions
        )
    }
}
