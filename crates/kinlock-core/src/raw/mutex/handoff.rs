//! Claims: the next unlock hands the lock to whoever has claimed it.

use super::front::SHORTEST_PAUSE;
use super::wait::{Wait, passed};
use super::*;

/// How long a head has been there before it keeps its claim while it sleeps: the lock is then idle until it has woken up.
const STARVING: u64 = 1_000_000;

impl<P: Platform, C: MutexConfig> QueuedMutex<P, C> {
    /// Asks the next unlock to hand the lock to us, and perhaps its holder for [`SHARE`], or [`EXCLUSIVE`]. `false`: somebody else has claimed.
    pub(super) fn request_handoff(&self, wait: &mut Wait, request_mode: u8) -> bool {
        let mut flags = self.flags.load(Relaxed);
        // Only waiters change the flags, each a few times, and unlocks that count themselves, up to seven: the loop ends.
        while flags & (HANDOFF | PICKUP) == 0 {
            let look = if request_mode == 0 {
                flags & SAMPLE
            } else {
                request_mode
            };
            let requested = flags & !SAMPLE | look | HANDOFF;
            match self
                .flags
                .compare_exchange(flags, requested, Relaxed, Relaxed)
            {
                Ok(_) => {
                    P::count(Event::Claim);
                    wait.requested = true;
                    break;
                }
                Err(seen) => flags = seen,
            }
        }
        wait.requested
    }

    /// Spins until the lock is ours, granted or taken (`true`), or nothing has happened for so many nanoseconds.
    pub(super) fn await_handoff(&self, wait: &mut Wait, patience: u64) -> bool {
        let start = P::now();
        loop {
            // Acquire pairs with the grant.
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

    /// Takes the claim back. Returns whether the lock is ours, because it had been granted.
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
        // Acquire pairs with the grant.
        self.flags.load(Acquire) & PICKUP != 0
    }
}
