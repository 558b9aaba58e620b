//! Threads of two locality domains fight for the lock as fast as they can. Both must get it.

use super::{Context, Stage, blocking};
use crate::crew::{self, Orders, Worker};
use crate::pretend;
use crate::report::{Findings, Property};
use std::sync::Arc;
use std::time::{Duration, Instant};

const THREADS: usize = 8;
/// Longer than waking a waiter takes, so that nearly all threads are in the queue nearly always.
/// Otherwise one domain could not keep the other out.
const SECTION: Duration = Duration::from_micros(100);
/// Fair locks hand over within milliseconds; a starved thread waits until the others stop.
const LONGEST_WAIT: Duration = Duration::from_millis(700);
/// Long enough for a starved thread to exceed the limit.
const SHORTEST_RUN: Duration = Duration::from_millis(1200);

/// How many attempts a sound lock has. On a busy machine a thread can wait that long for a CPU,
/// too, but only a starved thread waits that long in each attempt.
const ATTEMPTS: u32 = 20;

pub(super) fn run(context: &Context) -> Findings {
    let attempts = match context.specimen.defect {
        None => ATTEMPTS,
        Some(_) => 1,
    };
    let mut findings = attempt(context);
    for _ in 1..attempts {
        if findings.left_threads || !findings.failed(Property::Progress) {
            break;
        }
        findings = attempt(context);
    }
    findings
}

fn attempt(context: &Context) -> Findings {
    let stage = Arc::new(Stage::new(context.specimen.new_pretended));
    let orders = Orders {
        threads: THREADS,
        duration: context.orders.duration.max(SHORTEST_RUN),
        longest_wait: LONGEST_WAIT,
        ..context.orders.clone()
    };
    let of_crew = Arc::clone(&stage);
    let body = move |worker: &mut Worker| {
        pretend::set_domain(u16::from(worker.index() % 4 == 0));
        while worker.running() {
            worker.with_lock(of_crew.lock(), blocking, |worker| {
                of_crew.state.section(worker.name(), || ());
                spin_for(SECTION);
            });
        }
    };
    crew::run(&orders, body, |_| true).on(&stage.state)
}

fn spin_for(time: Duration) {
    let end = Instant::now() + time;
    while Instant::now() < end {
        std::hint::spin_loop();
    }
}
