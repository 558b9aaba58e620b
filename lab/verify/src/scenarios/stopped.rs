//! Threads that do not run while they wait: signals stop them for longer than waiters have
//! patience, and one thread runs only when no other wants its CPU. The other threads have to go on
//! without them.
//!
//! # Invariants
//!
//! 1. The handler is async-signal-safe: it uses atomics, a constant-initialised thread-local
//!    without destructor, and a system call, and restores `errno`.
//! 2. The system call `sched_setscheduler` reads its parameter, which is there.

use super::{Context, Events, Stage};
use crate::crew::{self, Orders, Worker};
use crate::report::Findings;
use crate::signal;
use kinlock_core::events::Event;
use kinlock_core::platform::PATIENCE_NS;
use kinlock_measure::random::Random;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

const SIGNAL: i32 = 9;
/// Twice the time until the second look of a waiter with two others ahead. The scenario stops a
/// thread every few milliseconds, so with much longer stops hardly any thread would run.
const STOP: Duration = Duration::from_nanos(2 * 9 * 2 * PATIENCE_NS);
/// How long a wait may last.
const GENEROUS: Duration = Duration::from_secs(300);

static STOPPED: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static WAITING: Cell<bool> = const { Cell::new(false) };
}

pub(super) fn run(context: &Context) -> Findings {
    let events = Events::start();
    STOPPED.store(0, Relaxed);
    // SAFETY: invariant 1.
    unsafe { signal::install(signal::real_time(SIGNAL), stop, libc::SA_RESTART, []) };
    let mut random = Random::stream(context.orders.seed, u64::MAX);
    let stage = Arc::new(Stage::new(context.specimen.new));
    let (visited, own) = (Arc::clone(&stage), context.clone());
    let body = move |worker: &mut Worker| {
        if worker.index() == 0 {
            run_when_nobody_else_does();
        }
        let mut injector = own.injector(worker);
        while worker.running() {
            visited.visit_by(worker, |lock| {
                WAITING.set(true);
                lock.lock();
                WAITING.set(false);
                true
            });
            injector.point();
        }
    };
    // The thread that runs only when no other does waits for as long as the machine is busy.
    let orders = Orders {
        hang: context.orders.hang.max(GENEROUS),
        longest_wait: context.orders.longest_wait.max(GENEROUS),
        ..context.orders.clone()
    };
    let findings = crew::run(&orders, body, |crew| {
        crew.interrupt(&mut random, signal::real_time(SIGNAL));
        std::thread::sleep(Duration::from_millis(1 + random.below(4)));
        STOPPED.load(Relaxed) > 0 || context.orders.threads == 1
    });
    let stopped = STOPPED.load(Relaxed);
    let listed = [
        Event::Queued,
        Event::Unqueue,
        Event::HandoffRequest,
        Event::Pickup,
    ];
    let detail = format!("{stopped} waiters stopped, {}", events.list(&listed));
    let reached = stopped > 0 || context.orders.threads == 1;
    findings.on(&stage.state).with_reach(reached, detail)
}

/// Stops a thread that waits for the lock. If the thread has just got the lock, the others have to
/// wait, too.
extern "C" fn stop(_: i32) {
    signal::keeping_errno(|| {
        if WAITING.get() {
            STOPPED.fetch_add(1, Relaxed);
            std::thread::sleep(STOP);
        }
    });
}

/// From now on the calling thread runs only when no other thread wants its CPU. If the kernel
/// refuses that, the thread runs as the others do.
fn run_when_nobody_else_does() {
    // The kernel's parameter is a single number. musl's structure has more fields, and musl's
    // function always fails.
    let (call, none) = (libc::SYS_sched_setscheduler, 0_i32);
    // SAFETY: invariant 2.
    unsafe { libc::syscall(call, 0, libc::SCHED_IDLE, &raw const none) };
}
