//! Sleeping on the word, and being woken there.

use super::wait::{Wait, passed};
use super::*;

/// The first sleep where no heavy fence guarantees that a sleeper is noticed; later ones are longer, as by then the flag is seen by everybody.
pub(super) const UNNOTICED_SLEEP: u64 = 200_000;
/// For how long after it has come to the front a thread of a crowd does without the fence: it waits for every CPU on which the program runs, and such a CPU may be gone for
/// milliseconds, where a host has others to serve. As long as a scheduler makes a holder wait for its CPU; who holds the lock for longer is worth a fence.
const WITHOUT_FENCE: u64 = 3_000_000;

impl<P: Platform, C: MutexConfig> QueuedMutex<P, C> {
    /// As [`lock`](Self::lock), for somebody who may have been woken in place of all who sleep on the word: sees to it that the next one wakes up.
    pub(in crate::raw) fn lock_after_sleep(&self) {
        let parks = P::CAN_PARK && C::PARK;
        // While the lock is free the next one may as well wake up beside us: to wake one after the other leaves CPUs idle in between, and
        // those take long to come back. Whoever is woken has our duty then.
        let passed_on = parks && !self.is_locked() && P::unpark_in(self.key(), 1, OTHERS) != 0;
        let owes = parks && !passed_on;
        if owes && !self.try_lock() {
            // We may have to queue behind a head that sleeps on the word, and whose wake-up we have taken: say at once that somebody sleeps. As in `sleep_on_word`,
            // either the holder sees that, or we see the lock free.
            if C::FAULT != MutexFault::SilentRequeue {
                self.flags.fetch_or(SLEEPERS, SeqCst);
                if !P::heavy_fence() || !self.is_locked() {
                    self.wake();
                }
            }
            self.lock();
        } else if !owes {
            self.lock();
        }
        if owes {
            // Relaxed: our own unlock comes later.
            self.flags.fetch_or(SLEEPERS, Relaxed);
        }
    }

    /// Sleeps until an unlock wakes us, or until the lock is free or ours.
    pub(super) fn sleep_on_word(&self, wait: &mut Wait) {
        P::count(Event::Park);
        wait.slept = true;
        let (flag, set) = if wait.requested {
            (HANDOFF_SLEEPS, REQUESTER)
        } else {
            (SLEEPERS, OTHERS)
        };
        let fresh = self.flags.fetch_or(flag, SeqCst) & flag == 0;
        let mut until = wait.deadline;
        if !self.makes_holder_notice(wait) {
            if fresh {
                // Cleared since we have slept: again somebody may not have seen it.
                wait.unnoticed_sleep = UNNOTICED_SLEEP;
            }
            until = until.min(P::now().saturating_add(wait.unnoticed_sleep));
            wait.unnoticed_sleep = wait.unnoticed_sleep.saturating_mul(2);
        }
        loop {
            let (locked, flags, last) = self.word();
            let ours = wait.requested && flags & PICKUP != 0;
            let can_act = locked == FREE && C::FAULT != MutexFault::LostWakeup || ours;
            let woken = flags & flag == 0;
            if woken && !can_act {
                wait.vain_wakeups = wait.vain_wakeups.saturating_add(1);
            }
            if can_act || woken || passed(until, P::now) {
                return;
            }
            P::park_in(
                self.key(),
                compose((locked, flags, last)),
                until,
                set,
                || compose(self.word()),
            );
        }
    }

    /// Pairs with the light fence in `unlock`: either we see the lock free from now on, or the holder sees the flag that we have set. `false`: perhaps neither.
    pub(super) fn makes_holder_notice(&self, wait: &Wait) -> bool {
        let early = wait.oversubscribed && P::now().saturating_sub(wait.since) < WITHOUT_FENCE;
        !early && P::heavy_fence()
    }

    fn word(&self) -> (u8, u8, u16) {
        (
            self.locked.load(Relaxed),
            self.flags.load(Relaxed),
            self.spinners.last(),
        )
    }
}

/// The four bytes as the kernel reads them.
fn compose((locked, flags, last): (u8, u8, u16)) -> u32 {
    let [l0, l1] = last.to_ne_bytes();
    u32::from_ne_bytes([locked, flags, l0, l1])
}
