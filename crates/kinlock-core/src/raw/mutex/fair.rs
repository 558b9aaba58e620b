//! Unlocking so that a waiter gets the lock.
//!
//! A holder cannot hand over unless the waiter at the front has requested that: others do not look
//! for a pickup. With a quantum of 0 the front waiter requests as soon as it is at the front and
//! awake. So the holder waits for that, and its unlock hands over. With another quantum, or if only
//! sleepers on the word wait, it unlocks, and stands aside until the lock is taken.
//!
//! Both waits end after [`PATIENCE`]: the waiter may not have a CPU, or have given up.

use super::policy::LOOK;
use super::*;

/// For how long a fair unlock waits for a waiter, in nanoseconds: a wake-up takes less, and a front
/// waiter that leaves a kept lock alone looks again after a quantum.
const PATIENCE: u64 = 250_000;

impl<P: Platform, C: MutexConfig, L: Layout<P>> QueuedMutex<P, C, L> {
    #[cold]
    #[inline(never)]
    pub(super) fn unlock_to_waiter(&self) {
        let until = P::now().saturating_add(PATIENCE);
        if C::tuning().quantum.micros() == 0 {
            let requested = || self.word.flags(Relaxed) & HANDOFF != 0;
            self.stand_aside(until, || requested() || self.spinners.last() == 0);
        }
        self.word.unlock::<C>(self.key());
        self.stand_aside(until, || self.is_locked() || !self.is_contended());
    }

    /// Waits until `done`, but not beyond `until`.
    fn stand_aside(&self, until: u64, done: impl Fn() -> bool) {
        let yields = P::oversubscribed();
        while !done() && P::now() < until {
            match yields {
                true => P::yield_now(),
                false => P::back_off(LOOK),
            }
        }
    }
}
