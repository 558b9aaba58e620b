//! A single thread checks that the calls do what their documentation says.

use super::{Context, Stage, blocking};
use crate::crew::{self, Orders, Worker};
use crate::report::{Findings, Property};
use crate::test_lock::Algorithm;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

const TIMEOUT: Duration = Duration::from_millis(3);

pub(super) fn run(context: &Context) -> Findings {
    let shared = Arc::new((Stage::new(context.specimen.new), OnceLock::new()));
    let orders = Orders {
        threads: 1,
        ..context.orders.clone()
    };
    let of_crew = Arc::clone(&shared);
    let body = move |worker: &mut Worker| {
        let (stage, broken) = &*of_crew;
        while worker.running() {
            if let Err(promise) = check_promises(worker, stage) {
                let _ = broken.set(promise);
            }
        }
    };
    let findings = crew::run(&orders, body, |_| true);
    let (stage, broken) = &*shared;
    let contract = match broken.get() {
        None => Ok("every call did what it promises".into()),
        Some(promise) => Err(format!("it does not hold {promise}")),
    };
    let findings = findings.on(&stage.state);
    findings.with(Property::Contract, contract)
}

fn check_promises(worker: &mut Worker, stage: &Stage) -> Result<(), &'static str> {
    let lock = stage.lock();
    for _ in 0..100 {
        let mut relocked = false;
        worker.with_lock(lock, blocking, |w| {
            stage.state.section(w.name(), || ());
            relocked = lock.try_lock();
        });
        expect(!relocked, "that try_lock fails while the lock is held")?;
        let taken = stage.visit_by(worker, |l| l.try_lock());
        expect(taken, "that try_lock takes a free lock")?;
        let taken = stage.visit_by(worker, |l: &dyn Algorithm| l.try_lock_for(Duration::ZERO));
        expect(
            taken,
            "that try_lock_for takes a free lock, however short the time",
        )?;
    }
    let (mut relocked, mut waited) = (false, Duration::ZERO);
    worker.with_lock(lock, blocking, |w| {
        stage.state.section(w.name(), || ());
        let start = Instant::now();
        relocked = lock.try_lock_for(TIMEOUT);
        waited = start.elapsed();
    });
    expect(!relocked, "that try_lock_for fails while the lock is held")?;
    expect(
        waited >= TIMEOUT,
        "that try_lock_for waits for as long as it was told",
    )
}

fn expect(holds: bool, promise: &'static str) -> Result<(), &'static str> {
    if holds { Ok(()) } else { Err(promise) }
}
