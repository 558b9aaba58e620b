//! IDs taken and given back by threads and by signal handlers.

use super::super::source::{self, Source};
use super::super::storm::Storm;
use super::Context;
use crate::injector::Injector;
use crate::report::{Findings, Property};
use kinlock_measure::cpus::{allowed_cpus, confine};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};

/// The most IDs that a thread holds at a time, without its handlers.
const DEEPEST: u64 = 3;

/// The IDs in use, and what went wrong.
struct Watch {
    source: Box<dyn Source>,
    slots: Vec<Slot>,
    counts: Counts,
}

#[derive(Default)]
struct Counts {
    /// The number of holders, including threads that are taking or giving back an ID: now, and the
    /// most so far.
    inside: AtomicU32,
    most_inside: AtomicU32,
    /// How many IDs have been taken so far.
    moved: AtomicU32,
    /// The most IDs that others took during one acquisition.
    meanwhile: AtomicU32,
    /// The largest limit so far: it shrinks when threads end.
    limit: AtomicU32,
    shared: AtomicU64,
    lost_updates: AtomicU64,
    above: AtomicU64,
    greatest: AtomicU32,
    visits: AtomicU64,
    refused: AtomicU64,
}

#[derive(Default)]
#[repr(align(128))]
struct Slot {
    holders: AtomicU32,
    /// Counted by the holder of the ID, with separate loads and stores: a second holder may lose
    /// updates.
    visits: AtomicU64,
}

pub(super) fn run(context: &Context) -> Findings {
    let watch = Arc::new(Watch::new(source::of(&context.specimen)));
    watch.wander();
    let in_handler = Arc::clone(&watch);
    let storm = Storm::new(Box::new(move || in_handler.visit(|| ())), true);
    let findings = storm.over(
        &context.orders,
        || (),
        |_, mut random| {
            let mut injector = Injector::new(context.preemption, random.branch());
            watch.source.join();
            let visits = storm.expose(|| {
                let mut visits = 0;
                while storm.rages() {
                    visits += watch.visit_deeply(random.below(DEEPEST), &mut injector);
                    injector.point();
                }
                visits
            });
            watch.source.leave();
            visits
        },
    );
    watch.judge(&storm, findings)
}

impl Watch {
    fn new(source: Box<dyn Source>) -> Self {
        Watch {
            slots: (0..source.count()).map(|_| Slot::default()).collect(),
            source,
            counts: Counts::default(),
        }
    }

    /// One member visits all CPUs. Since it is alone, it must get along with one ID. This is
    /// checked first, because the bound says little later, when nested signal handlers make many
    /// holders.
    fn wander(&self) {
        let cpus = allowed_cpus();
        self.source.join();
        for _ in 0..2 {
            for cpu in &cpus {
                confine(0, &[*cpu]);
                self.visit(|| ());
            }
        }
        confine(0, &cpus);
        self.source.leave();
    }

    /// Takes an ID, and `deeper` more IDs while it holds that one.
    fn visit_deeply(&self, deeper: u64, injector: &mut Injector) -> u64 {
        let mut visits = 1;
        self.visit(|| {
            injector.point();
            if deeper > 0 {
                visits += self.visit_deeply(deeper - 1, injector);
            }
        });
        visits
    }

    /// Takes an ID and gives it back. Async-signal-safe, if `meanwhile` is.
    fn visit(&self, mut meanwhile: impl FnMut()) {
        // SeqCst throughout: the bound is about one instant.
        let inside = self.counts.inside.fetch_add(1, SeqCst) + 1;
        self.counts.most_inside.fetch_max(inside, SeqCst);
        self.counts.limit.fetch_max(self.source.limit(), SeqCst);
        let before = self.counts.moved.load(SeqCst);
        let served = self.source.with(&mut |id| {
            let moved = self.counts.moved.fetch_add(1, SeqCst) - before;
            // Read again, because a thread may become a member as it enters.
            self.counts.limit.fetch_max(self.source.limit(), SeqCst);
            self.counts.meanwhile.fetch_max(moved, SeqCst);
            // IDs may change hands during a search. Since some searches are still under way, the
            // bound is twice the number of holders if there were several.
            let inside = self.counts.most_inside.load(SeqCst);
            let holders = 2 * inside - 1 + self.counts.meanwhile.load(SeqCst);
            let bound = holders.max(self.counts.limit.load(SeqCst));
            if id >= bound {
                self.counts.above.fetch_add(1, Relaxed);
            }
            self.counts.greatest.fetch_max(id, Relaxed);
            let slot = &self.slots[id as usize];
            if slot.holders.fetch_add(1, Relaxed) != 0 {
                self.counts.shared.fetch_add(1, Relaxed);
            }
            let before = slot.visits.load(Relaxed);
            meanwhile();
            if slot.visits.load(Relaxed) != before {
                self.counts.lost_updates.fetch_add(1, Relaxed);
            }
            slot.visits.store(before + 1, Relaxed);
            slot.holders.fetch_sub(1, Relaxed);
        });
        let counter = if served {
            &self.counts.visits
        } else {
            &self.counts.refused
        };
        counter.fetch_add(1, Relaxed);
        self.counts.inside.fetch_sub(1, SeqCst);
    }

    fn judge(&self, storm: &Storm, findings: Findings) -> Findings {
        let (visits, refused) = (
            self.counts.visits.load(Relaxed),
            self.counts.refused.load(Relaxed),
        );
        let counted = self.slots.iter().map(|slot| slot.visits.load(Relaxed));
        let counted: u64 = counted.sum();
        let (shared, lost) = (
            self.counts.shared.load(Relaxed),
            self.counts.lost_updates.load(Relaxed),
        );
        let exclusion = format!(
            "{visits} visits, {shared} by a second holder; {counted} counted, {lost} found changed"
        );
        let count = self.source.count();
        let above = self.counts.above.load(Relaxed);
        let contract = format!(
            "IDs up to {}, up to {} holders, limit up to {}; {above} above the bound",
            self.counts.greatest.load(Relaxed),
            self.counts.most_inside.load(Relaxed),
            self.counts.limit.load(Relaxed),
        );
        let available = self.available();
        let completion =
            format!("{available} of {count} IDs can be had afterwards, {refused} visits refused");
        let handled = storm.handled();
        let intact = shared == 0 && lost == 0 && counted == visits;
        let complete = available >= count && refused == 0;
        findings
            .judge(Property::Exclusion, intact, exclusion)
            .judge(Property::Contract, above == 0, contract)
            .judge(Property::Completion, complete, completion)
            .judge(
                Property::Reach,
                handled > 0,
                format!("{handled} signals handled"),
            )
    }

    /// How many IDs can be held at a time. A broken source may never run out of IDs, so the count
    /// stops after one too many.
    fn available(&self) -> u32 {
        fn hold(source: &dyn Source, held: &mut u32) {
            source.with(&mut |_| {
                *held += 1;
                if *held <= source.count() {
                    hold(source, held);
                }
            });
        }
        let mut held = 0;
        hold(&*self.source, &mut held);
        held
    }
}
