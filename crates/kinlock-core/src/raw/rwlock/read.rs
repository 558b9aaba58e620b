//! Readers that wait, and readers that leave.

use super::policy::SPIN;
use super::*;
use crate::raw::waiter::left;

impl<P: Platform, C: RwLockConfig> QueuedRwLock<P, C> {
    /// Takes the lock for reading, which has just failed. Returns `false` if the deadline has
    /// passed.
    #[cold]
    #[inline(never)]
    pub(super) fn read_slow(&self, deadline: u64, passing: bool) -> bool {
        P::count(Event::SlowPath);
        let entered = |seen| with_reader::<P>(seen, passing);
        let mut waited = false;
        loop {
            // Acquire pairs with the release of writers.
            let seen = match self.state.change(Acquire, entered) {
                Ok(before) => {
                    if !waited {
                        // It was other readers that made the first try fail.
                        self.set_bias(before);
                    }
                    return true;
                }
                Err(seen) => seen,
            };
            waited = true;
            if C::FAULT == RwLockFault::BiasInWrite {
                let _ = self.state.change(Relaxed, |seen| Some(seen | BIASED));
            }
            if passed(deadline, P::now) {
                P::count(Event::Timeout);
                return false;
            }
            let patience = SPIN.min(left(deadline, P::now));
            if self
                .state
                .wait_for(patience, |seen| entered(seen).is_some())
            {
                continue;
            }
            if seen & (WRITER | REVOKING) == WRITER {
                if self.register() {
                    return self.await_writer(deadline);
                }
            } else {
                // Until the one that goes next has the lock, or has given up.
                let blocked = |now| is_refused::<P>(now, passing);
                self.sleep(
                    READERS,
                    READERS_SLEEP,
                    deadline,
                    |s| s | READERS_SLEEP,
                    blocked,
                );
            }
        }
    }

    #[cold]
    #[inline(never)]
    pub(super) fn try_read_slow(&self, passing: bool) -> bool {
        let entered = |seen| with_reader::<P>(seen, passing);
        self.state.change(Acquire, entered).is_ok()
    }

    /// Makes this reader one of those that hold the lock after the writer. `false`: the writer has
    /// gone.
    pub(super) fn register(&self) -> bool {
        let registered = |seen| match C::FAULT {
            RwLockFault::LostReader => with_registered::<P>(seen).map(|_| seen),
            _ => with_registered::<P>(seen),
        };
        self.state.change(Relaxed, registered).is_ok()
    }

    /// A registered reader waits until the writer has gone (`true`), or until the time is up.
    pub(super) fn await_writer(&self, deadline: u64) -> bool {
        let written = |seen| seen & WRITER != 0;
        loop {
            // Acquire pairs with the release of the writer.
            if !written(self.state.load(Acquire)) {
                return true;
            }
            if passed(deadline, P::now) {
                let withdrawn = |seen| written(seen).then(|| without_registered(seen));
                if self.state.change(Acquire, withdrawn).is_err() {
                    return true;
                }
                P::count(Event::Timeout);
                return false;
            }
            let patience = SPIN.min(left(deadline, P::now));
            if !self.state.wait_for(patience, |seen| !written(seen)) {
                self.sleep(
                    READERS,
                    READERS_SLEEP,
                    deadline,
                    |s| s | READERS_SLEEP,
                    written,
                );
            }
        }
    }

    /// A counted reader leaves.
    #[inline]
    pub(super) fn leave_counted(&self) {
        let key = self.key();
        let before = self.state.leave(Release);
        // From here on `self` may be gone, unless the count was wrong.
        if before & (FRONT_SLEEPS | UPGRADING) != 0 || before < READER {
            self.left_marked(key, before);
        }
    }

    #[cold]
    #[inline(never)]
    fn left_marked(&self, key: *const u32, before: u32) {
        if count(before) == 0 {
            // This thread's reader was announced, and others have left in place of each other; see
            // `leave_biased`. It still holds the lock.
            self.state.enter_again();
            return self.leave_biased();
        }
        Self::wake_after_reader(key, before);
    }

    /// As [`leave_counted`](Self::leave_counted), after the word has changed.
    pub(super) fn after_reader(&self, before: u32) {
        Self::wake_after_reader(self.key(), before);
    }

    /// A reader has left: was it the last one, for which others wait?
    pub(super) fn wake_after_reader(key: *const u32, before: u32) {
        if count(before) != READER || C::FAULT == RwLockFault::MissingWake {
            return;
        }
        if before & UPGRADING != 0 {
            P::count(Event::Wake);
            P::unpark_in(key, 1, UPGRADER);
        } else if before & FRONT_SLEEPS != 0 && before & UPGRADABLE == 0 {
            // The flag stays: who enters a free lock clears it.
            P::count(Event::Wake);
            P::unpark_in(key, u32::MAX, FRONT);
        }
    }
}
