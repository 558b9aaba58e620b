//! Readers that wait, and readers that leave.

use super::*;
use crate::raw::contend::constants::SPIN_NS;
use crate::raw::waiter::left;

impl<P: Platform, C: RwLockConfig> QueuedRwLock<P, C> {
    /// Takes the lock for reading, which has just failed. Returns `false` if the deadline has
    /// passed.
    #[cold]
    #[inline(never)]
    pub(super) fn read_slow(&self, deadline: u64, passing: bool) -> bool {
        P::count(Event::SlowPath);
        // If it succeeds, it was other readers that made the first try fail.
        let entered = match self.announce_or_enter(passing) {
            Some(counted) => self.finish(counted, deadline),
            None => !expired(deadline, P::now) && self.wait_to_read(deadline, passing),
        };
        if !entered {
            P::count(Event::Timeout);
        }
        entered
    }

    /// Enters if a look says that this is possible. Other readers do not make it fail.
    pub(super) fn enter(&self, passing: bool) -> Option<Counted> {
        let seen = self.state.load(Relaxed);
        with_reader::<P>(seen, passing)?;
        if may_add::<P>(seen) {
            return Some(self.add());
        }
        self.try_enter(passing).then_some(Counted::Reads)
    }

    /// Enters if that is possible now.
    fn try_enter(&self, passing: bool) -> bool {
        // Acquire pairs with the release of writers.
        let entered = |seen| with_reader::<P>(seen, passing);
        let before = self.state.fetch_update(Acquire, entered);
        before.is_ok_and(|before| {
            self.counted(before);
            true
        })
    }

    /// A reader has counted itself. If it has thereby taken the place of one that is leaving, see
    /// `left_last`, a waiter that the last counted reader woke may have seen the wrong count.
    fn counted(&self, before: u32) {
        let after = before.wrapping_add(READER);
        if is_below_zero(before) && count(after) == 0 {
            Self::wake_after_reader(self.key(), after | READER);
        }
    }

    /// Counts this reader. Among many readers a compare-and-swap hardly ever succeeds.
    pub(super) fn add(&self) -> Counted {
        // Acquire pairs with the release of writers.
        let before = self.state.add(Acquire);
        self.counted(before);
        match P::DEFECT {
            Defect::RwLockHastyReader => Counted::Reads,
            _ => Counted::at(before),
        }
    }

    /// Waits until a counted reader holds the lock (`true`), or until the time is up.
    fn finish(&self, counted: Counted, deadline: u64) -> bool {
        counted == Counted::Reads || self.await_writer(deadline)
    }

    /// Waits and enters (`true`), or until the time is up.
    fn wait_to_read(&self, deadline: u64, passing: bool) -> bool {
        let counted = self.wait_to_count(deadline, passing);
        counted.is_some_and(|counted| self.finish(counted, deadline))
    }

    /// Waits until a writer holds the lock and registers, or enters. `None`: the time is up.
    pub(super) fn read_in_turn(&self, deadline: u64, passing: bool) -> Option<Counted> {
        let start = P::now();
        loop {
            if P::DEFECT == Defect::RwLockBiasInWrite {
                self.state.set(BIASED);
            }
            if let Some(counted) = self.enter(passing).or_else(|| self.register()) {
                return Some(counted);
            }
            if expired(deadline, P::now) {
                return None;
            }
            if is_full(self.state.load(Relaxed)) {
                Self::pause(start, deadline);
                continue;
            }
            // Until the one that goes next has the lock, or has given up.
            let spin_ns = SPIN_NS.min(left(deadline, P::now));
            let blocked = |seen| is_refused::<P>(seen, passing);
            if !self.state.wait_for(spin_ns, |seen| !blocked(seen)) {
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
        self.try_enter(passing)
    }

    /// Makes this reader one of those that hold the lock after the writer. `None`: the writer has
    /// gone.
    pub(super) fn register(&self) -> Option<Counted> {
        let seen = self.state.load(Relaxed);
        with_registered::<P>(seen)?;
        if P::DEFECT == Defect::RwLockLostReader {
            return Some(Counted::Registered);
        }
        if may_add::<P>(seen) {
            return Some(self.add());
        }
        let registered = |seen| with_registered::<P>(seen);
        let registered = self.state.fetch_update(Relaxed, registered);
        registered.is_ok().then_some(Counted::Registered)
    }

    /// A registered reader waits until the writer has gone (`true`), or until the time is up.
    pub(super) fn await_writer(&self, deadline: u64) -> bool {
        // A writer that is still revoking has come after this reader, which then holds the lock:
        // that writer waits until this reader has left. No reader registers for such a writer.
        let written = |seen| match P::DEFECT {
            Defect::RwLockStaleWriter => seen & WRITER != 0,
            _ => is_written(seen),
        };
        loop {
            // Acquire pairs with the release of the writer.
            if !written(self.state.load(Acquire)) {
                return true;
            }
            if expired(deadline, P::now) {
                let lost = |seen| P::DEFECT == Defect::RwLockLostReader && !counts(seen);
                let withdrawn = |seen| match lost(seen) {
                    true => written(seen).then_some(seen),
                    false => written(seen).then(|| without_registered(seen)),
                };
                if self.state.fetch_update(Relaxed, withdrawn).is_ok() {
                    P::count(Event::Timeout);
                    return false;
                }
                // Too late: the lock is this reader's.
                continue;
            }
            let spin_ns = SPIN_NS.min(left(deadline, P::now));
            if !self.state.wait_for(spin_ns, |seen| !written(seen)) {
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
    pub(super) fn left_last(&self, key: *const u32, before: u32) {
        if counts(before) {
            return Self::wake_after_reader(key, before);
        }
        // Others have left in place of each other: this thread's reader is announced by now, see
        // `leave_elsewhere`. While the count is below zero no writer enters, so this thread takes
        // its count back and thereby is a reader again, for which an entry must be left.
        let borrowed = |seen| is_below_zero(seen).then(|| seen.wrapping_add(READER));
        if let Ok(before) = self.state.fetch_update(Relaxed, borrowed) {
            self.counted(before);
            self.leave_marked();
        }
        // Otherwise another reader has counted itself meanwhile. It has the count that this thread
        // has given up, and the entry stands for it.
    }

    /// As [`leave_counted`](Self::leave_counted), after the word has changed.
    pub(super) fn after_reader(&self, before: u32) {
        Self::wake_after_reader(self.key(), before);
    }

    /// A reader has left: was it the last one, for which others wait?
    pub(super) fn wake_after_reader(key: *const u32, before: u32) {
        if count(before) != READER || P::DEFECT == Defect::RwLockMissingWake {
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
