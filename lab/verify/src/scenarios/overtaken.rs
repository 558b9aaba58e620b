//! A guard that is released by another thread than the one that took it, at the worst moment:
//!
//! ```text
//!   thread 0   writes      ends that    reads and sends that               writes
//!   thread 1                            releases what it receives
//!   thread 2   waits       reads, but it does not run for a while ..............
//! ```
//!
//! # Invariant
//!
//! 1. A thread sends a guard once, and does not release it. Who takes it from the mail releases it.

use super::{Context, Events};
use crate::crew::{self, Worker};
use crate::injector::{Injector, Preemption};
use crate::oracle::SharedState;
use crate::pretend::{self, Gate};
use crate::report::Findings;
use crate::test_lock::{AnyTarget, ReadWrite};
use kinlock_core::events::Event;
use kinlock_core::platform::NEVER;
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

struct Shared {
    target: AnyTarget,
    state: SharedState,
    gate: &'static Gate,
    mail: Mutex<Mail>,
    news: Condvar,
    writes: AtomicU64,
    reads: AtomicU64,
    released: AtomicU64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mail {
    Empty,
    Sent,
    Received,
}

/// For how long the reader does not run.
const HELD_UP: Duration = Duration::from_millis(5);
/// For how long a thread waits for another one to do its part, before it goes on without that.
const PATIENCE: Duration = Duration::from_millis(20);

pub(super) fn overtaken(context: &Context) -> Findings {
    let events = Events::start();
    let shared = Arc::new(Shared {
        target: (context.specimen.new_pretended)(),
        state: SharedState::new(),
        gate: Box::leak(Box::default()),
        mail: Mutex::new(Mail::Empty),
        news: Condvar::new(),
        writes: AtomicU64::new(0),
        reads: AtomicU64::new(0),
        released: AtomicU64::new(0),
    });
    let of_crew = Arc::clone(&shared);
    let body = move |worker: &mut Worker| {
        match worker.index() {
            1 => pretend::hold_up(Injector::inside(Preemption::Heavy, worker.random.branch())),
            2 => pretend::pass(of_crew.gate),
            _ => {}
        }
        while worker.running() {
            match worker.index() {
                0 => of_crew.write_and_send(worker),
                1 => of_crew.receive(worker),
                _ => of_crew.read(worker),
            }
        }
    };
    let mut orders = context.orders.clone();
    orders.threads = 3;
    let counts = || [&shared.writes, &shared.reads, &shared.released].map(|n| n.load(Relaxed));
    let reached = || counts().iter().all(|&count| count > 0);
    let outcome = crew::run(&orders, body, |_| reached());
    let [writes, reads, released] = counts();
    let events = events.list(&[Event::Park, Event::Timeout, Event::Revoke]);
    let detail = format!("{reads} reads, {writes} writes, {released} released by others, {events}");
    outcome
        .findings_after(writes, &shared.state)
        .with_reach(reached(), detail)
}

impl Shared {
    fn lock(&self) -> &dyn ReadWrite {
        self.target.reading().expect("it is one")
    }

    fn mail(&self) -> MutexGuard<'_, Mail> {
        self.mail.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the mail is no longer so, or for as long as patience lasts.
    fn await_mail(&self, other_than: Mail) -> MutexGuard<'_, Mail> {
        let waiting = |mail: &mut Mail| *mail == other_than;
        let waited = (self.news).wait_timeout_while(self.mail(), PATIENCE, waiting);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    fn write_and_send(&self, worker: &mut Worker) {
        let lock = self.lock();
        self.write(worker, || {
            let start = Instant::now();
            while !self.gate.is_asleep() && start.elapsed() < PATIENCE {
                std::thread::sleep(Duration::from_micros(20));
            }
            self.gate.shut(HELD_UP);
        });
        lock.set_biased();
        worker.operation(|| _ = lock.read_until(NEVER, true));
        *self.mail() = Mail::Sent;
        self.news.notify_all();
        // In every second round while the other thread looks for the reader that it is to end.
        let start = Instant::now();
        let again = worker.random.below(2) == 0;
        while again && *self.mail() != Mail::Empty && start.elapsed() < PATIENCE {
            worker.operation(|| _ = lock.read_until(NEVER, true));
            // SAFETY: taken above.
            unsafe { lock.unlock_read() };
        }
        let mut mail = self.await_mail(Mail::Sent);
        if *mail == Mail::Sent {
            // The other thread gets no CPU.
            *mail = Mail::Empty;
            // SAFETY: invariant 1.
            unsafe { lock.unlock_read() };
        }
        drop(mail);
        // Before the next guard is sent, however long it takes.
        while *self.await_mail(Mail::Received) == Mail::Received {}
        self.write(worker, || ());
    }

    fn write(&self, worker: &mut Worker, pause: impl Fn()) {
        worker.operation(|| self.lock().lock());
        self.writes.fetch_add(1, Relaxed);
        self.state.section(worker.name(), || ());
        pause();
        // SAFETY: taken above.
        unsafe { self.lock().unlock() };
    }

    fn receive(&self, worker: &mut Worker) {
        let mut mail = self.await_mail(Mail::Empty);
        if *mail != Mail::Sent {
            return;
        }
        *mail = Mail::Received;
        drop(mail);
        self.state.look(worker.name(), || ());
        // SAFETY: invariant 1.
        unsafe { self.lock().unlock_read() };
        self.released.fetch_add(1, Relaxed);
        *self.mail() = Mail::Empty;
        self.news.notify_all();
    }

    fn read(&self, worker: &mut Worker) {
        let lock = self.lock();
        let deadline = match worker.random.below(4) {
            0 => lock.now() + HELD_UP.as_nanos() as u64 / 2,
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
        // So that the writer comes first.
        std::thread::sleep(Duration::from_micros(100));
    }
}
