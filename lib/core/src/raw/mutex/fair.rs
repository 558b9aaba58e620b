//! Unlocking so that a waiter gets the lock.
//!
//! A holder cannot hand over unless the waiter at the front has requested it: other waiters look
//! for a pickup only after a long wait. So the holder unlocks, and stands aside until the lock is
//! taken, but not without a limit: the waiter may have no CPU, or may have given up.
//!
//! A mutex whose waiters always request, and whose holders wait for the request, is worse: with
//! eight threads on two CPUs one thread got 0.002 to 0.02 times as many turns as another; with
//! holders that stand aside, 0.14 to 0.8 times as many.

use super::*;
use crate::raw::contend::constants::{FAIR_UNLOCK_NS, FIRST_PAUSE_NS, SPIN_NS};

impl<P: Platform, C: LockConfig, L: Layout<P>> QueuedMutex<P, C, L> {
    /// Releases the lock, and leaves it to a waiter if there is one: hands it over, or stands aside
    /// until another thread has it.
    ///
    /// # Safety
    ///
    /// As for [`unlock`](Self::unlock). The lock must not be freed before this returns, whatever
    /// the [layout](Layout).
    #[inline]
    pub unsafe fn unlock_fair(&self) {
        if self.is_contended() {
            self.unlock_to_waiter();
        } else {
            self.word.unlock::<C>(self.key(), &self.queue);
        }
    }

    #[cold]
    #[inline(never)]
    fn unlock_to_waiter(&self) {
        let until = P::now().saturating_add(FAIR_UNLOCK_NS);
        self.word.unlock::<C>(self.key(), &self.queue);
        Self::stand_aside(until, || self.is_locked() || !self.is_contended());
    }

    /// Like [`unlock_fair`](Self::unlock_fair). But with a layout that allows freeing the lock as
    /// soon as another thread has taken it, this does not look at the lock afterwards: it stands
    /// aside for as long as a running waiter needs to take the lock.
    ///
    /// # Safety
    ///
    /// As for [`unlock`](Self::unlock).
    #[inline]
    pub unsafe fn unlock_fair_and_leave(&self) {
        if !L::IS_ONE {
            // SAFETY: by the caller: with a layout of two atomics the lock outlives this call.
            return unsafe { self.unlock_fair() };
        }
        let contended = self.is_contended();
        self.word.unlock::<C>(self.key(), &self.queue);
        // From here on `self` may be gone.
        if contended {
            Self::stand_aside(P::now().saturating_add(SPIN_NS), || false);
        }
    }

    /// Waits until `done`, but not beyond `until`.
    fn stand_aside(until: u64, done: impl Fn() -> bool) {
        let yields = P::oversubscribed();
        while !done() && P::now() < until {
            match yields {
                true => P::yield_now(),
                false => P::back_off(FIRST_PAUSE_NS),
            }
        }
    }
}
