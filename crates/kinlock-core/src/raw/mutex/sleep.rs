//! Sleeping on the word, and waking up there.

use super::wait::{Wait, passed};
use super::*;

/// The first sleep where no heavy fence makes the holder notice the sleeper. Later sleeps are
/// longer, since every thread has seen the flag by then.
pub(super) const UNNOTICED_SLEEP: u64 = 200_000;
/// For how long after its arrival at the front an oversubscribed thread does without the fence. The
/// fence waits for every CPU on which the program runs, and a host may take such a CPU away for
/// milliseconds. A preempted holder gets its CPU back within this time. A lock that is held for
/// longer is worth a fence.
const WITHOUT_FENCE: u64 = 3_000_000;

impl<P: Platform, C: MutexConfig> QueuedMutex<P, C> {
    /// As [`lock`](Self::lock), for a thread that may have been woken in place of all sleepers on
    /// the word. Makes sure that the next sleeper wakes up.
    pub(in crate::raw) fn lock_after_sleep(&self) {
        let parks = P::CAN_PARK && C::PARK;
        // While the lock is free, the next sleeper can wake up beside this thread. To wake one
        // after the other would leave CPUs idle in between, and idle CPUs take long to come back.
        // The woken thread takes over the duty.
        let passed_on = parks && !self.is_locked() && P::unpark_in(self.key(), 1, OTHERS) != 0;
        let owes = parks && !passed_on;
        if owes && !self.try_lock() {
            // This thread may have to queue behind a sleeping head whose wake-up it has taken. So
            // it sets the flag at once. As in `sleep_on_word`, either the holder sees the flag or
            // this thread sees the lock free.
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
            // Relaxed: this thread's own unlock comes later.
            self.flags.fetch_or(SLEEPERS, Relaxed);
        }
    }

    /// Sleeps until an unlock wakes the thread, or until the lock is free or handed over.
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
                // The flag was cleared since this thread's last sleep: again a holder may have
                // missed it.
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

    /// Pairs with the light fence in `unlock`: from now on either this thread sees the lock free,
    /// or the holder sees the flag. `false`: perhaps neither does.
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
