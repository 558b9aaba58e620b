//! Plays many schedules until one fails.

use super::{Outcome, PATIENCE, Settings, Subject, Tally, drawn, play};
use crate::report::Property;
use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Plays schedules until one fails; for a broken subject, until one violates the property that the
/// defect is meant to violate. Returns the numbers of the schedules that failed, in order, with the
/// property that each violates.
pub(super) fn hunt<S: Subject>(
    subject: &S,
    settings: &Settings,
    mut progress: impl FnMut(u64),
) -> (Totals, Vec<(u64, Property)>) {
    let patience = subject.defect().map_or(1, |_| PATIENCE);
    let next = AtomicU64::new(0);
    // Schedules after the first failure do not count, so the first failure does not depend on the
    // number of host threads.
    let last = AtomicU64::new(settings.schedules.saturating_mul(patience));
    let played = AtomicU64::new(0);
    let (totals, failures) = (Mutex::new(Totals::default()), Mutex::new(Vec::new()));
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
    let mut failures = failures.into_inner().expect("nobody panics");
    failures.sort_by_key(|&(n, _)| n);
    (totals.into_inner().expect("nobody panics"), failures)
}

/// The sums over many schedules.
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
