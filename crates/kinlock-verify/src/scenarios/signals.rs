//! A storm of real-time signals, whose handlers take locks while the code they interrupt holds or waits for others.
//!
//! Each signal has a lock of its own, and its handler can be interrupted by the next higher signals only. So locks
//! are taken in ascending order, and no thread ever waits for a lock that it holds.
//!
//! # Invariants
//!
//! 1. While a handler is installed, `STORM` is null or points at a `Storm` that stays: it is cleared and freed only
//!    after all threads that get these signals have ended, and leaked if some have not.
//! 2. The handler is async-signal-safe: it uses locks, atomics, a constant-initialised thread-local without
//!    destructor, and restores `errno`.
//! 3. A handler releases the lock that it has just taken.
//! 4. Pointers given to `sigaction` refer to live locals.
//! 5. `tgkill` takes numbers only, and reaches no other process. A thread that has just ended is a harmless error.
//! 6. A thread's own `errno` is always there.

use super::{Context, Events, Findings, Scenario, Stage, blocking};
use crate::crew::{self, Crew};
use crate::injector::{self, Injector};
use crate::random::Random;
use kinlock_core::events::Event;
use std::cell::Cell;
use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering::*};
use std::time::{Duration, Instant};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "signals",
    about: "a storm of real-time signals, whose nested handlers take further locks",
    weight: 5,
    needs_condvar: false,
    run,
};

/// Signals, and so handlers that can be nested. One more than the nodes a thread has besides the interrupted one's.
const LEVELS: usize = 4;
/// Signals under way per thread: more would only queue up and keep threads from ever running.
const IN_FLIGHT: u64 = 4;
/// Handlers linger in their sections, so that others queue for them and further signals come meanwhile.
const LINGER: u64 = 300;
const BURST: Duration = Duration::from_millis(4);

/// One lock per signal.
struct Storm {
    levels: [Level; LEVELS],
    deepest: AtomicU64,
}

struct Level {
    stage: Stage,
    sections: AtomicU64,
}

static STORM: AtomicPtr<Storm> = AtomicPtr::new(null_mut());

thread_local! {
    /// The thread's name, and how many handlers it is in.
    static ME: (Cell<u32>, Cell<u64>) = const { (Cell::new(0), Cell::new(0)) };
}

fn run(context: &Context) -> Findings {
    let events = Events::start();
    let stage = Arc::new(Stage::new(context.specimen.new));
    let level = |_| Level {
        stage: Stage::new(context.specimen.new),
        sections: AtomicU64::new(0),
    };
    let storm = Box::new(Storm {
        levels: std::array::from_fn(level),
        deepest: AtomicU64::new(0),
    });
    let storm = Box::leak(storm);
    STORM.store(storm, Release);
    let previous: Vec<_> = (0..LEVELS).map(install).collect();

    let mut sender = Sender {
        random: Random::new(context.orders.seed, u64::MAX),
        sent: 0,
    };
    let outcome = {
        let (stage, level) = (Arc::clone(&stage), context.preemption);
        let threads = context.orders.threads;
        let storm = &*storm;
        crew::run(
            &context.orders,
            move |worker| {
                ME.with(|me| me.0.set(worker.name()));
                let mut injector = Injector::new(level, worker.random.branch());
                while worker.running() {
                    worker.with_lock(&*stage.lock, blocking, |worker| {
                        stage.state.section(worker.name(), || injector.point());
                    });
                    injector.point();
                }
            },
            |crew| {
                sender.burst(crew, threads, storm);
                storm.handled() > 0
            },
        )
    };
    if outcome.completed {
        previous
            .iter()
            .enumerate()
            .for_each(|(level, action)| restore(level, action));
    }

    let completed = outcome.completed;
    let nested = storm.levels.iter().try_for_each(|level| {
        // Handlers that hang have counted sections that they have not been through.
        let count = completed.then(|| level.sections.load(Relaxed));
        level.stage.state.no_violation()?;
        count.map_or(Ok(()), |count| level.stage.state.verdict(count).map(drop))
    });
    let handled = storm.handled();
    let detail = format!(
        "{} signals sent, {handled} handled, up to {} handlers nested, {}",
        sender.sent,
        storm.deepest.load(Relaxed),
        events.list(&[Event::Queued, Event::SlotFallback]),
    );
    let findings = Findings::new(outcome, &stage.state, 0)
        .and_exclusion(nested.map_err(|what| format!("in a handler: {what}")))
        .with_reach(handled > 0, detail);
    if !findings.left_threads {
        STORM.store(null_mut(), Release);
        // SAFETY: invariant 1; the pointer comes from the `Box::leak` above.
        drop(unsafe { Box::from_raw(storm) });
    }
    findings
}

impl Storm {
    fn handled(&self) -> u64 {
        self.levels
            .iter()
            .map(|level| level.sections.load(Relaxed))
            .sum()
    }
}

struct Sender {
    random: Random,
    sent: u64,
}

impl Sender {
    /// For some milliseconds, sends random signals to random threads, but no faster than they are handled.
    fn burst(&mut self, crew: &Crew, threads: usize, storm: &Storm) {
        let end = Instant::now() + BURST;
        while Instant::now() < end && !crew.stopping() {
            if self.sent.saturating_sub(storm.handled()) > IN_FLIGHT * threads as u64 {
                std::thread::sleep(Duration::from_micros(50));
                continue;
            }
            let thread = self.random.below(threads as u64) as usize;
            let level = self.random.below(LEVELS as u64) as usize;
            let Some(tid) = crew.tid(thread) else {
                continue;
            };
            // SAFETY: invariant 5.
            let result =
                unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), tid, signal_of(level)) };
            self.sent += u64::from(result == 0);
        }
    }
}

fn signal_of(level: usize) -> i32 {
    libc::SIGRTMIN() + level as i32
}

fn install(level: usize) -> libc::sigaction {
    let mut previous = MaybeUninit::uninit();
    // SAFETY: invariants 2 and 4; zero is a valid `sigaction`; `previous` is written on success, which is asserted.
    unsafe {
        let mut action: libc::sigaction = MaybeUninit::zeroed().assume_init();
        action.sa_sigaction = handle as extern "C" fn(i32) as usize;
        action.sa_flags = libc::SA_RESTART;
        libc::sigemptyset(&mut action.sa_mask);
        for lower in 0..=level {
            libc::sigaddset(&mut action.sa_mask, signal_of(lower));
        }
        let failed = libc::sigaction(signal_of(level), &action, previous.as_mut_ptr());
        assert_eq!(
            failed, 0,
            "a handler of a real-time signal can be installed"
        );
        previous.assume_init()
    }
}

fn restore(level: usize, action: &libc::sigaction) {
    // SAFETY: invariant 4.
    unsafe { libc::sigaction(signal_of(level), action, null_mut()) };
}

extern "C" fn handle(signal: i32) {
    // SAFETY: invariant 1.
    let Some(storm) = (unsafe { STORM.load(Acquire).as_ref() }) else {
        return;
    };
    // SAFETY: invariant 6.
    let errno = unsafe { *libc::__errno_location() };
    ME.with(|(name, depth)| {
        depth.set(depth.get() + 1);
        storm.deepest.fetch_max(depth.get(), Relaxed);
        let level = &storm.levels[(signal - libc::SIGRTMIN()) as usize];
        level.stage.lock.lock();
        level
            .stage
            .state
            .section(name.get(), || injector::spin(LINGER));
        level.sections.fetch_add(1, Relaxed);
        // SAFETY: invariant 3.
        unsafe { level.stage.lock.unlock() };
        depth.set(depth.get() - 1);
    });
    // SAFETY: invariant 6.
    unsafe { *libc::__errno_location() = errno };
}
