//! A guard that is released by another thread than the one that took it, at the worst moments.
//!
//! ```text
//!   thread 0        writes, lets the others in, reads, sends that, reads again or writes again
//!   thread 1        releases what thread 0 sends
//!   all others      read; those that wait for thread 0 are held up when they are woken
//! ```
//!
//! # Invariant
//!
//! 1. Thread 0 sends a guard once, and does not release it. Thread 1 receives each once.

use super::{Context, Events};
use crate::crew::{self, Worker};
use crate::injector::Injector;
use crate::oracle::SharedState;
use crate::pretend;
use crate::report::{Findings, Property};
use crate::test_lock::ReadWrite;
use kinlock_core::events::Event;
use kinlock_core::platform::NEVER;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};

struct Shared {
    lock: Box<dyn ReadWrite + Send + Sync>,
    state: SharedState,
    /// A read guard is on its way.
    sent: AtomicBool,
    writes: AtomicU64,
    reads: AtomicU64,
    released: AtomicU64,
}

/// How often a thread looks whether another one has done its part before it goes on without.
const LOOKS: u32 = 10_000;

pub(super) fn overtaken(context: &Context) -> Findings {
    let new = context.specimen.reads.expect("the scenario is for these");
    let events = Events::start();
    let shared = Arc::new(Shared {
        lock: new(),
        state: SharedState::new(),
        sent: AtomicBool::new(false),
        writes: AtomicU64::new(0),
        reads: AtomicU64::new(0),
        released: AtomicU64::new(0),
    });
    let (of_crew, preemption) = (Arc::clone(&shared), context.preemption);
    let body = move |worker: &mut Worker| match worker.index() {
        0 => {
            while worker.running() {
                of_crew.write_and_send(worker);
            }
            of_crew.receive(worker);
        }
        1 => {
            while worker.running() {
                if !of_crew.receive(worker) {
                    std::hint::spin_loop();
                }
            }
        }
        _ => {
            pretend::hold_up(Injector::inside(preemption, worker.random.branch()));
            while worker.running() {
                of_crew.read(worker);
            }
        }
    };
    // More readers than a few keep the first writer out for most of the time.
    let mut orders = context.orders.clone();
    orders.threads = orders.threads.clamp(3, 4);
    let reached = || shared.released.load(Relaxed) > 0;
    let outcome = crew::run(&orders, body, |_| reached());
    let [writes, reads, released] =
        [&shared.writes, &shared.reads, &shared.released].map(|n| n.load(Relaxed));
    let exclusion = match outcome.completed {
        true => shared.state.verdict(writes),
        false => (shared.state.no_violation()).map(|()| "no violation before the hang".into()),
    };
    let events = events.list(&[Event::Park, Event::Timeout, Event::Revoke]);
    let detail = format!("{reads} reads, {writes} writes, {released} released by others, {events}");
    let mut findings = outcome.own_findings();
    (findings.verdicts).insert(0, (Property::Exclusion, exclusion));
    findings.with_reach(reached(), detail)
}

impl Shared {
    fn write_and_send(&self, worker: &mut Worker) {
        let lock = &*self.lock;
        let dice = worker.random.below(8);
        self.write(worker, || {
            // Time for a reader to register and to fall asleep.
            if dice < 6 {
                crate::injector::spin(1 << (8 + dice));
            }
        });
        lock.set_biased();
        worker.operation(|| _ = lock.read_until(NEVER, true));
        self.sent.store(true, Release);
        for _ in 0..worker.random.below(4) {
            worker.operation(|| _ = lock.read_until(NEVER, true));
            // SAFETY: taken above.
            unsafe { lock.unlock_read() };
        }
        let mut looks = 0;
        while self.sent.load(Acquire) && looks < LOOKS {
            looks += 1;
            std::hint::spin_loop();
        }
        if looks == LOOKS {
            // The other thread has no CPU.
            self.receive(worker);
        }
        self.write(worker, || ());
    }

    fn write(&self, worker: &mut Worker, pause: impl Fn()) {
        worker.operation(|| self.lock.lock());
        self.writes.fetch_add(1, Relaxed);
        self.state.section(worker.name(), &pause);
        // SAFETY: taken above.
        unsafe { self.lock.unlock() };
    }

    fn receive(&self, worker: &Worker) -> bool {
        let received = self.sent.swap(false, Acquire);
        if received {
            self.state.look(worker.name(), || ());
            // SAFETY: invariant 1.
            unsafe { self.lock.unlock_read() };
            self.released.fetch_add(1, Relaxed);
        }
        received
    }

    fn read(&self, worker: &mut Worker) {
        let lock = &*self.lock;
        let deadline = match worker.random.below(4) {
            0 => lock.now() + (1 << worker.random.below(20)),
            _ => NEVER,
        };
        let mut taken = false;
        worker.operation(|| taken = lock.read_until(deadline, false));
        if taken {
            self.reads.fetch_add(1, Relaxed);
            self.state.look(worker.name(), || ());
            // SAFETY: taken above.
            unsafe { lock.unlock_read() };
        }
        // So that the lock is free for the writer.
        crate::injector::spin(worker.random.below(1 << 10));
    }
}
