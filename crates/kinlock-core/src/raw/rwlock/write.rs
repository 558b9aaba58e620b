//! Writers, and upgradable readers, that wait; and writers that leave.

use super::policy::{BRIEF, FOLLOW, Front, SPIN, Step};
use super::*;
use crate::raw::mutex::queue::{self, Limits};
use crate::raw::waiter::{left, sleep_until};

impl<P: Platform, C: RwLockConfig> QueuedRwLock<P, C> {
    /// Takes the lock, which has just failed. Returns `false` if the deadline has passed.
    #[cold]
    #[inline(never)]
    pub(super) fn take_slow(&self, want: Want, deadline: u64) -> bool {
        P::count(Event::SlowPath);
        let taken = self.take(want, false).or_else(|_| {
            let waited = !passed(deadline, P::now);
            waited
                .then(|| self.wait(want, deadline))
                .flatten()
                .ok_or(())
        });
        let held = taken.is_ok_and(|before| self.end_bias(want, before, deadline));
        if !held {
            P::count(Event::Timeout);
        }
        held
    }

    /// As [`try_write`](Self::try_write), for a lock that nobody counted holds.
    #[cold]
    #[inline(never)]
    pub(super) fn try_write_slow(&self) -> bool {
        // A look first: to end the bias in vain would hold up readers.
        let announced = || self.state.load(Relaxed) & BIASED != 0 && self.is_announced();
        let taken = || self.take(Want::Write, false);
        !announced() && taken().is_ok_and(|before| self.end_bias(Want::Write, before, 0))
    }

    /// Takes the lock now. Returns the word before.
    pub(super) fn take(&self, want: Want, front: bool) -> Result<u32, u32> {
        // SeqCst: before the look at announced readers. Acquire pairs with the release of others.
        let before = self
            .state
            .change(SeqCst, |seen| taken::<P>(seen, want, front))?;
        if front {
            let cleared = before & READERS_SLEEP;
            Self::wake(self.key(), cleared, 0);
        }
        Ok(before)
    }

    /// Waits, and takes the lock. Returns the word before, or `None` if the time is up.
    fn wait(&self, want: Want, deadline: u64) -> Option<u32> {
        let tuning = C::tuning();
        let oversubscribed = Self::PARKS && P::oversubscribed();
        if let Some(before) = self.barge(want, oversubscribed, deadline) {
            P::count(Event::Barge);
            return Some(before);
        }
        let Some(place) = P::waiters().enter() else {
            P::count(Event::SlotFallback);
            return self.wait_unqueued(want, tuning, deadline);
        };
        let queue = C::queue();
        if queue == Queue::Unqueued {
            return self.wait_unqueued(want, tuning, deadline);
        }
        let mut taken = None;
        let at_front = || {
            taken = self.wait_at_front(want, tuning, deadline);
            taken.is_some()
        };
        let patience = match (Self::PARKS, oversubscribed) {
            (false, _) => NEVER,
            (_, true) => BRIEF,
            (_, false) => FOLLOW,
        };
        let limits = Limits { patience, deadline };
        queue::wait(queue, &self.writers, place, tuning, limits, at_front);
        taken
    }

    /// As [`wait_at_front`](Self::wait_at_front), where several threads may be there. This one may
    /// have cleared the flag of another.
    fn wait_unqueued(&self, want: Want, tuning: Tuning, deadline: u64) -> Option<u32> {
        let taken = self.wait_at_front(want, tuning, deadline);
        P::unpark_in(self.key(), u32::MAX, FRONT);
        taken
    }

    /// Takes the lock without queueing, if it is soon free.
    ///
    /// With enough CPUs only if nobody queues. Otherwise the queue is where threads sleep, and the
    /// running ones share the lock.
    fn barge(&self, want: Want, oversubscribed: bool, deadline: u64) -> Option<u32> {
        let patience = if oversubscribed { SPIN } else { BRIEF };
        let until = P::now().saturating_add(patience).min(deadline);
        loop {
            let requested = is_requested::<P>(self.state.load(Relaxed));
            let queued = !oversubscribed && self.writers.last() != 0;
            let left = until.saturating_sub(P::now());
            if requested || queued || left == 0 {
                return None;
            }
            let free = |seen| taken::<P>(seen, want, false).is_some();
            if self.state.wait_for(left, free) {
                if let Ok(before) = self.take(want, false) {
                    return Some(before);
                }
            }
        }
    }

    /// Waits at the front of the queue; see [`policy`](super::policy).
    pub(super) fn wait_at_front(&self, want: Want, tuning: Tuning, deadline: u64) -> Option<u32> {
        let start = P::now();
        let (mut woken, mut requested) = (false, None);
        loop {
            if let Ok(before) = self.take(want, true) {
                return Some(before);
            }
            let now = P::now();
            if passed(deadline, || now) {
                self.leave_front();
                return None;
            }
            // Without a queue, another waiter at the front may have ended the request.
            if !is_requested::<P>(self.state.load(Relaxed)) {
                requested = None;
            }
            let front = Front {
                waited: now.saturating_sub(start),
                quantum: u64::from(tuning.quantum.micros()) * 1000,
                woken,
                requested: requested.map(|since| now.saturating_sub(since)),
            };
            let limit = |nanos| now.saturating_add(nanos).min(deadline);
            match front.next() {
                Step::Poll(nanos) => {
                    let free = |seen| taken::<P>(seen, want, true).is_some();
                    self.state.wait_for(nanos.min(left(deadline, || now)), free);
                }
                Step::Sleep(nanos) => {
                    self.sleep_at_front(want, limit(nanos));
                    woken = true;
                }
                Step::TimedSleep(nanos) if Self::PARKS => {
                    P::count(Event::Park);
                    sleep_until::<P>(limit(nanos));
                }
                Step::TimedSleep(nanos) => P::back_off(nanos),
                Step::Request => {
                    P::count(Event::HandoffRequest);
                    let request = |seen| Some(with_request::<P>(seen));
                    let _ = self.state.change(Relaxed, request);
                    requested = Some(now);
                }
                Step::Await => self.sleep_at_front(want, deadline),
            }
        }
    }

    fn sleep_at_front(&self, want: Want, until: u64) {
        let held = |seen| taken::<P>(seen, want, true).is_none();
        self.sleep(FRONT, FRONT_SLEEPS, until, with_sleeping_front::<P>, held);
    }

    /// The waiter at the front gives up. Readers that waited for its turn go on.
    fn leave_front(&self) {
        let left = |seen| match C::FAULT {
            RwLockFault::LeakyRequest => None,
            _ => Some(without_front(seen)),
        };
        if let Ok(before) = self.state.change(Relaxed, left) {
            Self::wake(self.key(), before & READERS_SLEEP, 0);
        }
    }

    /// A writer leaves, and others wait for it.
    #[cold]
    #[inline(never)]
    pub(super) fn leave_writer(&self, leave: Leave) {
        let key = self.key();
        let left = |seen| Some(after_writer::<P>(seen, leave));
        let (Ok(before) | Err(before)) = self.state.change(release::<C>(), left);
        // From here on `self` may be gone.
        Self::wake(key, before, after_writer::<P>(before, leave));
    }
}
