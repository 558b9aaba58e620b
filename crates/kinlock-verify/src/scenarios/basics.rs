//! One thread after another: do the calls do what they promise?

use super::{Context, Findings, Scenario, Stage, blocking};
use crate::crew::{self, Orders, Worker};
use crate::report::Property;
use crate::test_lock::TestLock;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "basics",
    about: "one thread checks what each call promises",
    weight: 1,
    needs_condvar: false,
    run,
};

const TIMEOUT: Duration = Duration::from_millis(3);

fn run(context: &Context) -> Findings {
    let stage = Arc::new(Stage::new(context.specimen.new));
    let broken = Arc::new(OnceLock::new());
    let outcome = {
        let (stage, broken) = (Arc::clone(&stage), Arc::clone(&broken));
        let orders = Orders {
            threads: 1,
            ..context.orders.clone()
        };
        crew::run(
            &orders,
            move |worker| {
                while worker.running() {
                    if let Err(promise) = check_promises(worker, &stage) {
                        let _ = broken.set(promise);
                    }
                }
            },
            |_| true,
        )
    };
    let contract = match broken.get() {
        None => Ok("every call did what it promises".into()),
        Some(promise) => Err(format!("it does not hold {promise}")),
    };
    Findings::new(outcome, &stage.state, 0).with(Property::Contract, contract)
}

fn check_promises(worker: &mut Worker, stage: &Stage) -> Result<(), &'static str> {
    let lock = &*stage.lock;
    for _ in 0..100 {
        let mut relocked = false;
        worker.with_lock(lock, blocking, |w| {
            stage.state.section(w.name(), || ());
            relocked = lock.try_lock();
        });
        expect(!relocked, "that try_lock fails while the lock is held")?;
        let taken = worker.with_lock(
            lock,
            |l| l.try_lock(),
            |w| stage.state.section(w.name(), || ()),
        );
        expect(taken, "that try_lock takes a free lock")?;
        let no_time = |l: &dyn TestLock| l.try_lock_for(Duration::ZERO);
        let taken = worker.with_lock(lock, no_time, |w| stage.state.section(w.name(), || ()));
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
