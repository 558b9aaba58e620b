//! Writers, and upgradable readers, that wait; and writers that leave.

use super::wait::Writer;
use super::*;
use crate::raw::contend;
use crate::raw::contend::spin;
use crate::raw::patience::Patience;
use crate::raw::waiter::left;

impl<P: Platform, C: LockConfig> QueuedRwLock<P, C> {
    /// Takes the lock, which has just failed. Returns `false` if the deadline has passed, or the
    /// lock [is full](is_full_for).
    #[cold]
    #[inline(never)]
    pub(super) fn take_slow(&self, want: Want, deadline: u64) -> bool {
        P::count(Event::SlowPath);
        let held = match want {
            Want::Write => {
                // Only announced readers are spared here. Counted ones it spares at the front, by
                // the policy.
                self.spare_readers(deadline, |_| false);
                self.await_bias(deadline, || self.take_waiting(want, deadline))
            }
            Want::Upgradable => self.take_waiting(want, deadline),
        };
        if !held {
            P::count(Event::Timeout);
        }
        held
    }

    fn take_waiting(&self, want: Want, deadline: u64) -> bool {
        let taken = self.take(want, false).or_else(|_| {
            // A full lock ends the wait before the queue. In there the waiter would notice only
            // when its patience ends, or never if it has no end.
            let full = is_full_for(self.state.load(Relaxed), want);
            let waited = !full && !expired(deadline, P::now);
            waited
                .then(|| self.wait(want, deadline))
                .flatten()
                .ok_or(())
        });
        taken.is_ok_and(|before| self.end_bias(want, before, deadline))
    }

    /// As [`try_write`](Self::try_write), for a lock that nobody counted holds.
    #[cold]
    #[inline(never)]
    pub(super) fn try_write_slow(&self) -> bool {
        // A look first: to end the bias and then fail would hold up readers.
        let announced = || self.state.load(Relaxed) & BIASED != 0 && self.is_announced();
        let taken = || self.take(Want::Write, false);
        !announced() && taken().is_ok_and(|before| self.end_bias(Want::Write, before, 0))
    }

    /// Takes the lock now. Returns the word before.
    pub(super) fn take(&self, want: Want, front: bool) -> Result<u32, u32> {
        // SeqCst: before the look at announced readers. Acquire pairs with the release of others.
        let before = self
            .state
            .fetch_update(SeqCst, |seen| taken::<P>(seen, want, front))?;
        if front {
            Self::wake(self.key(), before & READERS_SLEEP);
        }
        Ok(before)
    }

    /// Waits, and takes the lock. Returns the word before, or `None` if the time is up, or the lock
    /// is full.
    fn wait(&self, want: Want, deadline: u64) -> Option<u32> {
        let wait = Self::begin_wait(deadline);
        let mut writer = Writer {
            lock: self,
            want,
            front: false,
        };
        if let Some(before) = contend::barge(&mut writer, &self.writers, &wait) {
            return Some(before);
        }
        // Dropped at the end, when the lock is taken: the next waiter is the front from then on.
        let headship = contend::queue_up(&mut writer, &self.writers, C::queue(), &wait)?;
        writer.wait_at_front(&wait, &headship)
    }

    /// Asks to go next, and waits for that. Returns the word before, or `None` if the time is up,
    /// or the lock is full.
    pub(super) fn take_in_turn(&self, want: Want, deadline: u64) -> Option<u32> {
        P::count(Event::HandoffRequest);
        // The one wake-up of a release may have gone to a waiter that does not run.
        let mut patience = Patience::begin::<P>();
        let free = |seen| taken::<P>(seen, want, true).is_some();
        loop {
            // Again in each round: others at the front may have ended it.
            let request = |seen| (!is_requested::<P>(seen)).then(|| with_request::<P>(seen));
            let _ = self.state.fetch_update(Relaxed, request);
            if let Ok(before) = self.take(want, true) {
                return Some(before);
            }
            if is_full_for(self.state.load(Relaxed), want) || expired(deadline, P::now) {
                return None;
            }
            let spin_ns = spin::limit::<P>().min(left(deadline, P::now));
            let done = |seen| free(seen) || !is_requested::<P>(seen);
            if !self.state.wait_for(spin_ns, done) {
                self.sleep_in_turn(want, patience.or(deadline));
                // Only the next look is put off: here patience is no more than a timer.
                patience.look_is_due::<P>();
            }
        }
    }

    /// Others would pass a waiter whose request has been ended for as long as it sleeps. So it does
    /// not fall asleep without a standing request. If another one at the front ends it meanwhile,
    /// by taking the lock, the release of that one wakes a sleeper, which makes a new request.
    pub(super) fn sleep_in_turn(&self, want: Want, until: u64) {
        self.sleep_at_front(want, until, is_requested::<P>);
    }

    /// Sleeps at the front as long as the lock is held, but not full, and `sleeps` says so.
    pub(super) fn sleep_at_front(&self, want: Want, until: u64, sleeps: impl Fn(u32) -> bool) {
        let held = |seen| taken::<P>(seen, want, true).is_none() && !is_full_for(seen, want);
        let held = |seen| held(seen) && sleeps(seen);
        self.sleep(FRONT, FRONT_SLEEPS, until, with_sleeping_front::<P>, held);
    }

    /// Whether others are at the front: for a waiter that has just changed the word, and leaves the
    /// front. `beside`: it is counted beside the queue.
    fn has_others(&self, beside: bool) -> bool {
        if beside {
            self.hints.leave_beside();
        }
        self.hints.has_beside() || beside && self.writers.last() != 0
    }

    /// A waiter at the front has taken the lock. If others are there, its release wakes the next,
    /// which asks to go next if it comes too late. This holder leaves no request for them: they
    /// may not run, and the request would keep all others out.
    pub(super) fn leave_mark(&self, beside: bool) {
        if self.has_others(beside) {
            let marked = |seen| Some(with_sleeping_front::<P>(seen));
            let _ = self.state.fetch_update(Relaxed, marked);
        }
    }

    /// The waiter at the front gives up. Readers that waited for its turn go on, and another one at
    /// the front is woken, which asks to go next at the latest when its quantum is over.
    pub(super) fn leave_front(&self, beside: bool) {
        let left = |seen| Some(without_front(seen));
        // Acquire: see `Hints::come_beside`.
        let left = self.state.fetch_update(Acquire, left);
        let others = self.has_others(beside);
        if let Ok(before) = left {
            // It may have had the one wake-up of a release, and then the flag is clear.
            let front = if others { FRONT_SLEEPS } else { 0 };
            Self::wake(self.key(), before & READERS_SLEEP | front);
        }
    }

    /// A holder is about to leave, and a waiter that sleeps at the front goes next. It is woken
    /// before: the flag may stand for a waiter that has given up since, and a request that no
    /// waiter stands behind would keep all others out of a free lock.
    pub(super) fn call_front(&self) {
        let called = self.state.fetch_update(Relaxed, with_called_front::<P>);
        if called.is_err() {
            return;
        }
        P::count(Event::Wake);
        if P::unpark_in(self.key(), 1, FRONT) != 0 || !Self::PARKS {
            return;
        }
        if let Ok(before) = self.state.fetch_update(Relaxed, without_call::<P>) {
            Self::wake(self.key(), before & READERS_SLEEP);
        }
    }

    /// A writer leaves, and others wait for it.
    #[cold]
    #[inline(never)]
    pub(super) fn leave_writer(&self, leave: Leave) {
        let key = self.key();
        let left = |seen| Some(after_writer::<P>(seen, leave));
        let (Ok(before) | Err(before)) = self.state.fetch_update(Release, left);
        // From here on `self` may be gone.
        Self::wake(key, before & !after_writer::<P>(before, leave));
    }
}
