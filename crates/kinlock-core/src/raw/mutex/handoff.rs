//! Hand-off requests: the next unlock hands the lock to the thread that has requested it.

use super::front::SHORTEST_PAUSE;
use super::wait::{Wait, passed};
use super::*;

/// How long after its arrival at the front a thread keeps its request while it sleeps. The lock
/// then idles until the thread has woken up.
const STARVING: u64 = 1_000_000;

impl<P: Platform, C: MutexConfig> QueuedMutex<P, C> {
    /// Asks the next unlock to hand the lock to this thread, and its holder for `mode`: 0,
    /// [`SHARE`] or [`EXCLUSIVE`]. `false`: another request stands, or a pickup is due.
    pub(super) fn request_handoff(&self, wait: &mut Wait, mode: u8) -> bool {
        let mut flags = self.flags.load(Relaxed);
        // Only waiters change the flags, each a few times, and unlocks that count themselves, up to
        // seven: the loop ends.
        while flags & (HANDOFF | PICKUP) == 0 {
            let sample = if mode == 0 { flags & SAMPLE } else { mode };
            let requested = flags & !SAMPLE | sample | HANDOFF;
            match self
                .flags
                .compare_exchange(flags, requested, Relaxed, Relaxed)
            {
                Ok(_) => {
                    P::count(Event::HandoffRequest);
                    wait.requested = true;
                    break;
                }
                Err(seen) => flags = seen,
            }
        }
        wait.requested
    }

    /// Spins until the lock is handed over or taken (`true`), or nothing has happened for
    /// `patience` nanoseconds.
    pub(super) fn await_handoff(&self, wait: &mut Wait, patience: u64) -> bool {
        let start = P::now();
        loop {
            // Acquire pairs with `hand_over`.
            if self.flags.load(Acquire) & PICKUP != 0 || self.try_lock() {
                return true;
            }
            P::back_off(SHORTEST_PAUSE);
            let now = P::now();
            wait.pickup_wait = now.saturating_sub(start);
            if wait.pickup_wait >= patience || passed(wait.deadline, || now) {
                let starving = now.saturating_sub(wait.since) >= STARVING;
                return !(starving && now < wait.deadline) && self.withdraw_request(wait);
            }
        }
    }

    /// Withdraws the request. Returns whether the lock had already been handed over.
    pub(super) fn withdraw_request(&self, wait: &mut Wait) -> bool {
        let mut flags = self.flags.load(Relaxed);
        while flags & PICKUP == 0 || C::FAULT == MutexFault::LeakyCancel {
            let withdrawn = without_mode(flags) & !(HANDOFF | HANDOFF_SLEEPS);
            match self
                .flags
                .compare_exchange(flags, withdrawn, Relaxed, Relaxed)
            {
                Ok(_) => {
                    wait.requested = false;
                    return false;
                }
                Err(seen) => flags = seen,
            }
        }
        // Acquire pairs with `hand_over`.
        self.flags.load(Acquire) & PICKUP != 0
    }
}
