//! Ways to ill-treat a lock, one file each.

mod basics;
mod churn;
mod condvar;
mod condvar_relay;
mod domains;
mod fairness;
mod fork;
mod leak;
mod preemption;
mod relay;
mod signals;
mod timed;
mod turns;

use crate::crew::{Orders, Outcome};
use crate::injector::Preemption;
use crate::locks::Specimen;
use crate::oracle::SharedState;
use crate::report::Property;
use crate::test_lock::TestLock;
use kinlock_core::events::Event;

/// A way to ill-treat a lock.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// Its name on the command line and in reports.
    pub name: &'static str,
    /// What it does, in one line.
    pub about: &'static str,
    /// Its share of the time, relative to the others'.
    pub(crate) weight: u32,
    /// Whether it is one for locks that have a condition variable.
    pub needs_condvar: bool,
    pub(crate) run: fn(&Context) -> Findings,
}

/// All scenarios, in the order in which they run: what finds most comes first.
pub const ALL: &[Scenario] = &[
    basics::SCENARIO,
    fairness::SCENARIO,
    domains::PRETENDED,
    preemption::SCENARIO,
    turns::SCENARIO,
    timed::SCENARIO,
    relay::SCENARIO,
    condvar_relay::SCENARIO,
    condvar::DELAYED,
    condvar::PLAIN,
    signals::SCENARIO,
    churn::SCENARIO,
    fork::SCENARIO,
    leak::SCENARIO,
    domains::REAL,
];

/// Runs once for each thread count.
pub const PREEMPTION: &str = "preemption";
/// Runs once for each number of locality domains.
pub const DOMAINS: &str = "domains";
/// Means something only where `KINLOCK_TOPOLOGY` has divided the machine's CPUs.
pub const TOPOLOGY: &str = "topology";

/// What a scenario works with.
#[derive(Clone, Debug)]
pub(crate) struct Context {
    pub specimen: Specimen,
    pub orders: Orders,
    pub preemption: Preemption,
    /// Locality domains to pretend.
    pub domains: usize,
}

/// What a scenario found out.
#[derive(Debug)]
pub(crate) struct Findings {
    /// By property, with details in either case.
    pub verdicts: Vec<(Property, Result<String, String>)>,
    /// Of the threads that lived as long as the scenario.
    pub acquisitions: Vec<u64>,
    /// Whether threads had to be left behind.
    pub left_threads: bool,
}

impl Findings {
    /// The crew's verdicts, and the oracle's on `state`, which was to see `extra` sections beyond the crew's own.
    fn new(outcome: Outcome, state: &SharedState, extra: u64) -> Self {
        let exclusion = if outcome.completed {
            state.verdict(outcome.total() + extra)
        } else {
            state
                .no_violation()
                .map(|()| "no violation before the hang".into())
        };
        let mut findings = Findings {
            verdicts: outcome.verdicts,
            acquisitions: outcome.acquisitions,
            left_threads: !outcome.completed,
        };
        findings
            .verdicts
            .insert(0, (Property::Exclusion, exclusion));
        findings
    }

    fn failed(&self, property: Property) -> bool {
        let mut verdicts = self.verdicts.iter();
        verdicts.any(|(of, verdict)| *of == property && verdict.is_err())
    }

    /// Adds a verdict on further state to that on exclusion.
    fn and_exclusion(mut self, further: Result<(), String>) -> Self {
        let exclusion = &mut self.verdicts[0].1;
        if exclusion.is_ok() {
            if let Err(what) = further {
                *exclusion = Err(what);
            }
        }
        self
    }

    fn with(mut self, property: Property, verdict: Result<String, String>) -> Self {
        self.verdicts.push((property, verdict));
        self
    }

    /// Adds that the scenario got where it wanted to, if `reached`.
    fn with_reach(self, reached: bool, detail: String) -> Self {
        self.with(
            Property::Reach,
            if reached { Ok(detail) } else { Err(detail) },
        )
    }
}

/// A lock and what it protects.
struct Stage {
    lock: Box<dyn TestLock>,
    state: SharedState,
}

impl Stage {
    fn new(new: fn() -> Box<dyn TestLock>) -> Self {
        Stage {
            lock: new(),
            state: SharedState::new(),
        }
    }
}

/// Waits for as long as it takes: the plain way for [`Worker::with_lock`](crate::crew::Worker::with_lock).
fn blocking(lock: &dyn TestLock) -> bool {
    lock.lock();
    true
}

/// What the slow paths of all locks have done since.
struct Events(kinlock_core::events::Snapshot);

impl Events {
    fn start() -> Self {
        kinlock_core::events::set_enabled(true);
        Events(kinlock_core::events::snapshot())
    }

    fn get(&self, event: Event) -> u64 {
        kinlock_core::events::snapshot().since(&self.0).get(event)
    }

    fn list(&self, events: &[Event]) -> String {
        let named: Vec<_> = events
            .iter()
            .map(|&e| format!("{} {}", e.name(), self.get(e)))
            .collect();
        named.join(", ")
    }
}
