//! One wait for the mutex, from the first contended try to the clean-up behind it.

use super::front::FIRST_SAMPLE;
use super::prediction::{Prediction, StoredPrediction};
use super::sleep::UNNOTICED_SLEEP;
use super::*;

/// How long a waiter in the queue spins before it sleeps, in nanoseconds: with a CPU for every
/// thread, and while oversubscribed.
const SPIN: u64 = 1_000_000;
const SPIN_OVERSUBSCRIBED: u64 = 2_000;
/// How long a head, or a thread that has requested a hand-off, spins while nothing happens: about
/// what it costs to sleep and wake up.
pub(super) const STALLED: u64 = 50_000;
/// The same while oversubscribed: the holder may have lost its CPU to this thread.
const STALLED_OVERSUBSCRIBED: u64 = 5_000;

/// One wait, from its beginning to its end.
pub(super) struct Wait {
    pub(super) deadline: u64,
    pub(super) tuning: Tuning,
    /// How long the head leaves a fast lock to others, in nanoseconds.
    pub(super) quantum: u64,
    pub(super) oversubscribed: bool,
    /// What this thread has learned of how the lock is best taken.
    pub(super) prediction: Prediction,
    /// Whether the first round of tries was made before the wait was set up. Cleared when that
    /// round is accounted for.
    pub(super) tried_first: bool,
    /// When the thread came to the front, or requested a hand-off beside the queue.
    pub(super) since: u64,
    /// How long it has paused there.
    pub(super) paused: u64,
    /// Whether the first sample found the lock held.
    pub(super) held_at_first: Option<bool>,
    /// How many samples have told whether barging pays.
    pub(super) samples: u8,
    /// Whether the last sample contradicted those before it: the lock did not cycle fast, or was
    /// not busy while oversubscribed.
    pub(super) contradicted: bool,
    /// While oversubscribed: whether the lock is taken again and again. The head then leaves it
    /// alone.
    pub(super) busy: bool,
    /// While oversubscribed: whether a place in the active set is vacant.
    pub(super) vacancy: bool,
    /// While oversubscribed: whether this thread joins the active set without asking a member to
    /// leave. It has filled a vacancy, or the lock is mostly free.
    pub(super) joins: bool,
    /// Whether this thread is the head of the queue.
    pub(super) is_head: bool,
    /// While oversubscribed: whether the head has decided to take the lock. It *departs*: it leaves
    /// the queue first.
    pub(super) departs: bool,
    pub(super) slept: bool,
    /// How often this thread was woken on the word and found the lock taken again.
    pub(super) vain_wakeups: u8,
    pub(super) requested: bool,
    /// How long the last wait for a hand-off has lasted, in nanoseconds.
    pub(super) pickup_wait: u64,
    pub(super) unnoticed_sleep: u64,
}

impl Wait {
    /// The beginning of a wait by a thread that knows nothing of the lock and has a CPU.
    pub(super) fn new(deadline: u64, tuning: Tuning) -> Self {
        Wait {
            deadline,
            tuning,
            quantum: tuning.quantum.micros() as u64 * 1000,
            oversubscribed: false,
            prediction: Prediction::default(),
            tried_first: false,
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
        }
    }

    /// Whether a head leaves the lock alone for now.
    pub(super) fn leaves_alone(&self) -> bool {
        if self.oversubscribed {
            self.busy
        } else {
            self.prediction.fast
        }
    }

    /// Whether this thread may leave the queue to take the lock. Without a quantum nobody passes
    /// the sleepers in the queue.
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
        // The failed try has fetched the cache line, and the next unlock takes it back: now a load
        // is cheap.
        let queued = self.spinners.last() != 0;
        match self.barge_at_once(queued && !(C::PARK && P::oversubscribed())) {
            Ok(()) => P::count(Event::Barge),
            Err(missed) => {
                self.lock_slow(NEVER, missed);
            }
        }
    }

    /// Takes the lock in whichever way fits. Returns `false` if the deadline has passed.
    ///
    /// `missed` is the prediction that [`barge_at_once`](Self::barge_at_once) read before it tried
    /// in vain. The wait continues from those tries.
    #[cold]
    #[inline(never)]
    pub(super) fn lock_slow(&self, deadline: u64, missed: Option<StoredPrediction>) -> bool {
        if missed.is_none() {
            P::count(Event::SlowPath);
        }
        let waiters = P::waiters();
        // Barging needs no node. A thread with a slot of its own enters it only to queue.
        let own = waiters.own_prediction_cell();
        let mut place = None;
        if own.is_none() {
            place = waiters.enter();
        }
        let cell = own.or(place.as_ref().map(Waiter::note));
        let fresh = Wait::new(deadline, C::tuning());
        let mut wait = Wait {
            oversubscribed: P::CAN_PARK && C::PARK && P::oversubscribed(),
            prediction: missed
                .unwrap_or_else(|| StoredPrediction(cell.map_or(0, |cell| cell.load(Relaxed))))
                .for_lock(self.key())
                .or(C::initial_budget().map(Prediction::barging))
                .unwrap_or_default(),
            tried_first: missed.is_some(),
            ..fresh
        };
        // Most waits end by barging. The spent budget is stored now, while another thread holds the
        // lock. Later the store would lengthen this thread's critical section.
        let mut stored = wait.prediction;
        if stored.budget > 0 {
            stored.spend();
            // A missed try has stored it already. A signal handler may since have taken this thread
            // out of the active set.
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
        // The thread keeps its own slot when the node is gone.
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

    /// Stores the prediction for the thread's next wait, if the thread has a place for it.
    fn store_prediction(&self, place: Option<&P::AtomicU32>, prediction: Prediction) {
        if let Some(place) = place {
            place.store(StoredPrediction::new(self.key(), prediction).0, Relaxed);
        }
    }

    /// Queues and waits. Also returns the thread's place, unless the node was abandoned.
    pub(super) fn wait_in_queue(
        &self,
        place: Waiter<P>,
        queue: Queue,
        wait: &mut Wait,
    ) -> (bool, Option<Waiter<P>>) {
        // While oversubscribed, a thread that queues soon sleeps. A lock that does not cycle fast
        // may be free again in a moment. A thread that has just left the active set must not pass
        // the sleepers.
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
                    Some(headship) => {
                        let taken = self.wait_as_head(wait);
                        let place = headship.pass(tail);
                        (taken || self.take_after_departure(wait), Some(place))
                    }
                    None => (self.finish(wait, false), None),
                }
            }
        }
    }

    /// As [`wait_at_front`](Self::wait_at_front), but a head that [departs](Wait::departs) returns
    /// without the lock, to leave the queue first.
    fn wait_as_head(&self, wait: &mut Wait) -> bool {
        wait.is_head = true;
        let taken = self.wait_at_front(wait);
        wait.is_head = false;
        taken
    }

    /// Takes the lock after the head has departed for it.
    fn take_after_departure(&self, wait: &mut Wait) -> bool {
        wait.departs && self.wait_at_front(wait)
    }

    /// Tries to take the lock a few times within [`SPIN_OVERSUBSCRIBED`].
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
                // The holder of a fast lock is left alone for a while, and so is any holder while
                // oversubscribed.
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

    /// Polls the lock until it is taken (`true`), or until it is time to sleep.
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

    /// Ends the wait: cleans up behind it. Returns whether the thread has the lock.
    pub(super) fn finish(&self, wait: &mut Wait, mut taken: bool) -> bool {
        if wait.requested && !taken {
            taken = self.withdraw_request(wait);
        }
        if taken {
            if wait.requested {
                // The lock was taken and not handed over, so no holder has read the mode. It must
                // be gone before the next request.
                if request_mode(self.flags.load(Relaxed)) != 0 {
                    self.flags.fetch_or(UNLOCKS, Relaxed);
                }
                // Relaxed: this thread holds the lock, and the next reader of these flags does so
                // as a later holder.
                let flags = self
                    .flags
                    .fetch_and(!(HANDOFF | PICKUP | HANDOFF_SLEEPS), Relaxed);
                // A hand-off wakes none of the other sleepers on the word. Threads that hand the
                // lock to each other would leave them asleep for ever.
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

    /// Passes on the wake-up of a waiter that has slept and does not get the lock soon. The wake-up
    /// may have been meant for another sleeper.
    pub(super) fn pass_wake_up_on(&self, wait: &mut Wait) {
        if wait.slept {
            wait.slept = false;
            self.flags.fetch_or(SLEEPERS, SeqCst);
            // Without a fence the holder may miss the flag. A needless wake-up costs less than a
            // lost one.
            if !self.makes_holder_notice(wait) || !self.is_locked() {
                self.wake();
            }
        }
    }
}

pub(super) fn passed(deadline: u64, now: impl Fn() -> u64) -> bool {
    deadline != NEVER && now() >= deadline
}
