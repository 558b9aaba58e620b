//! Signals that do nothing but interrupt: a sleep in the kernel ends for no reason.
//!
//! # Invariants
//!
//! 1. The handler is async-signal-safe: it changes an atomic and spins. It may stay installed for good.
//! 2. Pointers given to `sigaction` refer to live locals.
//! 3. `tgkill` takes numbers only, and reaches no other process. A thread that has just ended is a harmless error.

use crate::crew::Crew;
use crate::injector;
use crate::random::Random;
use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// How many signals are sent at a time.
const BURST: usize = 8;
/// For how long a handler spins.
const LINGER: u64 = 100;

static HANDLED: AtomicU64 = AtomicU64::new(0);

/// The signals of one run.
pub(super) struct Nudges {
    random: Random,
    previous: libc::sigaction,
    handled_before: u64,
    sent: u64,
}

impl Nudges {
    /// Installs the handler.
    pub fn start(seed: u64) -> Self {
        let mut previous = MaybeUninit::uninit();
        // SAFETY: invariants 1 and 2; zero is a valid `sigaction`; `previous` is written on success, which is asserted.
        let previous = unsafe {
            let mut action: libc::sigaction = MaybeUninit::zeroed().assume_init();
            // Without SA_RESTART: sleeps are to end.
            action.sa_sigaction = handle as extern "C" fn(i32) as usize;
            libc::sigemptyset(&mut action.sa_mask);
            let failed = libc::sigaction(signal(), &action, previous.as_mut_ptr());
            assert_eq!(
                failed, 0,
                "a handler of a real-time signal can be installed"
            );
            previous.assume_init()
        };
        Nudges {
            random: Random::new(seed, u64::MAX),
            previous,
            handled_before: HANDLED.load(Relaxed),
            sent: 0,
        }
    }

    /// Sends some to threads at random.
    pub fn send(&mut self, crew: &Crew, threads: usize) {
        for _ in 0..BURST {
            let thread = self.random.below(threads as u64) as usize;
            let Some(tid) = crew.tid(thread) else {
                continue;
            };
            // SAFETY: invariant 3.
            let result = unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), tid, signal()) };
            self.sent += u64::from(result == 0);
        }
    }

    pub fn sent(&self) -> u64 {
        self.sent
    }

    pub fn handled(&self) -> u64 {
        HANDLED.load(Relaxed) - self.handled_before
    }

    /// Removes the handler. Nobody who may still get a signal may be left.
    pub fn stop(self) {
        // SAFETY: invariant 2.
        unsafe { libc::sigaction(signal(), &self.previous, null_mut()) };
    }
}

/// None of those that the scenario `signals` uses.
fn signal() -> i32 {
    libc::SIGRTMIN() + 8
}

extern "C" fn handle(_: i32) {
    HANDLED.fetch_add(1, Relaxed);
    injector::spin(LINGER);
}
