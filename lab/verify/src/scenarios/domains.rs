//! More than one locality domain, pretended to the lock or configured by the environment. At the
//! same time threads change their domain and become priority waiters, and the knobs of NUMA-aware
//! locks change.

use super::{Context, Events, Stage};
use crate::crew::{self, Orders, Worker};
use crate::pretend;
use crate::report::Findings;
use kinlock_core::events::Event;
use kinlock_linux::config::{self, LocalLimit, Quantum, Tuning};
use kinlock_measure::random::Random;
use std::sync::Arc;

/// Runs on any machine: there are two threads per domain. Each tells the lock its domain, and now
/// and then another one.
pub(super) fn pretended(context: &Context) -> Findings {
    let stage = Stage::new(context.specimen.new_pretended);
    run(context, &context.orders, stage, context.orders.threads / 2)
}

/// Runs where `KINLOCK_TOPOLOGY` divides this machine's CPUs into domains. Threads are pinned to
/// all CPUs.
pub(super) fn real(context: &Context) -> Findings {
    let orders = Orders {
        pinned: true,
        ..context.orders.clone()
    };
    run(context, &orders, Stage::new(context.specimen.new), 0)
}

/// `pretended`: how many domains to pretend; 0 = none, so the CPUs' real domains count.
fn run(context: &Context, orders: &Orders, stage: Stage, pretended: usize) -> Findings {
    let events = Events::start();
    let stage = Arc::new(stage);
    let mut knobs = Knobs::new(Random::stream(orders.seed, u64::MAX));
    let domains = if pretended == 0 {
        kinlock_linux::topology::domain_count()
    } else {
        pretended
    };
    let reached = || {
        let spliced = events.get(Event::SetAside) > 0 && events.get(Event::Splice) > 0;
        domains > 1 && (spliced || !(context.specimen.reorders)())
    };
    let (of_crew, own_context) = (Arc::clone(&stage), context.clone());
    let body = move |worker: &mut Worker| {
        let mut injector = own_context.injector(worker);
        let mut domain = worker.index() as u64;
        while worker.running() {
            if worker.random.one_in(256) {
                domain = worker.random.next();
                kinlock::spin::set_priority_waiter(Some(worker.random.one_in(8)));
            }
            if pretended != 0 {
                pretend::set_domain((domain % pretended as u64) as u16);
            }
            of_crew.visit(worker, &mut injector);
        }
    };
    let findings = crew::run(orders, body, |_| {
        knobs.change();
        reached()
    });
    let detail = events.list(&[
        Event::HandoffLocal,
        Event::HandoffRemote,
        Event::SetAside,
        Event::Splice,
        Event::FlushByLimit,
    ]);
    findings
        .on(&stage.state)
        .with_reach(reached(), format!("{domains} domains, {detail}"))
}

/// Changes the knobs now and then, and restores them in the end.
struct Knobs {
    random: Random,
    before: Tuning,
}

impl Knobs {
    fn new(random: Random) -> Self {
        Knobs {
            random,
            before: config::tuning(),
        }
    }

    fn change(&mut self) {
        let random = &mut self.random;
        config::set_stealing(!random.one_in(4));
        config::set_slice_extension(random.one_in(2));
        let limit = if random.one_in(2) {
            LocalLimit::count(random.below(8) as u8)
        } else {
            LocalLimit::time(1 + random.below(10) as u8)
        };
        config::set_local_limit(limit.expect("the limit is within its range"));
        let micros = [0, 5, 100, 1000][random.below(4) as usize];
        config::set_quantum(Quantum::from_micros(micros).expect("the quantum is within its range"));
    }
}

impl Drop for Knobs {
    fn drop(&mut self) {
        config::set_stealing(self.before.stealing);
        config::set_slice_extension(self.before.slice_extension);
        config::set_local_limit(self.before.limit);
        config::set_quantum(self.before.quantum);
    }
}
