//! Readers and writers at one lock.
//!
//! # Invariant
//!
//! 1. A view of the lock releases it as `with_lock` has taken it through that view, or sends the
//!    right to do so, once, to the thread that receives it.

use super::{Context, Events};
use crate::child::{self, FINE};
use crate::crew::{self, Worker};
use crate::injector::Injector;
use crate::oracle::SharedState;
use crate::pretend;
use crate::report::{Findings, Property};
use crate::test_lock::{ReadWrite, TestLock};
use kinlock_core::events::Event;
use kinlock_core::platform::NEVER;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

type Lock = dyn ReadWrite + Send + Sync;

struct Shared {
    lock: Box<Lock>,
    state: SharedState,
    writes: AtomicU64,
    reads: AtomicU64,
    timeouts: AtomicU64,
    hasty: AtomicU64,
    /// Guards on their way to other threads, and how many have arrived.
    sent: Mutex<Vec<Kind>>,
    received: AtomicU64,
}

/// How the lock is held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Read,
    Upgradable,
    Write,
}

/// The lock as one that is taken for reading.
struct Reading<'a>(&'a Lock);

/// The lock as one that is taken for writing.
struct Writing<'a>(&'a Lock);

/// A view whose release is left to another thread.
struct Sending<'a>(&'a dyn TestLock, Kind, &'a Mutex<Vec<Kind>>);

impl TestLock for Sending<'_> {
    fn lock(&self) {
        self.0.lock();
    }

    fn try_lock(&self) -> bool {
        self.0.try_lock()
    }

    fn try_lock_for(&self, timeout: Duration) -> bool {
        self.0.try_lock_for(timeout)
    }

    unsafe fn unlock(&self) {
        (self.2.lock().unwrap_or_else(PoisonError::into_inner)).push(self.1);
    }
}

impl TestLock for Reading<'_> {
    fn lock(&self) {
        self.0.read_until(NEVER, false);
    }

    fn try_lock(&self) -> bool {
        self.0.try_read(false)
    }

    fn try_lock_for(&self, timeout: Duration) -> bool {
        self.0.read_until(after(self.0, timeout), false)
    }

    unsafe fn unlock(&self) {
        // SAFETY: invariant 1.
        unsafe { self.0.unlock_read() }
    }
}

impl TestLock for Writing<'_> {
    fn lock(&self) {
        self.0.lock();
    }

    fn try_lock(&self) -> bool {
        self.0.try_lock()
    }

    fn try_lock_for(&self, timeout: Duration) -> bool {
        self.0.lock_until(after(self.0, timeout))
    }

    unsafe fn unlock(&self) {
        // SAFETY: invariant 1.
        unsafe { self.0.unlock() }
    }
}

fn after(lock: &Lock, timeout: Duration) -> u64 {
    lock.now() + timeout.as_nanos() as u64
}

/// Everything, at random.
pub(super) fn mixed(context: &Context) -> Findings {
    run(context, |shared, worker, injector| {
        match worker.random.below(64) {
            0 => shared.lock.set_biased(),
            1..=39 => shared.read(worker, injector),
            40..=51 => shared.write(worker, injector),
            52..=57 => shared.upgrade(worker, injector),
            _ => shared.downgrade(worker, injector),
        }
    })
}

/// As [`mixed`], and guards are sent to other threads. Before a thread waits it releases all guards
/// that are on their way: all other threads may wait already.
pub(super) fn sent(context: &Context) -> Findings {
    // While this process has no other threads: the table of readers is copied as it is.
    let in_a_child = match context.specimen.defect {
        None => in_a_child(context),
        Some(_) => Ok("a broken lock is not taken into a child".into()),
    };
    run_sending(context).with(Property::Contract, in_a_child)
}

fn run_sending(context: &Context) -> Findings {
    run(context, |shared, worker, injector| {
        while shared.receive(worker, injector) {}
        match worker.random.below(64) {
            0..=3 => shared.lock.set_biased(),
            4..=31 => shared.send_read(worker, injector),
            32..=39 => shared.read(worker, injector),
            40..=45 => shared.send_write(worker, injector),
            46..=49 => shared.send_upgradable(worker, injector),
            50..=54 => shared.write(worker, injector),
            55..=59 => shared.upgrade(worker, injector),
            _ => shared.downgrade(worker, injector),
        }
    })
}

/// Does so in a child, for a part of the time.
fn in_a_child(context: &Context) -> Result<String, String> {
    let mut context = context.clone();
    context.orders.duration /= 4;
    let patience = context.orders.duration + 3 * context.orders.hang;
    let work = || {
        let findings = run_sending(&context);
        let failed = findings.verdicts.iter().filter_map(|(property, verdict)| {
            let what = verdict.as_ref().err()?;
            Some(format!("{} in a child: {what}", property.name()))
        });
        let failed: Vec<_> = failed.collect();
        failed.iter().for_each(|what| eprintln!("{what}"));
        if failed.is_empty() { FINE } else { FINE + 1 }
    };
    let Some(child) = child::fork(work) else {
        return Ok("no child could be forked".into());
    };
    match child.wait(patience, |_| std::thread::sleep(Duration::from_millis(1)))? {
        FINE => Ok("the same holds in a child".into()),
        _ => Err("a child found a defect".into()),
    }
}

/// The first thread writes or gives up, all others read.
pub(super) fn reader_flood(context: &Context) -> Findings {
    run(context, |shared, worker, injector| match worker.index() {
        0 if worker.random.below(4) == 0 => shared.give_up_to_readers(worker, injector),
        0 => shared.write_plainly(worker, injector),
        _ => shared.read_plainly(worker, injector),
    })
}

/// The first thread reads, all others write.
pub(super) fn writer_flood(context: &Context) -> Findings {
    run(context, |shared, worker, injector| match worker.index() {
        0 => shared.read_plainly(worker, injector),
        _ => shared.write_plainly(worker, injector),
    })
}

fn run(context: &Context, visit: fn(&Shared, &mut Worker, &mut Injector)) -> Findings {
    let new = context.specimen.reads.expect("the scenario is for these");
    let events = Events::start();
    let shared = Arc::new(Shared {
        lock: new(),
        state: SharedState::new(),
        writes: AtomicU64::new(0),
        reads: AtomicU64::new(0),
        timeouts: AtomicU64::new(0),
        hasty: AtomicU64::new(0),
        sent: Mutex::default(),
        received: AtomicU64::new(0),
    });
    let many = context.orders.threads > 1;
    let (of_crew, own_context) = (Arc::clone(&shared), context.clone());
    let body = move |worker: &mut Worker| {
        pretend::hold_up(own_context.injector(worker));
        let mut injector = own_context.injector(worker);
        while worker.running() {
            visit(&of_crew, worker, &mut injector);
        }
        while of_crew.receive(worker, &mut injector) {}
    };
    let happened = |count: &AtomicU64| count.load(Relaxed) > 0;
    let reached = || !many || happened(&shared.reads) && happened(&shared.writes);
    let outcome = crew::run(&context.orders, body, |_| reached());
    let [writes, reads] = [&shared.writes, &shared.reads].map(|n| n.load(Relaxed));
    let [timeouts, hasty] = [&shared.timeouts, &shared.hasty].map(|n| n.load(Relaxed));
    let exclusion = match outcome.completed {
        true => shared.state.verdict(writes),
        false => (shared.state.no_violation()).map(|()| "no violation before the hang".into()),
    };
    let events = events.list(&[Event::HandoffRequest, Event::Bias, Event::Revoke]);
    let received = shared.received.load(Relaxed);
    let detail = format!(
        "{reads} reads, {writes} writes, {timeouts} timeouts, {received} guards received, {events}"
    );
    let mut findings = outcome.own_findings();
    (findings.verdicts).insert(0, (Property::Exclusion, exclusion));
    findings
        .with(Property::Contract, super::nobody_hasty(hasty, timeouts))
        .with_reach(reached(), detail)
}

impl Shared {
    fn look(&self, worker: &mut Worker, injector: &mut Injector) {
        self.reads.fetch_add(1, Relaxed);
        self.state.look(worker.name(), || injector.point());
    }

    fn change(&self, worker: &mut Worker, injector: &mut Injector) {
        self.writes.fetch_add(1, Relaxed);
        self.state.section(worker.name(), || injector.point());
    }

    /// Releases what another thread, or this one, has taken. `false`: nothing is on its way.
    fn receive(&self, worker: &mut Worker, injector: &mut Injector) -> bool {
        let sent = (self.sent.lock().unwrap_or_else(PoisonError::into_inner)).pop();
        let Some(kind) = sent else { return false };
        self.received.fetch_add(1, Relaxed);
        match kind {
            Kind::Read | Kind::Upgradable => self.look(worker, injector),
            Kind::Write => self.change(worker, injector),
        }
        // SAFETY: invariant 1.
        unsafe {
            match kind {
                Kind::Read => self.lock.unlock_read(),
                Kind::Upgradable => self.lock.unlock_upgradable(),
                Kind::Write => self.lock.unlock(),
            }
        }
        true
    }

    /// Reads, lets another thread release that, and reads again while that may happen. No writer
    /// can hold the lock meanwhile for long.
    fn send_read(&self, worker: &mut Worker, injector: &mut Injector) {
        let (kind, limit) = draw(worker);
        let again = worker.random.below(4);
        let acquire = |view: &dyn TestLock| self.acquire(view, kind, limit);
        let view = Sending(&Reading(&*self.lock), Kind::Read, &self.sent);
        let taken = worker.with_lock(&view, acquire, |worker| self.look(worker, injector));
        for _ in 0..again {
            if taken && self.lock.try_read(true) {
                // SAFETY: taken above.
                unsafe { self.lock.unlock_read() };
            }
        }
    }

    fn send_write(&self, worker: &mut Worker, injector: &mut Injector) {
        let (kind, limit) = draw(worker);
        let acquire = |view: &dyn TestLock| self.acquire(view, kind, limit);
        let view = Sending(&Writing(&*self.lock), Kind::Write, &self.sent);
        worker.with_lock(&view, acquire, |worker| self.change(worker, injector));
    }

    fn send_upgradable(&self, worker: &mut Worker, injector: &mut Injector) {
        let (kind, limit) = draw(worker);
        let acquire = |_: &dyn TestLock| match kind {
            0..4 => self.lock.upgradable_until(NEVER),
            _ => self.lock.upgradable_until(after(&*self.lock, limit)),
        };
        let view = Sending(&Writing(&*self.lock), Kind::Upgradable, &self.sent);
        worker.with_lock(&view, acquire, |worker| self.look(worker, injector));
    }

    fn read_plainly(&self, worker: &mut Worker, injector: &mut Injector) {
        worker.with_lock(&Reading(&*self.lock), super::blocking, |worker| {
            self.look(worker, injector);
        });
    }

    fn write_plainly(&self, worker: &mut Worker, injector: &mut Injector) {
        worker.with_lock(&Writing(&*self.lock), super::blocking, |worker| {
            self.change(worker, injector);
        });
    }

    /// A write that often gives up while readers wait for its turn. They must go on without another
    /// writer.
    fn give_up_to_readers(&self, worker: &mut Worker, injector: &mut Injector) {
        // About the time after which a waiter asks to go next.
        let limit = Duration::from_nanos(worker.random.below(1 << 21));
        let mut taken = false;
        let acquire = |view: &dyn TestLock| {
            taken = self.acquire(view, TIMED, limit);
            taken
        };
        worker.with_lock(&Writing(&*self.lock), acquire, |worker| {
            self.change(worker, injector);
        });
        let before = self.reads.load(Relaxed);
        while !taken && worker.running() && self.reads.load(Relaxed) == before {
            std::thread::yield_now();
        }
    }

    fn read(&self, worker: &mut Worker, injector: &mut Injector) {
        let (kind, limit) = draw(worker);
        let view = Reading(&*self.lock);
        let again = kind == 7;
        let acquire = |view: &dyn TestLock| self.acquire(view, kind, limit);
        worker.with_lock(&view, acquire, |worker| {
            self.look(worker, injector);
            // A thread that reads may always read again.
            if again && self.lock.try_read(true) {
                self.look(worker, injector);
                // SAFETY: taken above.
                unsafe { self.lock.unlock_read() };
            }
        });
    }

    fn write(&self, worker: &mut Worker, injector: &mut Injector) {
        let (kind, limit) = draw(worker);
        let acquire = |view: &dyn TestLock| self.acquire(view, kind, limit);
        worker.with_lock(&Writing(&*self.lock), acquire, |worker| {
            self.change(worker, injector);
        });
    }

    fn upgrade(&self, worker: &mut Worker, injector: &mut Injector) {
        let (kind, limit) = draw(worker);
        let name = worker.name();
        let acquire = |_: &dyn TestLock| {
            let deadline = if kind < 4 {
                NEVER
            } else {
                after(&*self.lock, limit)
            };
            if !self.lock.upgradable_until(deadline) {
                return false;
            }
            self.state.look(name, || ());
            // SAFETY: taken above.
            let upgraded = unsafe { self.lock.upgrade_until(deadline) };
            if !upgraded {
                self.state.look(name, || ());
                // SAFETY: it has stayed an upgradable reader.
                unsafe { self.lock.unlock_upgradable() };
            }
            upgraded
        };
        worker.with_lock(&Writing(&*self.lock), acquire, |worker| {
            self.change(worker, injector);
        });
    }

    fn downgrade(&self, worker: &mut Worker, injector: &mut Injector) {
        let name = worker.name();
        let acquire = |_: &dyn TestLock| {
            self.lock.lock();
            self.writes.fetch_add(1, Relaxed);
            self.state.section(name, || ());
            // SAFETY: taken above.
            unsafe { self.lock.downgrade() };
            true
        };
        worker.with_lock(&Reading(&*self.lock), acquire, |worker| {
            self.look(worker, injector);
        });
    }

    fn acquire(&self, view: &dyn TestLock, kind: u64, limit: Duration) -> bool {
        match kind {
            0..=2 | 7 => super::blocking(view),
            3 => view.try_lock(),
            _ => {
                let start = std::time::Instant::now();
                let taken = view.try_lock_for(limit);
                self.timeouts.fetch_add(u64::from(!taken), Relaxed);
                let hasty = !taken && start.elapsed() < limit;
                self.hasty.fetch_add(u64::from(hasty), Relaxed);
                taken
            }
        }
    }
}

/// The kind of acquisition with a time limit.
const TIMED: u64 = 4;

fn draw(worker: &mut Worker) -> (u64, Duration) {
    let limit = Duration::from_nanos(1 << worker.random.below(22));
    (worker.random.below(8), limit)
}
