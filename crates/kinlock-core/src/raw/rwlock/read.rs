//! Readers that wait, and readers that leave.

use super::wait::End;
use super::*;
use crate::raw::mutex::policy::SPIN;
use crate::raw::waiter::left;

impl<P: Platform, C: RwLockConfig> QueuedRwLock<P, C> {
    /// Takes the lock for reading, which has just failed. Returns `false` if the deadline has
    /// passed.
    #[cold]
    #[inline(never)]
    pub(super) fn read_slow(&self, deadline: u64, passing: bool) -> bool {
        P::count(Event::SlowPath);
        // If it succeeds, it was other readers that made the first try fail.
        let entered = self.enter_and_bias(passing)
            || !passed(deadline, P::now) && self.wait_to_read(deadline, passing);
        if !entered {
            P::count(Event::Timeout);
        }
        entered
    }

    /// Enters if that is possible now. Returns the word before.
    pub(super) fn enter(&self, passing: bool) -> Option<u32> {
        // Acquire pairs with the release of writers.
        let entered = |seen| with_reader::<P>(seen, passing);
        self.state.change(Acquire, entered).ok()
    }

    /// Waits and enters (`true`), or until the time is up.
    fn wait_to_read(&self, deadline: u64, passing: bool) -> bool {
        let mut stay = self.begin(C::tuning(), deadline);
        let free = |seen| with_reader::<P>(seen, passing).is_some();
        match self.follow_policy(&mut stay, free, || self.enter(passing)) {
            End::Taken(_) => true,
            End::TimeUp => false,
            End::Sleep(_) | End::Request => self.read_in_turn(deadline, passing),
        }
    }

    /// Waits for the writer that holds the lock, or is to go next, and enters (`true`), or until
    /// the time is up.
    pub(super) fn read_in_turn(&self, deadline: u64, passing: bool) -> bool {
        loop {
            if C::FAULT == RwLockFault::BiasInWrite {
                self.state.set(BIASED);
            }
            if self.enter(passing).is_some() {
                return true;
            }
            if self.register() {
                return self.await_writer(deadline);
            }
            if passed(deadline, P::now) {
                return false;
            }
            // Until the one that goes next has the lock, or has given up.
            let patience = SPIN.min(left(deadline, P::now));
            let blocked = |seen| is_refused::<P>(seen, passing);
            if !self.state.wait_for(patience, |seen| !blocked(seen)) {
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
        self.enter(passing).is_some()
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
                if self.state.change(Relaxed, withdrawn).is_ok() {
                    P::count(Event::Timeout);
                    return false;
                }
                // Too late: the lock is this reader's.
                continue;
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
        if before & (FRONT_SLEEPS | UPGRADING) != 0 || !counts(before) {
            self.left_last(key, before);
        }
    }

    #[cold]
    #[inline(never)]
    fn left_last(&self, key: *const u32, before: u32) {
        if !counts(before) {
            // This thread's reader was announced, and others have left in place of each other; see
            // `leave_marked`. It still holds the lock.
            let after = self.state.enter_again();
            if count(after) == 0 {
                // A waiter that the last counted reader woke may have seen the wrong count.
                Self::wake_after_reader(key, after | READER);
            }
            return self.leave_marked();
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
