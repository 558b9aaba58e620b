//! Watches from outside whether a lock does what it has to. Only accesses to the data behind the
//! lock take simulated time.

use super::violation::{Failure, Violation};
use crate::report::Property;
use kinlock_core::platform::{Atomic, Ordering::Relaxed, Platform};
use kinlock_sim::platform::SimU32;
use kinlock_sim::schedule::{in_line_since, slots_in_use};
use kinlock_sim::{Sim, Stuck, place};
use std::cell::Cell;

/// The order in which waiters are to be served.
#[derive(Clone, Copy)]
pub(super) struct Order {
    /// Whether no later thread may come first.
    pub(super) fifo: bool,
    /// The most later threads that may come before a waiter.
    pub(super) overtakers: u32,
}

/// Watches one schedule.
pub(super) struct Oracle {
    sections: [Section; 2],
    order: Option<Order>,
    threads: Vec<Watched>,
    violation: Violation,
}

/// The data behind a lock.
struct Section {
    holder: &'static SimU32,
    counter: &'static SimU32,
    entries: Cell<u32>,
    readers: Cell<u32>,
}

/// A thread.
#[derive(Default)]
struct Watched {
    domain: Cell<u16>,
    priority: Cell<bool>,
    /// How many later threads have come before this one since it last held the lock.
    overtakers: Cell<u32>,
}

impl Oracle {
    pub(super) fn new(threads: usize, order: Option<Order>) -> Self {
        let section = || Section {
            holder: place(SimU32::new(0)),
            counter: place(SimU32::new(0)),
            entries: Cell::new(0),
            readers: Cell::new(0),
        };
        Oracle {
            sections: [section(), section()],
            order,
            threads: (0..threads).map(|_| Watched::default()).collect(),
            violation: Violation::default(),
        }
    }

    pub(super) fn starts(&self, me: usize) {
        self.threads[me].domain.set(Sim::domain());
        self.threads[me].priority.set(Sim::is_priority());
    }

    pub(super) fn has_failed(&self) -> bool {
        self.violation.is_some()
    }

    /// Thread `me` is in a critical section, and works there.
    pub(super) fn section(&self, which: usize, me: usize, work: impl Fn()) {
        let section = &self.sections[which];
        let name = me as u32 + 1;
        let before = section.holder.swap(name, Relaxed);
        self.demand(Property::Exclusion, before == 0, || {
            format!("thread {me} entered an occupied critical section")
        });
        let count = section.counter.load(Relaxed);
        self.demand(Property::Exclusion, section.readers.get() == 0, || {
            format!("thread {me} writes while others read")
        });
        work();
        section.counter.store(count + 1, Relaxed);
        let after = section.holder.swap(0, Relaxed);
        self.demand(Property::Exclusion, after == name, || {
            format!("thread {me} was joined in its critical section")
        });
        self.demand(Property::Exclusion, count == section.entries.get(), || {
            "an increment was lost".to_owned()
        });
        section.entries.set(section.entries.get() + 1);
    }

    /// Thread `me` reads behind the first lock, and works there.
    pub(super) fn look(&self, me: usize, work: impl Fn()) {
        let section = &self.sections[0];
        let nobody_writes = || {
            let writer = section.holder.load(Relaxed);
            self.demand(Property::Exclusion, writer == 0, || {
                format!("thread {me} reads while thread {} writes", writer - 1)
            });
        };
        nobody_writes();
        section.readers.set(section.readers.get() + 1);
        let count = section.counter.load(Relaxed);
        work();
        let unchanged = section.counter.load(Relaxed) == count;
        self.demand(Property::Exclusion, unchanged, || {
            format!("thread {me} has seen a change while it read")
        });
        section.readers.set(section.readers.get() - 1);
        nobody_writes();
    }

    /// Thread `me`, which arrived at the moment `arrival`, has come to hold the lock.
    pub(super) fn acquires(&self, me: usize, arrival: u64) {
        let Some(order) = self.order else {
            return;
        };
        let (mine, waiting) = (&self.threads[me], self.threads.iter().enumerate());
        mine.overtakers.set(0);
        for (other, theirs) in waiting.filter(|&(other, _)| other != me) {
            if in_line_since(other).is_none_or(|since| since >= arrival) {
                continue;
            }
            let n = theirs.overtakers.get() + 1;
            theirs.overtakers.set(n);
            let local = theirs.domain == mine.domain && !mine.priority.get();
            let (limit, why) = match () {
                () if order.fifo => (0, "first in, first out"),
                () if theirs.priority.get() => (0, "the waiter has priority"),
                () if local => (0, "both are of the same locality domain"),
                () => (order.overtakers, "a limit on local hand-offs"),
            };
            self.demand(Property::Progress, n <= limit, || {
                format!(
                    "thread {me} came before thread {other}, which had been in line when it \
                     arrived, as the {n}. one; at most {limit}: {why}"
                )
            });
        }
    }

    /// What went wrong, if anything did.
    pub(super) fn judge(
        &self,
        end: &Result<(), Stuck>,
        at_rest: impl FnOnce() -> bool,
    ) -> Option<Failure> {
        let contract = |what: &str| Some((Property::Contract, what.to_owned()));
        self.violation.get().or_else(|| match end {
            Err(stuck) => Some((Property::Completion, stuck.to_string())),
            Ok(()) if !at_rest() => {
                contract("all threads have ended, but the lock's word is not zero")
            }
            Ok(()) if slots_in_use() != 0 => {
                contract("all threads have ended, but waiter slots are in use")
            }
            Ok(()) => None,
        })
    }

    /// Notes a violation unless the property `holds`.
    pub(super) fn demand(&self, property: Property, holds: bool, what: impl FnOnce() -> String) {
        self.violation.demand(property, holds, what);
    }
}
