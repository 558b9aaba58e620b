//! Writers, and upgradable readers, that wait; and writers that leave.

use super::wait::{End, Stay};
use super::*;
use crate::raw::mutex::policy::{BRIEF, FOLLOW, SPIN};
use crate::raw::mutex::queue::{self, Limits};
use crate::raw::waiter::left;

impl<P: Platform, C: RwLockConfig> QueuedRwLock<P, C> {
    /// Takes the lock, which has just failed. Returns `false` if the deadline has passed.
    #[cold]
    #[inline(never)]
    pub(super) fn take_slow(&self, want: Want, deadline: u64) -> bool {
        P::count(Event::SlowPath);
        let held = match want {
            Want::Write => self.await_bias(deadline, || self.take_waiting(want, deadline)),
            Want::Upgradable => self.take_waiting(want, deadline),
        };
        if !held {
            P::count(Event::Timeout);
        }
        held
    }

    fn take_waiting(&self, want: Want, deadline: u64) -> bool {
        let taken = self.take(want, false).or_else(|_| {
            let waited = !passed(deadline, P::now);
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
            // Without a queue others may be at the front, too. Where the lock was free, its release
            // has woken them.
            let front = if is_free(before) { 0 } else { FRONT_SLEEPS };
            Self::wake(self.key(), before & (READERS_SLEEP | front), 0);
        }
        Ok(before)
    }

    /// Waits, and takes the lock. Returns the word before, or `None` if the time is up.
    fn wait(&self, want: Want, deadline: u64) -> Option<u32> {
        let oversubscribed = Self::PARKS && P::oversubscribed();
        let mut stay = self.begin(C::tuning(), deadline);
        if let Some(before) = self.barge(want, oversubscribed, &stay) {
            P::count(Event::Barge);
            return Some(before);
        }
        let queue = C::queue();
        let Some(place) = P::waiters().enter().filter(|_| queue != Queue::Unqueued) else {
            P::count(Event::SlotFallback);
            return self.wait_at_front(want, &mut stay);
        };
        let patience = match (Self::PARKS, oversubscribed) {
            (false, _) => NEVER,
            _ if self.hints.is_kept() => 0,
            (_, true) => BRIEF,
            (_, false) => FOLLOW,
        };
        let mut taken = None;
        let at_front = || {
            taken = self.wait_at_front(want, &mut stay);
            taken.is_some()
        };
        let tuning = C::tuning();
        let limits = Limits { patience, deadline };
        queue::wait(queue, &self.writers, place, tuning, limits, at_front);
        taken
    }

    /// Takes the lock without queueing, if it is soon free and not kept.
    ///
    /// With enough CPUs only if nobody queues. Otherwise the queue is where threads sleep, and the
    /// running ones share the lock.
    fn barge(&self, want: Want, oversubscribed: bool, stay: &Stay) -> Option<u32> {
        let patience = if oversubscribed { SPIN } else { BRIEF };
        let until = P::now().saturating_add(patience).min(stay.deadline);
        loop {
            let requested = is_requested::<P>(self.state.load(Relaxed));
            let refused = requested || self.hints.is_kept() || stay.is_trial();
            let queued = !oversubscribed && self.writers.last() != 0;
            let left = until.saturating_sub(P::now());
            if refused || queued || left == 0 {
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

    /// Waits at the front of the queue, and takes the lock. Returns the word before, or `None` if
    /// the time is up.
    pub(super) fn wait_at_front(&self, want: Want, stay: &mut Stay) -> Option<u32> {
        self.arrive(stay);
        let free = |seen| taken::<P>(seen, want, true).is_some();
        let taken = loop {
            match self.follow_policy(stay, free, || self.take(want, true).ok()) {
                End::Taken(before) => break Some(before),
                End::TimeUp => break None,
                End::Sleep(until) => {
                    self.sleep_at_front(want, until);
                    // A fair release may have made this waiter the next: nobody else enters, so
                    // every moment that it does not look at the lock is lost.
                    if is_requested::<P>(self.state.load(Relaxed)) {
                        self.end_trial(stay);
                        break self.take_in_turn(want, stay.deadline);
                    }
                }
                End::Request => break self.take_in_turn(want, stay.deadline),
            }
        };
        if taken.is_none() {
            self.leave_front();
        }
        taken
    }

    /// Asks to go next, and waits for that. Returns the word before, or `None` if the time is up.
    pub(super) fn take_in_turn(&self, want: Want, deadline: u64) -> Option<u32> {
        P::count(Event::HandoffRequest);
        let free = |seen| taken::<P>(seen, want, true).is_some();
        loop {
            // Again in each round: without a queue, others at the front may have ended it.
            let request = |seen| (!is_requested::<P>(seen)).then(|| with_request::<P>(seen));
            let _ = self.state.change(Relaxed, request);
            if let Ok(before) = self.take(want, true) {
                return Some(before);
            }
            if passed(deadline, P::now) {
                return None;
            }
            let patience = SPIN.min(left(deadline, P::now));
            if !self.state.wait_for(patience, free) {
                self.sleep_at_front(want, deadline);
            }
        }
    }

    fn sleep_at_front(&self, want: Want, until: u64) {
        // Readers that leave a full lock do not wake an upgradable one.
        let until = match want == Want::Upgradable && is_full(self.state.load(Relaxed)) {
            true => until.min(P::now().saturating_add(bias::NAP.end)),
            false => until,
        };
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
            // Without a queue others may be at the front, too.
            Self::wake(self.key(), before & (READERS_SLEEP | FRONT_SLEEPS), 0);
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
