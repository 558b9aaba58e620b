//! Readers that wait, and readers that leave.

use super::*;
use crate::raw::contend::spin;
use crate::raw::patience::Patience;
use crate::raw::waiter::left;

impl<P: Platform, C: LockConfig> QueuedRwLock<P, C> {
    /// Takes the lock for reading, after the fast path has failed. Returns `false` if the deadline
    /// has passed, or the lock is full.
    #[cold]
    #[inline(never)]
    pub(super) fn read_slow(&self, deadline: u64, passing: bool) -> bool {
        P::count(Event::SlowPath);
        // This succeeds where the fast path failed only because other readers changed the word.
        let entered = match self.announce_or_enter(passing) {
            Some(counted) => self.wait_until_reads(counted, deadline),
            None => !expired(deadline, P::now) && self.wait_to_read(deadline, passing),
        };
        if !entered {
            P::count(Event::Timeout);
        }
        entered
    }

    /// Enters if a look at the word says that this is possible. It does not fail because other
    /// readers change the word at the same time.
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

    /// A reader has counted itself and found the word `before`. If that brings the count back from
    /// below zero, it has taken the place of a reader that is just leaving, see `left_last`. A
    /// waiter that was woken before may have seen the wrong count, so it is woken again.
    fn counted(&self, before: u32) {
        let after = before.wrapping_add(READER);
        if is_below_zero(before) && count(after) == 0 {
            Self::wake_after_reader(self.key(), after | READER);
        }
    }

    /// Counts this reader by a fetch-and-add: among many readers a compare-and-swap hardly ever
    /// succeeds.
    pub(super) fn add(&self) -> Counted {
        // Acquire pairs with the release of writers.
        let before = self.state.add(Acquire);
        self.counted(before);
        Counted::at(before)
    }

    /// A reader that has counted itself waits until it holds the lock (`true`), or until the time
    /// is up.
    fn wait_until_reads(&self, counted: Counted, deadline: u64) -> bool {
        counted == Counted::Reads || self.wait_out_writer(deadline)
    }

    /// Waits and enters (`true`), or until the time is up or the lock is full.
    fn wait_to_read(&self, deadline: u64, passing: bool) -> bool {
        let counted = self.wait_to_count(deadline, passing);
        counted.is_some_and(|counted| self.wait_until_reads(counted, deadline))
    }

    /// Waits until this reader can enter, or until a writer holds the lock for which it can
    /// register. `None`: the time is up, or the lock is full.
    pub(super) fn read_in_turn(&self, deadline: u64, passing: bool) -> Option<Counted> {
        let mut patience = Patience::begin::<P>();
        loop {
            if let Some(counted) = self.enter(passing).or_else(|| self.register()) {
                return Some(counted);
            }
            if is_full(self.state.load(Relaxed)) || expired(deadline, P::now) {
                return None;
            }
            // Readers are refused until the waiter that goes next has the lock or has given up.
            let spin_ns = spin::limit::<P>().min(left(deadline, P::now));
            let blocked = |seen| is_refused::<P>(seen, passing);
            if self.state.wait_for(spin_ns, |seen| !blocked(seen)) {
                continue;
            }
            // A front that comes for a free lock wakes the readers that wait for its turn.
            let idle = is_free(self.state.load(Relaxed));
            self.sleep(
                READERS,
                READERS_SLEEP,
                patience.or(deadline),
                |s| s | READERS_SLEEP,
                blocked,
            );
            if patience.is_lost::<P>(|_| idle) {
                self.pass_idle_front();
            }
        }
    }

    /// The lock was to go to the waiter at the front next. It is free, and that waiter has not come
    /// for it: so it goes to anybody. When that waiter runs, it asks again.
    fn pass_idle_front(&self) {
        let passed = |seen| (is_requested::<P>(seen) && is_free(seen)).then(|| without_front(seen));
        if let Ok(before) = self.state.fetch_update(Relaxed, passed) {
            Self::wake(self.key(), before & (READERS_SLEEP | FRONT_SLEEPS), 0);
        }
    }

    #[cold]
    #[inline(never)]
    pub(super) fn try_read_slow(&self, passing: bool) -> bool {
        self.try_enter(passing)
    }

    /// Registers this reader with the writer that holds the lock, so that it holds the lock as soon
    /// as the writer leaves. `None`: no writer holds the lock, the writer still waits for announced
    /// readers, or the lock is full.
    pub(super) fn register(&self) -> Option<Counted> {
        let seen = self.state.load(Relaxed);
        with_registered::<P>(seen)?;
        if may_add::<P>(seen) {
            return Some(self.add());
        }
        let registered = |seen| with_registered::<P>(seen);
        let registered = self.state.fetch_update(Relaxed, registered);
        registered.is_ok().then_some(Counted::Registered)
    }

    /// A registered reader waits until the writer has gone (`true`), or until the time is up.
    pub(super) fn wait_out_writer(&self, deadline: u64) -> bool {
        // A writer that is still revoking does not count. No reader registers for such a writer, so
        // it has come after this reader, which already holds the lock: the writer waits until this
        // reader has left.
        loop {
            // Acquire pairs with the release of the writer.
            if !is_written(self.state.load(Acquire)) {
                return true;
            }
            if expired(deadline, P::now) {
                let withdrawn = |seen| is_written(seen).then(|| without_registered(seen));
                if self.state.fetch_update(Relaxed, withdrawn).is_ok() {
                    return false;
                }
                // It is too late to withdraw: this reader holds the lock now.
                continue;
            }
            let spin_ns = spin::limit::<P>().min(left(deadline, P::now));
            if !self.state.wait_for(spin_ns, |seen| !is_written(seen)) {
                self.sleep(
                    READERS,
                    READERS_SLEEP,
                    deadline,
                    |s| s | READERS_SLEEP,
                    is_written,
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
        // There was no count to subtract. Other readers have left in each other's place, so this
        // thread's reader is announced by now, see `leave_elsewhere`. While the count is below zero
        // no writer enters. So this thread takes its subtraction back, which makes it a reader
        // again, and then empties the entry instead.
        let borrowed = |seen| is_below_zero(seen).then(|| seen.wrapping_add(READER));
        if let Ok(before) = self.state.fetch_update(Relaxed, borrowed) {
            self.counted(before);
            self.leave_marked();
        }
        // Otherwise another reader has counted itself since. That has put the count right, and the
        // entry now stands for that reader.
    }

    /// A reader has left and found the word `before`. If it was the last counted one, wakes whoever
    /// waits for that.
    pub(super) fn wake_after_reader(key: *const u32, before: u32) {
        if count(before) != READER {
            return;
        }
        if before & UPGRADING != 0 {
            P::count(Event::Wake);
            P::unpark_in(key, 1, UPGRADER);
        } else if before & FRONT_SLEEPS != 0 && before & UPGRADABLE == 0 {
            // The flag stays set. Whoever enters a free lock clears it.
            P::count(Event::Wake);
            P::unpark_in(key, 1, FRONT);
        }
    }
}
