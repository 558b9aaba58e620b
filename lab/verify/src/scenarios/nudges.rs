//! Signals that do nothing but interrupt: a sleep in the kernel ends for no reason.
//!
//! # Invariants
//!
//! 1. The handler is async-signal-safe: it changes an atomic and spins.

use crate::crew::Crew;
use crate::injector;
use crate::signal::{self, Previous};
use kinlock_measure::random::Random;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// How many signals are sent at a time.
const BURST: usize = 8;
/// For how long a handler spins.
const LINGER: u64 = 100;

static HANDLED: AtomicU64 = AtomicU64::new(0);

/// The signals of one run.
pub(super) struct Nudges {
    random: Random,
    previous: Previous,
    handled_before: u64,
    sent: u64,
}

impl Nudges {
    /// Installs the handler, without `SA_RESTART`: sleeps are to end.
    pub fn start(seed: u64) -> Self {
        Nudges {
            random: Random::stream(seed, u64::MAX),
            // SAFETY: invariant 1.
            previous: unsafe { signal::install(number(), handle, 0, []) },
            handled_before: HANDLED.load(Relaxed),
            sent: 0,
        }
    }

    /// Sends some to threads at random.
    pub fn send(&mut self, crew: &Crew, threads: usize) {
        for _ in 0..BURST {
            let thread = self.random.below(threads as u64) as usize;
            if let Some(tid) = crew.tid(thread) {
                self.sent += u64::from(signal::send(tid, number()));
            }
        }
    }

    pub fn sent(&self) -> u64 {
        self.sent
    }

    pub fn handled(&self) -> u64 {
        HANDLED.load(Relaxed) - self.handled_before
    }

    /// Removes the handler. No thread that may still get a signal may be left.
    pub fn stop(self) {
        self.previous.restore();
    }
}

fn number() -> i32 {
    signal::real_time(8)
}

extern "C" fn handle(_: i32) {
    HANDLED.fetch_add(1, Relaxed);
    injector::spin(LINGER);
}
