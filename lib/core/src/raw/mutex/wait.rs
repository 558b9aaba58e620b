//! Waiting for the mutex: one loop that does what the [policy](super::policy) says.

use super::policy::{BRIEF, FOLLOW, Front, LOOK, SPIN, Seen, Step};
use super::queue::{self, Limits};
use super::word::*;
use super::*;
use crate::raw::waiter::{Waiter, passed, sleep_limit, sleep_until};

/// One wait, from its beginning to its end.
pub(super) struct Wait {
    pub(super) deadline: u64,
    pub(super) tuning: Tuning,
    pub(super) oversubscribed: bool,
    pub(super) front: Front,
    /// It sleeps on the word, and no wake-up since has been passed on.
    pub(super) slept: bool,
}

impl<P: Platform, C: MutexConfig, L: Layout<P>> QueuedMutex<P, C, L> {
    const PARKS: bool = P::CAN_PARK && C::PARK;

    /// Takes the lock, which has just been found taken. Returns `false` if the deadline has passed.
    #[cold]
    #[inline(never)]
    pub(super) fn lock_slow(&self, deadline: u64) -> bool {
        P::count(Event::SlowPath);
        let taken = !passed(deadline, P::now) && self.wait(deadline);
        if !taken {
            P::count(Event::Timeout);
        }
        taken
    }

    fn wait(&self, deadline: u64) -> bool {
        let tuning = C::tuning();
        let quantum = tuning.quantum.nanos();
        let tries = Self::PARKS && C::TRIALS > 0 && quantum > 0;
        // Not 0: without a source of randomness each wait would be a trial.
        let trial = tries && P::random() % C::TRIALS == C::TRIALS - 1;
        let mut wait = Wait {
            deadline,
            tuning,
            oversubscribed: Self::PARKS && P::oversubscribed(),
            front: Front::new(quantum, trial),
            slept: false,
        };
        if self.barge(&wait) {
            P::count(Event::Barge);
            return true;
        }
        let Some(place) = P::waiters().enter() else {
            P::count(Event::SlotFallback);
            return self.wait_at_front(&mut wait);
        };
        self.wait_in_queue(place, &mut wait)
    }

    /// Takes the lock without queueing (`true`), if it is soon free and not kept.
    ///
    /// With enough CPUs only if nobody queues. Otherwise the queue is where threads sleep, and the
    /// running ones share the lock.
    fn barge(&self, wait: &Wait) -> bool {
        let patience = if wait.oversubscribed { SPIN } else { BRIEF };
        let until = P::now().saturating_add(patience).min(wait.deadline);
        loop {
            let refused = self.word.flags(Relaxed) & (KEPT | HANDOFF | PICKUP) != 0;
            let queued = !wait.oversubscribed && self.spinners.last() != 0;
            let left = until.saturating_sub(P::now());
            if wait.front.trial || refused || queued || left == 0 {
                return false;
            }
            if self.word.wait_until_free(left) && self.word.take() {
                return true;
            }
        }
    }

    /// Queues, and waits there and at the front.
    fn wait_in_queue(&self, place: Waiter<P>, wait: &mut Wait) -> bool {
        let patience = match (Self::PARKS, wait.oversubscribed) {
            (false, _) => NEVER,
            _ if self.word.flags(Relaxed) & KEPT != 0 => 0,
            (_, true) => BRIEF,
            (_, false) => FOLLOW,
        };
        let (tuning, deadline) = (wait.tuning, wait.deadline);
        let limits = Limits { patience, deadline };
        let at_front = || self.wait_at_front(wait);
        queue::wait(C::queue(), &self.spinners, place, tuning, limits, at_front)
    }

    /// Waits until the lock is taken (`true`), or the time is up.
    pub(super) fn wait_at_front(&self, wait: &mut Wait) -> bool {
        let taken = self.follow_policy(wait);
        if wait.slept && taken {
            // This thread's own unlock comes later, and wakes the next sleeper.
            self.word.set(SLEEPERS, Relaxed);
        } else if wait.slept {
            self.pass_wake_up_on();
        }
        taken
    }

    fn follow_policy(&self, wait: &mut Wait) -> bool {
        if wait.front.trial {
            self.word.set(KEPT, Relaxed);
        }
        loop {
            let before = P::now();
            let flags = self.word.flags(Relaxed);
            let now = P::now();
            let seen = Seen {
                now,
                look: now.saturating_sub(before),
                free: !self.word.is_held(),
                watched: flags & WATCHED != 0,
                kept: flags & KEPT != 0,
            };
            if passed(wait.deadline, || seen.now) {
                self.end_trial(wait);
                return false;
            }
            let left = wait.deadline.saturating_sub(seen.now);
            match wait.front.next(seen) {
                Step::Take { idle } if self.word.take() => {
                    if idle {
                        self.word.clear(KEPT | WATCHED);
                    }
                    return true;
                }
                Step::Take { .. } => {}
                Step::Share => {
                    self.word.clear(KEPT | WATCHED);
                }
                Step::Watch(pause) => {
                    self.word.set(WATCHED, Relaxed);
                    P::back_off(pause.min(left));
                }
                Step::Pause(pause) => P::back_off(pause.min(left)),
                Step::Poll(nanos) => {
                    self.word.wait_until_free(nanos.min(left));
                }
                Step::TimedSleep(nanos) => self.timed_sleep(&mut wait.slept, nanos.min(left)),
                Step::Sleep(nanos) => {
                    let until = seen.now.saturating_add(nanos).min(wait.deadline);
                    self.sleep(&mut wait.slept, SLEEPERS, until);
                }
                Step::Request => {
                    self.end_trial(wait);
                    if self.request_handoff() {
                        return self.await_handoff(wait);
                    }
                    // Another waiter's request stands. If the lock is free it may need this CPU to
                    // come and take it.
                    match self.word.wait_until_free(SPIN.min(left)) {
                        true => self.timed_sleep(&mut wait.slept, SPIN.min(left)),
                        false => self.sleep(&mut wait.slept, SLEEPERS, wait.deadline),
                    }
                }
            }
        }
    }

    /// A trial that ends without a verdict leaves the lock shared.
    fn end_trial(&self, wait: &Wait) {
        if wait.front.trial {
            self.word.clear(KEPT);
        }
    }

    /// Asks the next unlock to hand the lock to this thread. `false`: another request stands, or a
    /// pickup is due.
    pub(super) fn request_handoff(&self) -> bool {
        // The request of another process is overwritten.
        let request = |flags| {
            let refused = flags & PICKUP != 0 || is_requested::<P>(flags);
            (!refused).then(|| flags & !REQUEST | HANDOFF | generation::<P>())
        };
        let before = self.word.change(Relaxed, request);
        before.inspect(|_| P::count(Event::HandoffRequest)).is_ok()
    }

    /// Waits until the lock is handed over or taken (`true`), or the time is up.
    pub(super) fn await_handoff(&self, wait: &mut Wait) -> bool {
        let start = P::now();
        loop {
            // Acquire pairs with the hand-over in `unlock`.
            let handed_over = self.word.flags(Acquire) & PICKUP != 0;
            if handed_over || self.try_lock() {
                self.end_request();
                return true;
            }
            let now = P::now();
            if passed(wait.deadline, || now) {
                if self.withdraw_request() {
                    return false;
                }
            } else if Self::PARKS && now.saturating_sub(start) >= SPIN {
                self.sleep(&mut wait.slept, HANDOFF_SLEEPS, wait.deadline);
            } else {
                P::back_off(LOOK);
            }
        }
    }

    /// The requester has the lock, by a hand-off or by taking it.
    pub(super) fn end_request(&self) {
        let flags = self.word.clear(REQUEST | PICKUP);
        // A hand-off wakes none of the other sleepers on the word. Threads that hand the lock to
        // each other would leave them asleep for ever.
        if flags & PICKUP != 0 && flags & SLEEPERS != 0 {
            self.wake_sleeper();
        }
    }

    /// `false`: too late, the lock has been handed over.
    pub(super) fn withdraw_request(&self) -> bool {
        let withdraw = |flags| {
            let leaks = C::FAULT == MutexFault::LeakyCancel;
            (flags & PICKUP == 0 || leaks).then_some(flags & !REQUEST)
        };
        self.word.change(Relaxed, withdraw).is_ok()
    }

    /// Leaves the lock alone for a while.
    pub(super) fn timed_sleep(&self, slept: &mut bool, nanos: u64) {
        if !Self::PARKS {
            return P::back_off(nanos);
        }
        if core::mem::take(slept) {
            self.pass_wake_up_on();
        }
        P::count(Event::Park);
        sleep_until::<P>(P::now().saturating_add(nanos));
    }

    /// Sleeps until an unlock wakes the thread, or the lock is free or handed over, or until then.
    pub(super) fn sleep(&self, slept: &mut bool, flag: u8, until: u64) {
        if !Self::PARKS {
            self.word.wait_until_free(until.saturating_sub(P::now()));
            return;
        }
        P::count(Event::Park);
        *slept |= flag == SLEEPERS;
        let set = if flag == SLEEPERS { OTHERS } else { REQUESTER };
        self.word.set(flag, SeqCst);
        let until = sleep_limit(L::is_noticed(), until, P::now);
        loop {
            let seen = self.four_bytes();
            let [locked, flags, ..] = seen.to_ne_bytes();
            let ours = flag == HANDOFF_SLEEPS && flags & PICKUP != 0;
            let can_act = (locked == FREE || ours) && C::FAULT != MutexFault::LostWakeup;
            if can_act || flags & flag == 0 || passed(until, P::now) {
                return;
            }
            let parked = P::park_in(self.key(), seen, until, set, || self.four_bytes());
            if parked == Parked::Woken && flag == SLEEPERS {
                // To sleep again would be behind all others, whenever one of them has set the flag.
                return;
            }
        }
    }

    /// The mutex as the kernel reads it.
    fn four_bytes(&self) -> u32 {
        let [locked, flags] = self.word.bytes();
        let [low, high] = self.spinners.last().to_ne_bytes();
        u32::from_ne_bytes([locked, flags, low, high])
    }

    /// For a thread that had a wake-up which may have been meant for another sleeper on the word,
    /// and does not get the lock soon. As in [`sleep`](Self::sleep), either the holder sees the
    /// flag or this thread sees the lock free.
    pub(super) fn pass_wake_up_on(&self) {
        self.word.set(SLEEPERS, SeqCst);
        // If the holder may have missed the flag: a needless wake-up costs less than a lost one.
        if !L::is_noticed() || !self.is_locked() {
            self.wake_sleeper();
        }
    }

    /// Wakes one of the sleepers on the word, other than the requester.
    pub(super) fn wake_sleeper(&self) {
        if self.word.clear(SLEEPERS) & SLEEPERS != 0 {
            wake::<P, C>(self.key(), OTHERS);
        }
    }

    /// As [`lock`](Self::lock), for a thread that a notification has just woken. A notifier that
    /// holds the lock may need the CPU on which such a thread would spin. So it sleeps on the word,
    /// beside the queue. If others are faster for a whole quantum, it queues.
    pub fn lock_notified(&self) {
        let until = P::now().saturating_add(C::tuning().quantum.nanos());
        let (mut taken, mut slept) = (self.try_lock(), false);
        // Each unlock of a kept lock would wake it in vain.
        while !taken && Self::PARKS && self.word.flags(Relaxed) & KEPT == 0 {
            // Without a time limit: in a virtual machine each timer costs an exit.
            self.sleep(&mut slept, SLEEPERS, NEVER);
            taken = self.try_lock();
            if P::now() >= until {
                break;
            }
        }
        match (taken, slept) {
            (true, false) => {}
            (true, true) => _ = self.word.set(SLEEPERS, Relaxed),
            (false, true) => self.lock_after_sleep(),
            (false, false) => self.lock(),
        }
    }

    /// As [`lock`](Self::lock), for a thread that may have been woken in place of all sleepers on
    /// the word. Makes sure that the next sleeper wakes up.
    pub(in crate::raw) fn lock_after_sleep(&self) {
        // While the lock is free, the next sleeper can wake up beside this thread. To wake one
        // after the other would leave CPUs idle in between, and idle CPUs take long to come back.
        // The woken thread takes over the duty.
        if !Self::PARKS || !self.is_locked() && P::unpark_in(self.key(), 1, OTHERS) != 0 {
            return self.lock();
        }
        if !self.try_lock() {
            // This thread may have to queue behind a sleeping head whose wake-up it has taken. So
            // it sets the flag at once.
            if C::FAULT != MutexFault::SilentRequeue {
                self.pass_wake_up_on();
            }
            self.lock();
        }
        // Relaxed: this thread's own unlock comes later.
        self.word.set(SLEEPERS, Relaxed);
    }
}
