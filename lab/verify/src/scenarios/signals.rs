//! A storm of real-time signals. Their handlers take locks while the code that they interrupt holds
//! other locks or waits for them.
//!
//! Each signal has a lock of its own, and only higher signals can interrupt its handler. So locks
//! are taken in ascending order, and no thread ever waits for a lock that it holds.
//!
//! # Invariants
//!
//! 1. `STORM` is null or points at a `Storm` that stays: storms are leaked.
//! 2. The handler is async-signal-safe: it uses locks, atomics, a constant-initialised thread-local
//!    without destructor, and restores `errno`.
//! 3. A handler releases the lock that it has just taken.

use super::{Context, Events, Stage};
use crate::crew::{Crew, Worker};
use crate::report::{Findings, Verdict};
use crate::{injector, signal};
use kinlock_core::events::Event;
use kinlock_measure::random::Random;
use std::cell::Cell;
use std::ptr::{self, null_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering::*};
use std::time::{Duration, Instant};

/// The number of signals, and so the deepest nesting of handlers: as many as a thread has nodes.
/// With the interrupted code, that is one wait too many for the nodes.
const LEVELS: i32 = 4;
/// How many signals are under way per thread. More signals would only queue up and keep the threads
/// from running.
const IN_FLIGHT: u64 = 4;
/// Handlers stay in their sections for a while, so that others queue and further signals come.
const LINGER: u64 = 300;
const BURST: Duration = Duration::from_millis(4);

struct Storm {
    /// One level for each signal.
    levels: Vec<Level>,
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

pub(super) fn run(context: &Context) -> Findings {
    let events = Events::start();
    let stage = Arc::new(Stage::new(context.specimen.new));
    let level = |_| Level {
        stage: Stage::new(context.specimen.new),
        sections: AtomicU64::new(0),
    };
    let storm: &Storm = Box::leak(Box::new(Storm {
        levels: (0..LEVELS).map(level).collect(),
        deepest: AtomicU64::new(0),
    }));
    STORM.store(ptr::from_ref(storm).cast_mut(), Release);
    for level in 0..LEVELS {
        let lower = (0..=level).map(signal::real_time);
        // SAFETY: invariant 2.
        unsafe { signal::install(signal::real_time(level), handle, libc::SA_RESTART, lower) };
    }
    let mut sender = Sender {
        random: Random::stream(context.orders.seed, u64::MAX),
        sent: 0,
    };
    let begin = |worker: &Worker| ME.with(|me| me.0.set(worker.name()));
    let findings = context.contend(&stage, begin, |crew| {
        sender.burst(crew, context.orders.threads, storm);
        storm.handled() > 0
    });
    let handled = storm.handled();
    let detail = format!(
        "{} signals sent, {handled} handled, up to {} handlers nested, {}",
        sender.sent,
        storm.deepest.load(Relaxed),
        events.list(&[Event::Queued, Event::SlotFallback]),
    );
    let nested = storm.verdict(!findings.left_threads);
    let mut findings = findings.on(&stage.state).with_reach(handled > 0, detail);
    // The first verdict is the one on exclusion.
    let exclusion = &mut findings.verdicts[0].1;
    if exclusion.is_ok() && nested.is_err() {
        *exclusion = nested;
    }
    findings
}

impl Storm {
    fn handled(&self) -> u64 {
        let sections = |level: &Level| level.sections.load(Relaxed);
        self.levels.iter().map(sections).sum()
    }

    /// Whether the handlers' locks kept exclusion. If handlers hang, the count of sections is not
    /// complete, so only violations are judged.
    fn verdict(&self, completed: bool) -> Verdict {
        for level in &self.levels {
            let verdict = match completed {
                true => level.stage.state.verdict(level.sections.load(Relaxed)),
                false => level.stage.state.no_violation().map(|()| String::new()),
            };
            verdict.map_err(|what| format!("in a handler: {what}"))?;
        }
        Ok(String::new())
    }
}

struct Sender {
    random: Random,
    sent: u64,
}

impl Sender {
    /// Sends random signals to random threads for some milliseconds, but no faster than the threads
    /// handle them.
    fn burst(&mut self, crew: &Crew, threads: usize, storm: &Storm) {
        let end = Instant::now() + BURST;
        while Instant::now() < end && !crew.stopping() {
            if self.sent.saturating_sub(storm.handled()) > IN_FLIGHT * threads as u64 {
                std::thread::sleep(Duration::from_micros(50));
                continue;
            }
            let number = signal::real_time(self.random.below(LEVELS as u64) as i32);
            self.sent += u64::from(crew.interrupt(&mut self.random, number));
        }
    }
}

extern "C" fn handle(number: i32) {
    // SAFETY: invariant 1.
    let Some(storm) = (unsafe { STORM.load(Acquire).as_ref() }) else {
        return;
    };
    signal::keeping_errno(|| {
        ME.with(|(name, depth)| {
            depth.set(depth.get() + 1);
            storm.deepest.fetch_max(depth.get(), Relaxed);
            let level = &storm.levels[(number - signal::real_time(0)) as usize];
            let (lock, state) = (level.stage.lock(), &level.stage.state);
            lock.lock();
            state.section(name.get(), || injector::spin(LINGER));
            level.sections.fetch_add(1, Relaxed);
            // SAFETY: invariant 3.
            unsafe { lock.unlock() };
            depth.set(depth.get() - 1);
        });
    });
}
