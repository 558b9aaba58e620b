//! One wait for the mutex: from where a thread queues to where it has cleaned up behind itself.

use super::front::FIRST_LOOK;
use super::note::{Habit, Note};
use super::sleep::UNNOTICED_SLEEP;
use super::*;

/// How long a waiter in the queue spins before it sleeps, in nanoseconds, and how long if there are more of them than CPUs.
const PATIENT: u64 = 1_000_000;
const HURRIED: u64 = 2_000;
/// How long a head, or a claimant, spins while nothing happens: about what it costs to sleep and wake up.
pub(super) const STALLED: u64 = 50_000;
/// The same while there are more waiters than CPUs: the holder may have lost its CPU to us.
const STALLED_WHEN_CROWDED: u64 = 5_000;

/// One wait, from its beginning to its end.
pub(super) struct Wait {
    pub(super) deadline: u64,
    pub(super) tuning: Tuning,
    /// The longest run of other holders that a waiter at the head puts up with.
    pub(super) quantum: u64,
    pub(super) crowded: bool,
    /// How the lock is best taken, as far as this thread knows.
    pub(super) habit: Habit,
    /// Whether the tries that a turn begins with were made before the wait was set up; until that has been allowed for.
    pub(super) tried_at_once: bool,
    /// When the thread came to the front, or claimed beside the queue.
    pub(super) since: u64,
    /// How long it has paused there.
    pub(super) paused: u64,
    /// Whether it was held when this thread looked first.
    pub(super) held_at_first: Option<bool>,
    /// How many looks there have been that tell whether turns are taken.
    pub(super) looks: u8,
    /// Whether the last look did not find it cycling fast, or in a crowd busy, though those before did.
    pub(super) hesitates: bool,
    /// Whether, in a crowd, the lock is taken again and again: then it is left alone.
    pub(super) busy: bool,
    /// Whether, in a crowd, somebody has left a seat, ...
    pub(super) room: bool,
    /// ... and this thread has said that it takes it; or it needs nobody's, since the lock is mostly free.
    pub(super) enters: bool,
    /// Whether this thread is the head of the queue.
    pub(super) queued: bool,
    /// Whether, in a crowd, a head has decided to take the lock, and leaves the queue for that.
    pub(super) goes: bool,
    pub(super) slept: bool,
    /// How often this thread was woken on the word and found the lock taken again.
    pub(super) woken_in_vain: u8,
    pub(super) claimed: bool,
    /// For how long it has last looked for a grant, and there was none.
    pub(super) in_vain: u64,
    pub(super) unnoticed_sleep: u64,
}

impl Wait {
    /// Whether a head keeps off the lock for now.
    pub(super) fn leaves_alone(&self) -> bool {
        if self.crowded {
            self.busy
        } else {
            self.habit.fast
        }
    }

    /// Whether this thread may leave the queue to take the lock. Without a quantum nobody passes those who sleep.
    pub(super) fn may_go(&self) -> bool {
        self.crowded && self.queued && !self.goes && self.quantum > 0
    }

    /// How long to spin while nothing happens.
    pub(super) fn stalled(&self) -> u64 {
        if self.crowded {
            STALLED_WHEN_CROWDED
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
        match self.take_turn_at_once(queued && !(C::PARK && P::crowded())) {
            Ok(()) => P::count(Event::Turn),
            Err(missed) => {
                self.lock_slow(NEVER, missed);
            }
        }
    }

    /// Waits for the lock in all the ways there are. `missed`: what the thread's note said before a [turn](Self::take_turn_at_once) that it has tried to take; the wait goes on where
    /// those tries have ended.
    #[cold]
    #[inline(never)]
    pub(super) fn lock_slow(&self, deadline: u64, missed: Option<Note>) -> bool {
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
        let note = own.or(place.as_ref().map(Waiter::note));
        let tuning = C::tuning();
        let mut wait = Wait {
            deadline,
            tuning,
            quantum: tuning.quantum.micros() as u64 * 1000,
            crowded: P::CAN_PARK && C::PARK && P::crowded(),
            habit: missed
                .unwrap_or_else(|| Note(note.map_or(0, |note| note.load(Relaxed))))
                .about(self.key())
                .or(C::turns_at_first().map(Habit::turns))
                .unwrap_or_default(),
            tried_at_once: missed.is_some(),
            since: 0,
            paused: 0,
            held_at_first: None,
            looks: 0,
            hesitates: false,
            busy: false,
            room: false,
            enters: false,
            queued: false,
            goes: false,
            slept: false,
            woken_in_vain: 0,
            claimed: false,
            in_vain: 0,
            unnoticed_sleep: UNNOTICED_SLEEP,
        };
        // Mostly a turn is taken next. It is noted at once: while somebody else has the lock there is time, afterwards there is none.
        let mut noted = wait.habit;
        if noted.turns > 0 {
            noted.use_turn();
            // A turn that has been missed is noted already; and in a signal handler since then the thread may have been asked to leave its seat.
            if missed.is_none() {
                self.note(note, noted);
            }
        }
        if self.take_in_passing(&mut wait) {
            if wait.habit != noted {
                self.note(note, wait.habit);
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
                    self.note(Some(place.note()), wait.habit);
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
    fn note(&self, place: Option<&P::AtomicU32>, habit: Habit) {
        if let Some(place) = place {
            place.store(Note::new(self.key(), habit).0, Relaxed);
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
        if wait.crowded && self.spinners.last() == 0 && !self.cycles_fast() && self.glance() {
            return (self.finish(wait, true), Some(place));
        }
        let patience = match (P::CAN_PARK && C::PARK, wait.crowded) {
            (false, _) => NEVER,
            (_, true) => HURRIED,
            (_, false) => PATIENT,
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
                (taken || self.go(wait), Some(place))
            }
            Queue::Cna => {
                let tail = self.spinners.tail();
                match kin::join(tail, place, wait.tuning, patience, deadline) {
                    Some(turn) => {
                        let taken = self.wait_as_head(wait);
                        let place = turn.pass(tail);
                        (taken || self.go(wait), Some(place))
                    }
                    None => (self.finish(wait, false), None),
                }
            }
        }
    }

    /// As [`wait_at_front`](Self::wait_at_front), but a head that [goes](Wait::goes) returns without the lock, to leave the queue first.
    fn wait_as_head(&self, wait: &mut Wait) -> bool {
        wait.queued = true;
        let taken = self.wait_at_front(wait);
        wait.queued = false;
        taken
    }

    /// Takes the lock, if that is what the former head has left the queue for.
    fn go(&self, wait: &mut Wait) -> bool {
        wait.goes && self.wait_at_front(wait)
    }

    /// Looks at the lock now and then for a short while.
    fn glance(&self) -> bool {
        let (start, mut pause) = (P::now(), FIRST_LOOK);
        loop {
            P::back_off(pause);
            if self.try_lock() {
                return true;
            }
            if P::now().saturating_sub(start) >= HURRIED {
                return false;
            }
            pause *= 2;
        }
    }

    /// Waits until the lock is taken (`true`), or the time is up.
    fn wait_at_front(&self, wait: &mut Wait) -> bool {
        if !wait.goes {
            wait.since = P::now();
        }
        loop {
            let taken = if wait.claimed {
                self.await_grant(wait, wait.stalled())
            } else if C::POLLS {
                self.poll(wait)
            } else {
                // Where it cycles fast, or would keep us all from running, its holder is left alone for a while.
                let leave_alone = wait.habit.fast && !wait.hesitates || wait.crowded;
                !leave_alone && self.try_lock() || self.take_turn(wait) || self.observe(wait)
            };
            if taken && wait.crowded {
                wait.habit.take_seat();
            }
            if wait.goes && wait.queued {
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
            until = until.min(P::now().saturating_add(PATIENT));
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
        if wait.claimed && !taken {
            taken = self.withdraw(wait);
        }
        if taken {
            if wait.claimed {
                // Taken and not granted: nobody has heard our wish. It must be gone before the next one can claim.
                if wish(self.flags.load(Relaxed)) != 0 {
                    self.flags.fetch_or(UNLOCKS, Relaxed);
                }
                // Relaxed: we hold the lock, and whoever looks at these flags next does so in turn.
                let flags = self
                    .flags
                    .fetch_and(!(CLAIMED | GRANTED | CLAIMANT_SLEEPS), Relaxed);
                // An unlock that grants wakes none of those who sleep outside the queue. If each did, they would sleep for ever.
                if flags & GRANTED != 0 && flags & SLEEPERS != 0 {
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
