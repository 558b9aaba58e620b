//! Barging: taking the lock beside the queue. While oversubscribed, the members of the *active set*
//! barge and the other threads sleep in the queue.

use super::classifier::SAMPLES;
use super::front::FIRST_SAMPLE;
use super::prediction::StoredPrediction;
use super::wait::{STALLED, Wait, passed};
use super::*;
use core::mem;

impl<P: Platform, C: MutexConfig> QueuedMutex<P, C> {
    /// The first round of [`barge`](Self::barge), for a thread whose stored prediction says that
    /// barging pays and has budget left after this wait. `others_queued` says whether running
    /// threads stand in the queue.
    ///
    /// `Err(None)`: nothing was tried. `Err(Some(prediction))`: the lock was not free. The
    /// prediction is as it was before; the stored one now has one barge less.
    ///
    /// The time of the first try matters: it should come while the holder's unlock waits for the
    /// line, so that the line comes here next. To set up a whole wait takes longer than short
    /// critical sections last.
    #[inline]
    pub(super) fn barge_at_once(
        &self,
        others_queued: bool,
    ) -> Result<(), Option<StoredPrediction>> {
        if others_queued || C::POLLS || !P::CAN_PARK {
            return Err(None);
        }
        let place = P::waiters().own_prediction_cell().ok_or(None)?;
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

    /// Tries to take the lock (`true`): a round of exchanges with pauses in between, or fewer if
    /// the time is up.
    #[inline]
    fn try_barge(&self, deadline: u64) -> bool {
        for _ in 0..C::BARGING.tries {
            if self.take() {
                return true;
            }
            for _ in 0..C::BARGING.pauses {
                P::relax();
            }
            if passed(deadline, P::now) {
                break;
            }
        }
        false
    }

    /// Takes the lock without queueing (`true`), where barging pays and either nobody queues or the
    /// threads in the queue sleep. Requests a hand-off if the first tries fail. Gives up if that
    /// takes far longer than barging does.
    ///
    /// For two running threads the queue costs more than the wait: its tail shares a line with the
    /// lock, and a thread that joins or leaves the queue takes that line from the holder.
    ///
    /// Each try is an exchange. A load first would make the line travel twice, and the thread would
    /// mostly lose the race for a lock that it saw free. A thread that loses many races has the
    /// longest wait, so it requests a hand-off, which cannot be lost.
    pub(super) fn barge(&self, wait: &mut Wait) -> bool {
        let permitted = wait.prediction.expects_barging() && wait.quantum > 0 && !C::POLLS;
        // Without a clock the wait for a hand-off would have no end.
        if !permitted || !P::CAN_PARK || self.others_queued(wait) {
            return false;
        }
        if wait.prediction.budget == 0
            && wait.oversubscribed
            && self.spinners.last() != 0
            && !self.keeps_membership(wait)
        {
            // The vacancy is for a sleeper.
            return false;
        }
        if wait.prediction.budget == 0 && self.sample_beside_queue(wait) {
            P::count(Event::Barge);
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
                P::count(Event::Barge);
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
            // A request is refused while a pickup is due. A requester that is slow to pick up has
            // mostly lost its CPU to an interrupt. Of two threads it is the other one. If this
            // thread queued, it would lose many races to that one later, so it goes on. A standing
            // request shows that there are more than two threads.
            let several = self.flags.load(Relaxed) & HANDOFF != 0 || self.others_queued(wait);
            let now = P::now();
            let late = now.saturating_sub(*refused.get_or_insert(now)) >= patience;
            if several || late || !wait.oversubscribed && rounds == C::BARGING.rounds {
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
        let taken = C::FAULT != MutexFault::QueuedRequest
            && (self.await_handoff(wait, STALLED) || wait.requested && self.withdraw_request(wait));
        if taken {
            P::count(Event::Barge);
            wait.picked_up();
            self.finish(wait, true);
            self.announce_if_last(wait);
        } else {
            wait.barging_failed();
            self.announce_vacancy(wait);
        }
        taken
    }

    /// When the budget of a member is spent while oversubscribed: yields the CPU once. If nobody
    /// has filled the vacancy by then, the thread stays a member (`true`).
    ///
    /// The scheduler may keep a woken head waiting for a busy CPU for milliseconds although another
    /// CPU idles. If the former member slept at once, its CPU might idle meanwhile. So the vacancy
    /// passes to a head only once that head runs, on any CPU.
    fn keeps_membership(&self, wait: &mut Wait) -> bool {
        // A yield may take as long as all other threads need, so a timed wait does without.
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

    /// Whether threads that run stand in the queue: then there are too many to barge. While
    /// oversubscribed the queue is where threads sleep, so that no more run than there are CPUs.
    fn others_queued(&self, wait: &Wait) -> bool {
        !wait.oversubscribed && self.spinners.last() != 0
    }

    /// When the budget is spent: samples the lock until a sample tells something. Takes the lock if
    /// it is free then (`true`).
    ///
    /// The thread could queue and sample as the head. But joining and leaving the queue would make
    /// this wait, one in thousands, one of the longest.
    pub(super) fn sample_beside_queue(&self, wait: &mut Wait) -> bool {
        // If others change the flags all the time, a later wait takes the sample.
        if !(0..3).any(|_| self.start_sample()) {
            return false;
        }
        let (start, mut paused) = (P::now(), 0);
        loop {
            P::back_off(FIRST_SAMPLE);
            paused += FIRST_SAMPLE;
            // An exchange: a thread that loads first, and so seldom, loses the race.
            let taken = self.take();
            let unlocks = (self.flags.load(Relaxed) / UNLOCK) as u64;
            let now = P::now();
            if self.others_queued(wait) {
                wait.saw_newcomers(taken);
            } else {
                wait.classify(unlocks, now.saturating_sub(start).max(paused), taken);
            }
            // `SAMPLES` conclusive samples decide. Samples within the first `BARGE_CYCLE` may be
            // inconclusive. While oversubscribed later ones may be too, if the holder has no CPU.
            let stalled = wait.oversubscribed && now.saturating_sub(start) >= wait.stalled();
            if taken || wait.samples == SAMPLES || stalled || passed(wait.deadline, || now) {
                return taken;
            }
        }
    }

    /// Announces a vacancy after the last barge of the budget.
    fn announce_if_last(&self, wait: &Wait) {
        if wait.prediction.budget == 0 {
            self.announce_vacancy(wait);
        }
    }

    /// Tells the head of an oversubscribed queue that a place in the active set is vacant: there is
    /// no sample, and nothing is counted. If others change the flags just now, the head goes on
    /// until the end of its quantum.
    fn announce_vacancy(&self, wait: &Wait) {
        let flags = self.flags.load(Relaxed);
        if wait.oversubscribed && self.spinners.last() != 0 && request_mode(flags) == 0 {
            let vacancy = flags & !SAMPLE;
            let _ = self
                .flags
                .compare_exchange(flags, vacancy, Relaxed, Relaxed);
        }
    }

    /// Whether a vacancy is announced, or no sample has been taken yet.
    pub(super) fn has_vacancy(&self, wait: &Wait) -> bool {
        wait.oversubscribed && self.flags.load(Relaxed) & SAMPLE == 0
    }

    /// Fills the vacancy, visibly for others. `false`: none can be seen any more.
    pub(super) fn fill_vacancy(&self) -> bool {
        let mut flags = self.flags.load(Relaxed);
        // Only waiters change the flags while there is no sample, each a few times: the loop ends.
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
