//! Beside the queue: threads that run take turns; with more threads than CPUs those who have a *seat* do, while the others sleep in the queue.

use super::classifier::SAMPLES;
use super::front::FIRST_SAMPLE;
use super::prediction::StoredPrediction;
use super::wait::{STALLED, Wait, passed};
use super::*;
use core::mem;

impl<P: Platform, C: MutexConfig> QueuedMutex<P, C> {
    /// The first tries of [`barge`](Self::barge), for a thread whose note says that turns are taken, and that this one is not the last. `others_queued`: others
    /// queue, and run. `Err(None)`: nothing has been tried. `Err(Some(_))`: the lock was not free; with what the note said, which counts the turn as used now.
    ///
    /// Between threads that take turns it counts when the first try is made: while the unlock of the holder waits for the line, so that the line comes here next. What a wait that may
    /// end anywhere needs to know takes longer to set up than their critical sections last.
    #[inline]
    pub(super) fn barge_at_once(
        &self,
        others_queued: bool,
    ) -> Result<(), Option<StoredPrediction>> {
        if others_queued || C::POLLS || !P::CAN_PARK {
            return Err(None);
        }
        let place = P::waiters().own_note().ok_or(None)?;
        let cell = StoredPrediction(place.load(Relaxed));
        let after = cell.after_barge(self.key()).ok_or(None)?;
        if C::tuning().quantum.micros() == 0 {
            return Err(None);
        }
        P::count(Event::SlowPath);
        place.store(after.0, Relaxed);
        match self.try_barge(NEVER) {
            true => Ok(()),
            false => Err(Some(cell)),
        }
    }

    /// Tries to take the lock (`true`): so many exchanges, some pauses apart, or fewer if the time is up.
    #[inline]
    fn try_barge(&self, deadline: u64) -> bool {
        for _ in 0..C::PASSING.tries {
            if self.take() {
                return true;
            }
            for _ in 0..C::PASSING.pauses {
                P::relax();
            }
            if passed(deadline, P::now) {
                break;
            }
        }
        false
    }

    /// Where turns are taken, and nobody queues or those who do sleep: takes the lock without queueing (`true`), or claims it and waits for that; unless that takes far longer than turns do.
    ///
    /// For two threads that run the queue costs more than the wait: its end stands beside the lock, and whoever joins or leaves takes the line away from the holder.
    ///
    /// A try is an exchange: who looks first finds the lock free, mostly, and loses the race for it, mostly, and each time the line has travelled twice.
    /// Longest are the waits of those who lose often. The claim ends all races.
    pub(super) fn barge(&self, wait: &mut Wait) -> bool {
        let permitted = wait.prediction.expects_barging() && wait.quantum > 0 && !C::POLLS;
        // Without a clock there would be no end to the wait for a grant.
        if !permitted || !P::CAN_PARK || self.others_queued(wait) {
            return false;
        }
        if wait.prediction.budget == 0
            && wait.oversubscribed
            && self.spinners.last() != 0
            && !self.keeps_membership(wait)
        {
            // Its seat is for one of those who sleep.
            return false;
        }
        if wait.prediction.budget == 0 && self.sample_beside_queue(wait) {
            P::count(Event::Turn);
            return true;
        }
        self.barge_or_request(wait)
            .unwrap_or_else(|| self.pick_up_beside_queue(wait))
    }

    /// Barges again and again until the lock is taken (`Some(true)`), a hand-off is requested
    /// (`None`), or neither has worked for long enough (`Some(false)`).
    fn barge_or_request(&self, wait: &mut Wait) -> Option<bool> {
        // While oversubscribed it is likely that the holder does not run, and to queue means to
        // sleep.
        let patience = match wait.oversubscribed {
            true => STALLED,
            false => wait.quantum.min(SHORT_QUANTUM),
        };
        let (mut rounds, mut refused) = (0, None);
        loop {
            // The first round may have been made before the wait was set up.
            if !mem::take(&mut wait.tried_first) && self.try_barge(wait.deadline) {
                P::count(Event::Turn);
                wait.prediction.spend();
                self.announce_if_last(wait);
                return Some(true);
            }
            if passed(wait.deadline, P::now) {
                return Some(false);
            }
            if self.request_handoff(wait, 0) {
                return None;
            }
            rounds += 1;
            // A request is refused while a pickup is due. A waiter that is slow to pick the lock up
            // has mostly lost its CPU to an interrupt. With two threads it is the other one: from
            // the queue this thread would lose many races to it once it is back. A request that is
            // still waiting for its hand-off shows that there are more threads.
            let several = self.flags.load(Relaxed) & HANDOFF != 0 || self.others_queued(wait);
            let now = P::now();
            let late = now.saturating_sub(*refused.get_or_insert(now)) >= patience;
            if several || late || !wait.oversubscribed && rounds == C::PASSING.rounds {
                if !several {
                    self.announce_vacancy(wait);
                }
                return Some(false);
            }
            // Short, but a step of time on platforms where time passes only in waits.
            P::back_off(0);
        }
    }

    /// Waits for the requested hand-off. Returns whether the lock is taken.
    fn pick_up_beside_queue(&self, wait: &mut Wait) -> bool {
        wait.prediction.spend();
        wait.since = P::now();
        // A waiter that is not the head does not look for its pickup, so no request may stand
        // when the thread queues.
        let taken = C::FAULT != MutexFault::QueuedClaim
            && (self.await_handoff(wait, STALLED) || wait.requested && self.withdraw_request(wait));
        if taken {
            P::count(Event::Turn);
            wait.picked_up();
            self.finish(wait, true);
            self.announce_if_last(wait);
        } else {
            wait.barging_failed();
            self.announce_vacancy(wait);
        }
        taken
    }

    /// In a crowd, when a seat is used up: lets others run on this CPU, and if the seat is vacant all the same it is kept (`true`).
    ///
    /// The head has been woken on some CPU, and a scheduler leaves it there for milliseconds even if another one idles. Whoever slept without a successor on its own CPU would
    /// leave that CPU idle. So the seat goes to a head that is where it can run: here, or anywhere as soon as it does.
    fn keeps_membership(&self, wait: &mut Wait) -> bool {
        // To yield may take as long as all the others need.
        if !self.has_vacancy(wait) || wait.deadline != NEVER {
            return false;
        }
        P::yield_now();
        let kept = self.fill_vacancy();
        if kept {
            wait.prediction.join_active_set();
        }
        kept
    }

    /// Whether others queue, and run: there are too many then to take turns beside the queue. In a crowd the queue is where threads sleep, so that as many as there are CPUs can.
    fn others_queued(&self, wait: &Wait) -> bool {
        !wait.oversubscribed && self.spinners.last() != 0
    }

    /// Where turns have been taken for as many waits as that was believed: watches the lock until a look at it tells something, and takes it if it is free then (`true`).
    ///
    /// A head does the same, but it has joined the queue before and leaves it afterwards: the one wait in thousands that is for learning was then among the longest.
    pub(super) fn sample_beside_queue(&self, wait: &mut Wait) -> bool {
        // If others change the flags all the time, a later wait will look.
        if !(0..3).any(|_| self.start_sample()) {
            return false;
        }
        let (start, mut paused) = (P::now(), 0);
        loop {
            P::back_off(FIRST_SAMPLE);
            paused += FIRST_SAMPLE;
            // An exchange: who looks first, and so seldom, loses the race.
            let taken = self.take();
            let unlocks = (self.flags.load(Relaxed) / UNLOCK) as u64;
            let now = P::now();
            if self.others_queued(wait) {
                wait.saw_newcomers(taken);
            } else {
                wait.classify(unlocks, now.saturating_sub(start).max(paused), taken);
            }
            // Three looks decide, after those in the first `BARGE_CYCLE` that tell nothing; in a crowd more may tell nothing, and the holder may not run.
            let stalled = wait.oversubscribed && now.saturating_sub(start) >= wait.stalled();
            if taken || wait.samples == SAMPLES || stalled || passed(wait.deadline, || now) {
                return taken;
            }
        }
    }

    /// After a turn: if it was the last, somebody else can have the seat.
    fn announce_if_last(&self, wait: &Wait) {
        if wait.prediction.budget == 0 {
            self.announce_vacancy(wait);
        }
    }

    /// Tells the head of a crowded queue that a seat is free: nobody watches, and nothing has been counted. If others change the flags just now the head finds out when its
    /// quantum is over.
    fn announce_vacancy(&self, wait: &Wait) {
        let flags = self.flags.load(Relaxed);
        if wait.oversubscribed && self.spinners.last() != 0 && request_mode(flags) == 0 {
            let vacancy = flags & !SAMPLE;
            let _ = self
                .flags
                .compare_exchange(flags, vacancy, Relaxed, Relaxed);
        }
    }

    /// Whether that has been announced, or nobody has watched yet.
    pub(super) fn has_vacancy(&self, wait: &Wait) -> bool {
        wait.oversubscribed && self.flags.load(Relaxed) & SAMPLE == 0
    }

    /// Says that a vacant seat is somebody's from now on. `false`: it is already, as far as can be seen.
    pub(super) fn fill_vacancy(&self) -> bool {
        let mut flags = self.flags.load(Relaxed);
        // Only waiters change the flags while nobody watches, each a few times: the loop ends.
        while flags & SAMPLE == 0 {
            let occupied = flags | UNLOCKS;
            match self
                .flags
                .compare_exchange(flags, occupied, Relaxed, Relaxed)
            {
                Ok(_) => return true,
                Err(seen) => flags = seen,
            }
        }
        false
    }
}
