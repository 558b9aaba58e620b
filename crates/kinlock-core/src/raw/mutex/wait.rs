//! One wait for the mutex: from where a thread queues to where it has cleaned up behind itself.

use super::front::FIRST_SAMPLE;
use super::prediction::{Prediction, StoredPrediction};
use super::sleep::UNNOTICED_SLEEP;
use super::*;

/// How long a waiter in the queue spins before it sleeps, in nanoseconds, and how long if there are more of them than CPUs.
const SPIN: u64 = 1_000_000;
const SPIN_OVERSUBSCRIBED: u64 = 2_000;
/// How long a head, or a claimant, spins while nothing happens: about what it costs to sleep and wake up.
pub(super) const STALLED: u64 = 50_000;
/// The same while there are more waiters than CPUs: the holder may have lost its CPU to us.
const STALLED_OVERSUBSCRIBED: u64 = 5_000;

/// One wait, from its beginning to its end.
pub(super) struct Wait {
    pub(super) deadline: u64,
    pub(super) tuning: Tuning,
    /// The longest run of other holders that a waiter at the head puts up with.
    pub(super) quantum: u64,
    pub(super) oversubscribed: bool,
    /// How the lock is best taken, as far as this thread knows.
    pub(super) prediction: Prediction,
    /// Whether the tries that a turn begins with were made before the wait was set up; until that has been allowed for.
    pub(super) tried_first: bool,
    /// When the thread came to the front, or claimed beside the queue.
    pub(super) since: u64,
    /// How long it has paused there.
    pub(super) paused: u64,
    /// Whether it was held when this thread looked first.
    pub(super) held_at_first: Option<bool>,
    /// How many looks there have been that tell whether turns are taken.
    pub(super) samples: u8,
    /// Whether the last look did not find it cycling fast, or in a crowd busy, though those before did.
    pub(super) contradicted: bool,
    /// Whether, in a crowd, the lock is taken again and again: then it is left alone.
    pub(super) busy: bool,
    /// Whether, in a crowd, somebody has left a seat, ...
    pub(super) vacancy: bool,
    /// ... and this thread has said that it takes it; or it needs nobody's, since the lock is mostly free.
    pub(super) joins: bool,
    /// Whether this thread is the head of the queue.
    pub(super) is_head: bool,
    /// Whether, in a crowd, a head has decided to take the lock, and leaves the queue for that.
    pub(super) departs: bool,
    pub(super) slept: bool,
    /// How often this thread was woken on the word and found the lock taken again.
    pub(super) vain_wakeups: u8,
    pub(super) requested: bool,
    /// For how long it has last looked for a grant, and there was none.
    pub(super) pickup_wait: u64,
    pub(super) unnoticed_sleep: u64,
}

impl Wait {
    /// Whether a head keeps off the lock for now.
    pub(super) fn leaves_alone(&self) -> bool {
        if self.oversubscribed {
            self.busy
        } else {
            self.prediction.fast
        }
    }

    /// Whether this thread may leave the queue to take the lock. Without a quantum nobody passes those who sleep.
    pub(super) fn may_depart(&self) -> bool {
        self.oversubscribed && self.is_head && !self.departs && self.quantum > 0
    }

    /// How long to spin while nothing happens.
    pub(super) fn stalled(&self) -> u64 {
        if self.oversubscribed {
            STALLED_OVERSUBSCRIBED
        } else {
            STALLED
        }
    }
}

impl<P: Platform, C: MutexConfig> QueuedMutex<P, C> {
    /// Takes the lock, which has just been found taken, without a time limit.
    #[cold]
    #[inline(never)]
    pub(super) fn lock_contended(&self) {
        // The failed try has fetched the line, and the next unlock will fetch it back: this is the time to look.
        let queued = self.spinners.last() != 0;
        match self.barge_at_once(queued && !(C::PARK && P::crowded())) {
            Ok(()) => P::count(Event::Turn),
            Err(missed) => {
                self.lock_slow(NEVER, missed);
            }
        }
    }

    /// Waits for the lock in all the ways there are. `missed`: what the thread's note said before a [turn](Self::barge_at_once) that it has tried to take; the wait goes on where
    /// those tries have ended.
    #[cold]
    #[inline(never)]
    pub(super) fn lock_slow(&self, deadline: u64, missed: Option<StoredPrediction>) -> bool {
        if missed.is_none() {
            P::count(Event::SlowPath);
        }
        let waiters = P::waiters();
        // Turns are taken without a node: whoever has a slot of its own enters it only to queue.
        let own = waiters.own_note();
        let mut place = None;
        if own.is_none() {
            place = waiters.enter();
        }
        let cell = own.or(place.as_ref().map(Waiter::note));
        let tuning = C::tuning();
        let mut wait = Wait {
            deadline,
            tuning,
            quantum: tuning.quantum.micros() as u64 * 1000,
            oversubscribed: P::CAN_PARK && C::PARK && P::crowded(),
            prediction: missed
                .unwrap_or_else(|| StoredPrediction(cell.map_or(0, |cell| cell.load(Relaxed))))
                .for_lock(self.key())
                .or(C::turns_at_first().map(Prediction::barging))
                .unwrap_or_default(),
            tried_first: missed.is_some(),
            since: 0,
            paused: 0,
            held_at_first: None,
            samples: 0,
            contradicted: false,
            busy: false,
            vacancy: false,
            joins: false,
            is_head: false,
            departs: false,
            slept: false,
            vain_wakeups: 0,
            requested: false,
            pickup_wait: 0,
            unnoticed_sleep: UNNOTICED_SLEEP,
        };
        // Mostly a turn is taken next. It is noted at once: while somebody else has the lock there is time, afterwards there is none.
        let mut stored = wait.prediction;
        if stored.budget > 0 {
            stored.spend();
            // A turn that has been missed is noted already; and in a signal handler since then the thread may have been asked to leave its seat.
            if missed.is_none() {
                self.store_prediction(cell, stored);
            }
        }
        if self.barge(&mut wait) {
            if wait.prediction != stored {
                self.store_prediction(cell, wait.prediction);
            }
            return true;
        }
        let place = place.or_else(|| waiters.enter());
        if place.is_none() {
            P::count(Event::SlotFallback);
        }
        // A slot of the thread's own stays its own when the node is gone.
        let taken = match place {
            Some(place) => {
                let (taken, place) = self.wait_in_queue(place, C::queue(), &mut wait);
                if let Some(place) = place {
                    self.store_prediction(Some(place.note()), wait.prediction);
                }
                taken
            }
            None => self.wait_at_front(&mut wait),
        };
        if !taken {
            P::count(Event::Timeout);
        }
        taken
    }

    /// Leaves a note for the thread's next wait, if it has a place for it.
    fn store_prediction(&self, place: Option<&P::AtomicU32>, prediction: Prediction) {
        if let Some(place) = place {
            place.store(StoredPrediction::new(self.key(), prediction).0, Relaxed);
        }
    }

    /// Returns also the place, if it is still ours.
    pub(super) fn wait_in_queue(
        &self,
        place: Waiter<P>,
        queue: Queue,
        wait: &mut Wait,
    ) -> (bool, Option<Waiter<P>>) {
        // To queue means to sleep then. A lock that does not cycle fast may be free again in a moment; but who has left its seat is not to come back past those who sleep.
        if wait.oversubscribed
            && self.spinners.last() == 0
            && !self.cycles_fast()
            && self.try_briefly()
        {
            return (self.finish(wait, true), Some(place));
        }
        let patience = match (P::CAN_PARK && C::PARK, wait.oversubscribed) {
            (false, _) => NEVER,
            (_, true) => SPIN_OVERSUBSCRIBED,
            (_, false) => SPIN,
        };
        let deadline = wait.deadline;
        match queue {
            Queue::Unqueued => (self.wait_at_front(wait), Some(place)),
            Queue::Osq(layout) => {
                let watch = Watch {
                    layout,
                    every: C::LOOK_AROUND,
                };
                if !self.spinners.join(&place, watch, patience, deadline) {
                    return (self.finish(wait, false), Some(place));
                }
                let taken = self.wait_as_head(wait);
                self.spinners.leave(&place);
                (taken || self.take_after_departure(wait), Some(place))
            }
            Queue::Cna => {
                let tail = self.spinners.tail();
                match cna_queue::join(tail, place, wait.tuning, patience, deadline) {
                    Some(turn) => {
                        let taken = self.wait_as_head(wait);
                        let place = turn.pass(tail);
                        (taken || self.take_after_departure(wait), Some(place))
                    }
                    None => (self.finish(wait, false), None),
                }
            }
        }
    }

    /// As [`wait_at_front`](Self::wait_at_front), but a head that [goes](Wait::departs) returns without the lock, to leave the queue first.
    fn wait_as_head(&self, wait: &mut Wait) -> bool {
        wait.is_head = true;
        let taken = self.wait_at_front(wait);
        wait.is_head = false;
        taken
    }

    /// Takes the lock, if that is what the former head has left the queue for.
    fn take_after_departure(&self, wait: &mut Wait) -> bool {
        wait.departs && self.wait_at_front(wait)
    }

    /// Looks at the lock now and then for a short while.
    fn try_briefly(&self) -> bool {
        let (start, mut pause) = (P::now(), FIRST_SAMPLE);
        loop {
            P::back_off(pause);
            if self.try_lock() {
                return true;
            }
            if P::now().saturating_sub(start) >= SPIN_OVERSUBSCRIBED {
                return false;
            }
            pause *= 2;
        }
    }

    /// Waits until the lock is taken (`true`), or the time is up.
    fn wait_at_front(&self, wait: &mut Wait) -> bool {
        if !wait.departs {
            wait.since = P::now();
        }
        loop {
            let taken = if wait.requested {
                self.await_handoff(wait, wait.stalled())
            } else if C::POLLS {
                self.poll(wait)
            } else {
                // Where it cycles fast, or would keep us all from running, its holder is left alone for a while.
                let leave_alone = wait.prediction.fast && !wait.contradicted || wait.oversubscribed;
                !leave_alone && self.try_lock() || self.barge_at_front(wait) || self.observe(wait)
            };
            if taken && wait.oversubscribed {
                wait.prediction.join_active_set();
            }
            if wait.departs && wait.is_head {
                return false;
            }
            if taken || passed(wait.deadline, P::now) {
                return self.finish(wait, taken);
            }
            if P::CAN_PARK && C::PARK {
                self.sleep_on_word(wait);
            }
        }
    }

    /// Looks at the lock all the time until it is taken (`true`), or until that has taken long enough.
    fn poll(&self, wait: &Wait) -> bool {
        let mut until = wait.deadline;
        if P::CAN_PARK && C::PARK {
            until = until.min(P::now().saturating_add(SPIN));
        }
        loop {
            let free = |locked| locked == FREE;
            if until == NEVER {
                P::wait(&self.locked, Relaxed, free);
            } else {
                let left = until.saturating_sub(P::now());
                let _ = P::wait_for(&self.locked, Relaxed, left, free);
            }
            if self.try_lock() {
                return true;
            }
            if passed(until, P::now) {
                return false;
            }
        }
    }

    /// Ends the wait: cleans up behind it, whether it has got the lock or not.
    pub(super) fn finish(&self, wait: &mut Wait, mut taken: bool) -> bool {
        if wait.requested && !taken {
            taken = self.withdraw_request(wait);
        }
        if taken {
            if wait.requested {
                // Taken and not granted: nobody has heard our wish. It must be gone before the next one can claim.
                if request_mode(self.flags.load(Relaxed)) != 0 {
                    self.flags.fetch_or(UNLOCKS, Relaxed);
                }
                // Relaxed: we hold the lock, and whoever looks at these flags next does so in turn.
                let flags = self
                    .flags
                    .fetch_and(!(HANDOFF | PICKUP | HANDOFF_SLEEPS), Relaxed);
                // An unlock that grants wakes none of those who sleep outside the queue. If each did, they would sleep for ever.
                if flags & PICKUP != 0 && flags & SLEEPERS != 0 {
                    self.wake();
                }
            }
            if wait.slept {
                self.flags.fetch_or(SLEEPERS, Relaxed);
            }
        } else {
            self.pass_wake_up_on(wait);
        }
        taken
    }

    /// Who has slept may have been woken in vain, in somebody else's place. If it does not get the lock soon that one shall.
    pub(super) fn pass_wake_up_on(&self, wait: &mut Wait) {
        if wait.slept {
            wait.slept = false;
            self.flags.fetch_or(SLEEPERS, SeqCst);
            // Where no fence makes sure that the holder sees the flag, somebody is woken in vain perhaps.
            if !self.makes_holder_notice(wait) || !self.is_locked() {
                self.wake();
            }
        }
    }
}

pub(super) fn passed(deadline: u64, now: impl Fn() -> u64) -> bool {
    deadline != NEVER && now() >= deadline
}
