//! Writers and upgradable readers that wait, and writers that leave.

use super::wait::Writer;
use super::*;
use crate::raw::contend;
use crate::raw::contend::spin;
use crate::raw::patience::Patience;
use crate::raw::waiter::left;

impl<P: Platform, C: LockConfig> QueuedRwLock<P, C> {
    /// Takes the lock, after the fast path has failed. Returns `false` if the deadline has passed,
    /// or the lock [is full](is_full_for).
    #[cold]
    #[inline(never)]
    pub(super) fn take_slow(&self, want: Want, deadline: u64) -> bool {
        P::count(Event::SlowPath);
        let held = match want {
            Want::Write => {
                // Spares only announced readers. At the front the policy spares counted readers.
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
            // If the lock is full, the wait ends before the queue. In the queue the waiter would
            // notice only when its patience ends, or never if its patience is endless.
            let full = is_full_for(self.state.load(Relaxed), want);
            let waited = !full && !expired(deadline, P::now);
            waited
                .then(|| self.wait(want, deadline))
                .flatten()
                .ok_or(())
        });
        taken.is_ok_and(|before| self.end_bias(want, before, deadline))
    }

    /// Like [`try_write`](Self::try_write), for a lock that the word shows as free.
    #[cold]
    #[inline(never)]
    pub(super) fn try_write_slow(&self) -> bool {
        // A look first: ending the bias and then failing would hold up readers.
        let announced = || self.state.load(Relaxed) & BIASED != 0 && self.is_announced();
        let taken = || self.take(Want::Write, false);
        !announced() && taken().is_ok_and(|before| self.end_bias(Want::Write, before, 0))
    }

    /// Takes the lock if that is possible now. Returns the previous word.
    pub(super) fn take(&self, want: Want, front: bool) -> Result<u32, u32> {
        // SeqCst orders this before the look at announced readers. Acquire pairs with the release
        // of others.
        let before = self
            .state
            .fetch_update(SeqCst, |seen| taken::<P>(seen, want, front))?;
        if front {
            Self::wake(self.key(), before & READERS_SLEEP);
        }
        Ok(before)
    }

    /// Waits, and takes the lock. Returns the previous word, or `None` if the time is up, or the
    /// lock is full.
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
        // Dropped at the end, when the lock is taken: the next waiter is then at the front.
        let headship = contend::queue_up(&mut writer, &self.writers, C::queue(), &wait)?;
        writer.wait_at_front(&wait, &headship)
    }

    /// Requests to go next, and waits for the lock. Returns the previous word, or `None` if the
    /// time is up, or the lock is full.
    pub(super) fn take_in_turn(&self, want: Want, deadline: u64) -> Option<u32> {
        P::count(Event::HandoffRequest);
        // Needed since the one wake-up of a release may have gone to a waiter that does not run.
        let mut patience = Patience::begin::<P>();
        let free = |seen| taken::<P>(seen, want, true).is_some();
        loop {
            // Again in each round: other waiters at the front may have ended the request.
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
                // This only schedules the next wake-up: here the patience is just a timer.
                patience.look_is_due::<P>();
            }
        }
    }

    /// Sleeps at the front as long as a request stands. Without a request, others would pass this
    /// waiter for as long as it sleeps. If another waiter at the front ends the request by taking
    /// the lock, the release of that holder wakes a sleeper, which makes a new request.
    pub(super) fn sleep_in_turn(&self, want: Want, until: u64) {
        self.sleep_at_front(want, until, is_requested::<P>);
    }

    /// Sleeps at the front as long as the lock is held but not full, and `sleeps` accepts the word.
    pub(super) fn sleep_at_front(&self, want: Want, until: u64, sleeps: impl Fn(u32) -> bool) {
        let held = |seen| taken::<P>(seen, want, true).is_none() && !is_full_for(seen, want);
        let held = |seen| held(seen) && sleeps(seen);
        self.sleep(FRONT, FRONT_SLEEPS, until, with_sleeping_front::<P>, held);
    }

    /// Whether other waiters are at the front. For a waiter that has just changed the word and
    /// leaves the front. `beside`: this waiter is counted beside the queue.
    fn has_others(&self, beside: bool) -> bool {
        if beside {
            self.hints.leave_beside();
        }
        self.hints.has_beside() || beside && self.writers.last() != 0
    }

    /// Called by a waiter at the front that has taken the lock. If other waiters are at the front,
    /// the mark makes its release wake one of them, which requests to go next if it comes too late.
    /// This holder makes no request on their behalf: they may not run, and the request would keep
    /// all others out.
    pub(super) fn leave_mark(&self, beside: bool) {
        if self.has_others(beside) {
            let marked = |seen| Some(with_sleeping_front::<P>(seen));
            let _ = self.state.fetch_update(Relaxed, marked);
        }
    }

    /// Called by a waiter at the front that gives up. Wakes readers, which need no longer wait for
    /// its turn, and another waiter at the front, which requests to go next at the latest when its
    /// quantum is over.
    pub(super) fn leave_front(&self, beside: bool) {
        let left = |seen| Some(without_front(seen));
        // Acquire: see `Hints::come_beside`.
        let left = self.state.fetch_update(Acquire, left);
        let others = self.has_others(beside);
        if let Ok(before) = left {
            // Wakes another waiter even if the flag is clear: this waiter may have had the one
            // wake-up of a release.
            let front = if others { FRONT_SLEEPS } else { 0 };
            Self::wake(self.key(), before & READERS_SLEEP | front);
        }
    }

    /// Called by a holder that is about to leave: makes a waiter that sleeps at the front the next,
    /// and wakes it before the release. If no thread was woken, takes the request back: the flag
    /// may stand for a waiter that has given up, and a request without a waiter would keep all
    /// others out of a free lock.
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

    /// Ends writing while others wait for it.
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
