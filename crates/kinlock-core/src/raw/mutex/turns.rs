//! Beside the queue: threads that run take turns; with more threads than CPUs those who have a *seat* do, while the others sleep in the queue.

use super::front::FIRST_LOOK;
use super::judge::LOOKS;
use super::note::Note;
use super::wait::{STALLED, Wait, passed};
use super::*;
use core::mem;

impl<P: Platform, C: MutexConfig> QueuedMutex<P, C> {
    /// The first tries of [`take_in_passing`](Self::take_in_passing), for a thread whose note says that turns are taken, and that this one is not the last. `others_queue`: others
    /// queue, and run. `Err(None)`: nothing has been tried. `Err(Some(_))`: the lock was not free; with what the note said, which counts the turn as used now.
    ///
    /// Between threads that take turns it counts when the first try is made: while the unlock of the holder waits for the line, so that the line comes here next. What a wait that may
    /// end anywhere needs to know takes longer to set up than their critical sections last.
    #[inline]
    pub(super) fn take_turn_at_once(&self, others_queue: bool) -> Result<(), Option<Note>> {
        if others_queue || C::POLLS || !P::CAN_PARK {
            return Err(None);
        }
        let place = P::waiters().own_note().ok_or(None)?;
        let note = Note(place.load(Relaxed));
        let after = note.after_a_turn(self.key()).ok_or(None)?;
        if C::tuning().quantum.micros() == 0 {
            return Err(None);
        }
        P::count(Event::SlowPath);
        place.store(after.0, Relaxed);
        match self.try_for_a_turn(NEVER) {
            true => Ok(()),
            false => Err(Some(note)),
        }
    }

    /// Tries to take the lock (`true`): so many exchanges, some pauses apart, or fewer if the time is up.
    #[inline]
    fn try_for_a_turn(&self, deadline: u64) -> bool {
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
    pub(super) fn take_in_passing(&self, wait: &mut Wait) -> bool {
        let permitted = wait.habit.trusts_turns() && wait.quantum > 0 && !C::POLLS;
        // Without a clock there would be no end to the wait for a grant.
        if !permitted || !P::CAN_PARK || self.others_queue(wait) {
            return false;
        }
        if wait.habit.turns == 0
            && wait.crowded
            && self.spinners.last() != 0
            && !self.keeps_seat(wait)
        {
            // Its seat is for one of those who sleep.
            return false;
        }
        if wait.habit.turns == 0 && self.look_in_passing(wait) {
            P::count(Event::Turn);
            return true;
        }
        // With more threads than CPUs it is likely that a holder does not run, and to queue means to sleep.
        let patience = match wait.crowded {
            true => STALLED,
            false => wait.quantum.min(SHORT_QUANTUM),
        };
        let (mut rounds, mut refused) = (0, None);
        loop {
            // The first of these series may have been made.
            if !mem::take(&mut wait.tried_at_once) && self.try_for_a_turn(wait.deadline) {
                P::count(Event::Turn);
                wait.habit.use_turn();
                self.announce_last_turn(wait);
                return true;
            }
            if passed(wait.deadline, P::now) {
                return false;
            }
            if self.claim(wait, 0) {
                break;
            }
            rounds += 1;
            // Who has been granted the lock and does not know yet has lost its CPU, mostly to an interrupt, and with two threads that is the other one. In the queue we would
            // only look, and lose many a race against it when it is back. Where somebody else has claimed there are more of us.
            let several = self.flags.load(Relaxed) & CLAIMED != 0 || self.others_queue(wait);
            let now = P::now();
            let late = now.saturating_sub(*refused.get_or_insert(now)) >= patience;
            if several || late || !wait.crowded && rounds == C::PASSING.rounds {
                if !several {
                    self.announce_room(wait);
                }
                return false;
            }
            // Not for long, but as a step of time where time only passes in waits.
            P::back_off(0);
        }
        wait.habit.use_turn();
        wait.since = P::now();
        // Behind others in the queue nobody looks for a grant: no claim may be taken along.
        let taken = C::FAULT != MutexFault::QueuedClaim
            && (self.await_grant(wait, STALLED) || wait.claimed && self.withdraw(wait));
        if taken {
            P::count(Event::Turn);
            wait.turn_granted();
            self.finish(wait, true);
            self.announce_last_turn(wait);
        } else {
            wait.turn_failed();
            self.announce_room(wait);
        }
        taken
    }

    /// In a crowd, when a seat is used up: lets others run on this CPU, and if the seat is vacant all the same it is kept (`true`).
    ///
    /// The head has been woken on some CPU, and a scheduler leaves it there for milliseconds even if another one idles. Whoever slept without a successor on its own CPU would
    /// leave that CPU idle. So the seat goes to a head that is where it can run: here, or anywhere as soon as it does.
    fn keeps_seat(&self, wait: &mut Wait) -> bool {
        // To yield may take as long as all the others need.
        if !self.has_room(wait) || wait.deadline != NEVER {
            return false;
        }
        P::yield_now();
        let kept = self.occupy_room();
        if kept {
            wait.habit.take_seat();
        }
        kept
    }

    /// Whether others queue, and run: there are too many then to take turns beside the queue. In a crowd the queue is where threads sleep, so that as many as there are CPUs can.
    fn others_queue(&self, wait: &Wait) -> bool {
        !wait.crowded && self.spinners.last() != 0
    }

    /// Where turns have been taken for as many waits as that was believed: watches the lock until a look at it tells something, and takes it if it is free then (`true`).
    ///
    /// A head does the same, but it has joined the queue before and leaves it afterwards: the one wait in thousands that is for learning was then among the longest.
    pub(super) fn look_in_passing(&self, wait: &mut Wait) -> bool {
        // If others change the flags all the time, a later wait will look.
        if !(0..3).any(|_| self.watch()) {
            return false;
        }
        let (start, mut paused) = (P::now(), 0);
        loop {
            P::back_off(FIRST_LOOK);
            paused += FIRST_LOOK;
            // An exchange: who looks first, and so seldom, loses the race.
            let taken = self.take();
            let unlocks = (self.flags.load(Relaxed) / UNLOCK) as u64;
            let now = P::now();
            if self.others_queue(wait) {
                wait.newcomers(taken);
            } else {
                wait.judge(unlocks, now.saturating_sub(start).max(paused), taken);
            }
            // Three looks decide, after those in the first `TURN_CYCLE` that tell nothing; in a crowd more may tell nothing, and the holder may not run.
            let stalled = wait.crowded && now.saturating_sub(start) >= wait.stalled();
            if taken || wait.looks == LOOKS || stalled || passed(wait.deadline, || now) {
                return taken;
            }
        }
    }

    /// After a turn: if it was the last, somebody else can have the seat.
    fn announce_last_turn(&self, wait: &Wait) {
        if wait.habit.turns == 0 {
            self.announce_room(wait);
        }
    }

    /// Tells the head of a crowded queue that a seat is free: nobody watches, and nothing has been counted. If others change the flags just now the head finds out when its
    /// quantum is over.
    fn announce_room(&self, wait: &Wait) {
        let flags = self.flags.load(Relaxed);
        if wait.crowded && self.spinners.last() != 0 && wish(flags) == 0 {
            let room = flags & !LOOK;
            let _ = self.flags.compare_exchange(flags, room, Relaxed, Relaxed);
        }
    }

    /// Whether that has been announced, or nobody has watched yet.
    pub(super) fn has_room(&self, wait: &Wait) -> bool {
        wait.crowded && self.flags.load(Relaxed) & LOOK == 0
    }

    /// Says that a vacant seat is somebody's from now on. `false`: it is already, as far as can be seen.
    pub(super) fn occupy_room(&self) -> bool {
        let mut flags = self.flags.load(Relaxed);
        // Only waiters change the flags while nobody watches, each a few times: the loop ends.
        while flags & LOOK == 0 {
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
