//! More than one locality domain, pretended to the lock or configured by the environment.

use super::{Context, Events, Findings, Scenario, Stage, blocking};
use crate::crew::{self, Orders};
use crate::injector::Injector;
use crate::pretend;
use kinlock::events::Event;
use std::sync::Arc;

/// On any machine: threads tell the lock where they are, and now and then that they have moved.
pub(super) const PRETENDED: Scenario = Scenario {
    name: super::DOMAINS,
    about: "threads of 2, 4 or 8 pretended locality domains, now and then changing theirs",
    weight: 3,
    run: |context| {
        let orders = Orders {
            threads: 2 * context.domains,
            ..context.orders.clone()
        };
        let stage = Stage::new(context.specimen.new_pretended);
        run(context, &orders, stage, context.domains)
    },
};

/// Where `KINLOCK_TOPOLOGY` divides this machine's CPUs into domains, with threads pinned to all of them.
pub(super) const REAL: Scenario = Scenario {
    name: super::TOPOLOGY,
    about: "threads pinned to CPUs that KINLOCK_TOPOLOGY has divided into domains",
    weight: 3,
    run: |context| {
        let orders = Orders {
            pinned: true,
            ..context.orders.clone()
        };
        run(context, &orders, Stage::new(context.specimen.new), 0)
    },
};

/// `pretended`: how many domains to pretend; 0 = those of the CPUs.
fn run(context: &Context, orders: &Orders, stage: Stage, pretended: usize) -> Findings {
    let events = Events::start();
    let stage = Arc::new(stage);
    let outcome = {
        let (stage, level) = (Arc::clone(&stage), context.preemption);
        crew::run(
            orders,
            move |worker| {
                let mut injector = Injector::new(level, worker.random.clone());
                let mut domain = worker.index() as u64;
                while worker.running() {
                    if pretended != 0 {
                        if worker.random.one_in(256) {
                            domain = worker.random.next();
                        }
                        pretend::set_domain((domain % pretended as u64) as u16);
                    }
                    worker.with_lock(&*stage.lock, blocking, |worker| {
                        stage.state.section(worker.name(), || injector.point());
                    });
                }
            },
            |_| (),
        )
    };
    let domains = if pretended == 0 {
        kinlock::topology::domain_count().into()
    } else {
        pretended
    };
    let spliced = events.get(Event::SetAside) > 0 && events.get(Event::Splice) > 0;
    let reached = domains > 1 && (spliced || !(context.specimen.reorders)());
    let detail = events.list(&[
        Event::HandoffLocal,
        Event::HandoffRemote,
        Event::SetAside,
        Event::Splice,
        Event::FlushByLimit,
    ]);
    Findings::new(outcome, &stage.state, 0)
        .with_reach(reached, format!("{domains} domains, {detail}"))
}
