//! Signals that only interrupt: they hold a thread up anywhere, and may end a sleep in the kernel.
//!
//! # Invariants
//!
//! 1. The handler is async-signal-safe: it changes an atomic and spins.

use crate::crew::Crew;
use crate::injector;
use crate::signal;
use kinlock_measure::random::Random;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// How many signals are sent at a time.
const BURST: usize = 8;

static HANDLED: AtomicU64 = AtomicU64::new(0);
/// For how long a handler spins.
static LINGER: AtomicU64 = AtomicU64::new(0);

/// The signals of one run.
pub(crate) struct Nudges {
    random: Random,
    handled_before: u64,
    pub(crate) sent: u64,
}

impl Nudges {
    /// Installs the handler. Without `SA_RESTART` in `flags` a signal ends a sleep, which hides a
    /// lost wake-up.
    pub(crate) fn start(seed: u64, linger: u64, flags: i32) -> Self {
        LINGER.store(linger, Relaxed);
        // SAFETY: invariant 1.
        unsafe { signal::install(number(), handle, flags, []) };
        Nudges {
            random: Random::stream(seed, u64::MAX),
            handled_before: HANDLED.load(Relaxed),
            sent: 0,
        }
    }

    /// Sends a burst of signals to threads drawn at random.
    pub(crate) fn send(&mut self, crew: &Crew) {
        for _ in 0..BURST {
            self.sent += u64::from(crew.interrupt(&mut self.random, number()));
        }
    }

    pub(crate) fn handled(&self) -> u64 {
        HANDLED.load(Relaxed) - self.handled_before
    }
}

fn number() -> i32 {
    signal::real_time(8)
}

extern "C" fn handle(_: i32) {
    HANDLED.fetch_add(1, Relaxed);
    injector::spin(LINGER.load(Relaxed));
}
