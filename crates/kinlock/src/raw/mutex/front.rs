//! At the head of the queue: learning how fast the lock cycles, leaving a fast one alone for a quantum, claiming. And beside the queue: taking turns.

use super::note::{Habit, Note};
use super::wait::{STALLED, Wait, passed};
use super::*;
use core::mem;

/// A lock cycles fast if it is taken and released within so many nanoseconds, less than a cache line needs to get here and back; where it is held most of that time
/// nobody else gets in between, so that it may take longer. Then thousands of critical sections fit into a quantum, and waiting for it is rarer than one in a thousand.
const FAST_CYCLE: u64 = 60;
const FAST_CYCLE_WHEN_HELD: u64 = 110;
/// How many unlocks in a row it takes to believe that.
const FAST_UNLOCKS: u64 = 3;
/// What watching costs the holder at most before the first unlock that counts itself, in nanoseconds: the line is away.
const WATCHING: u64 = 100;
/// A lock that cycles within so many nanoseconds, but not fast, and that was free at one of the first [`LOOKS`], is taken in turns: a holder is done in a moment, and before it
/// comes back the line can have been here.
const TURN_CYCLE: u64 = 400;

/// How many looks at a lock that find it held say that it is held nearly always: where that is seven eighths of the time, two thirds of such series do.
pub(super) const LOOKS: u8 = 3;

/// When to look at the lock first, in nanoseconds: about when a short critical section is over, ...
pub(super) const FIRST_LOOK: u64 = 150;
/// ... where the lock has cycled fast, when it can have done so often enough to be known as fast, ...
const FIRST_LOOK_WHEN_FAST: u64 = 400;
/// ... and where more threads wait than there are CPUs: long enough to see a lock being taken again and again, too short for seven unlocks of one that is taken in turns.
const FIRST_LOOK_WHEN_CROWDED: u64 = 400;
/// There a lock that is taken again within so many nanoseconds is left alone.
const BUSY_CYCLE: u64 = 200;
const SHORTEST_PAUSE: u64 = 50;
/// For how long a lock that cycles fast is left alone before it is looked at whether it still does: at first, and then twice as long each time. Several threads on several
/// CPUs can make a lock look fast for a moment that nobody needs to be kept off.
const FIRST_REST: u64 = 3_000;

/// How long a head naps between two looks at a lock that cycles fast, while there are more waiters than CPUs: at first, and twice as long each time until so long.
/// Whenever it wakes up somebody else who runs may lose the CPU to it, and that may be the holder; but if those who run go away the lock idles until it
/// does.
pub(super) const FIRST_NAP: u64 = 200_000;
const LONGEST_NAP: u64 = 1_000_000;
/// How often a head of a crowd is woken, and finds the lock taken again, before it leaves the lock alone. Once is chance.
const WOKEN_IN_VAIN: u8 = 2;
/// How long a claim beside the queue looks in vain for its grant where a turn is one of the [long](Habit::long_turn) ones: longer than transfers take, and shorter than a section
/// of a microsecond.
pub(super) const LONG_TURN: u64 = 700;
/// How long a head has been there before it keeps its claim while it sleeps: the lock is then idle until it has woken up.
const STARVING: u64 = 1_000_000;

/// Where unlocks stop counting themselves.
const MOST_UNLOCKS: u64 = (UNLOCKS / UNLOCK) as u64;

impl Wait {
    /// Learns from a look at the lock: so many unlocks in so many nanoseconds, and then it was free or not.
    pub(super) fn judge(&mut self, unlocks: u64, nanos: u64, free: bool) {
        if self.crowded {
            return self.judge_crowd(unlocks, nanos, free);
        }
        let first = self.held_at_first.is_none();
        if first && !free && unlocks == 0 && nanos < TURN_CYCLE {
            // Still the same critical section, and perhaps a short one.
            return;
        }
        if self.has_seen_it_fast(unlocks, nanos, free) {
            self.hesitates = false;
            return;
        }
        if self.habit.fast && !first && !self.hesitates {
            self.hesitates = true;
            return;
        }
        (self.habit.fast, self.hesitates) = (false, false);
        // More looks would tell nothing about how much of the time it is held: one that finds it free is mostly the last.
        if self.looks == LOOKS {
            return;
        }
        self.looks += 1;
        if !free && self.looks == LOOKS {
            self.habit.doubt();
        } else if free {
            self.looks = LOOKS;
            if unlocks == 0 {
                self.habit.renew();
            } else if unlocks < MOST_UNLOCKS && unlocks * TURN_CYCLE >= nanos {
                self.habit.confirm();
            }
        }
    }

    /// The same with more threads than CPUs. There any lock that its holders keep taking is left alone: nobody else who is needed runs.
    fn judge_crowd(&mut self, unlocks: u64, nanos: u64, free: bool) {
        let busy = unlocks >= FAST_UNLOCKS || unlocks * BUSY_CYCLE >= nanos;
        // Whoever wakes up to look may have taken the CPU of the holder, or of all who take it: one such look after others is chance.
        self.hesitates = self.busy && !busy && !self.hesitates;
        self.busy = busy || self.hesitates;
        // As many unlocks as are counted say nothing but that it is not slow.
        if self.has_seen_it_fast(unlocks, nanos, free) || unlocks == 0 || unlocks == MOST_UNLOCKS {
            return;
        }
        if self.looks < LOOKS {
            self.looks += 1;
            if free {
                self.looks = LOOKS;
                if unlocks * TURN_CYCLE >= nanos {
                    self.habit.confirm();
                }
            } else if self.looks == LOOKS {
                self.habit.doubt();
            }
        }
    }

    /// Whether a look shows that it cycles fast, which is learned from it then.
    fn has_seen_it_fast(&mut self, unlocks: u64, nanos: u64, free: bool) -> bool {
        let cycle = match *self.held_at_first.get_or_insert(!free) {
            true => FAST_CYCLE_WHEN_HELD,
            false => FAST_CYCLE,
        };
        let fast = unlocks >= FAST_UNLOCKS && unlocks * cycle >= nanos.saturating_sub(WATCHING);
        if fast {
            // Between threads that take turns a few quick sections in a row are chance: one wait does not undo what many turns have shown.
            if !self.habit.trusts_turns() {
                self.habit = Habit::FAST;
            } else if self.looks < LOOKS {
                self.habit.doubt_more();
            }
            self.looks = LOOKS;
        }
        fast
    }

    /// A turn was granted, after a wait that may tell how long the lock is held.
    pub(super) fn turn_granted(&mut self) {
        if self.crowded && self.in_vain >= LONG_TURN {
            self.habit.long_turn();
        }
    }

    /// A turn was not to be had in time. If no look has told anything yet in this wait, this does: the lock is held for long.
    fn turn_failed(&mut self) {
        if self.looks < LOOKS {
            self.looks = LOOKS;
            self.habit.doubt();
        }
    }

    /// Others have queued meanwhile: several run that take the lock. Whether it is held now says nothing about that.
    fn newcomers(&mut self, free: bool) {
        self.habit.share();
        self.held_at_first.get_or_insert(!free);
        self.looks = LOOKS;
    }
}

impl<P: Platform, C: MutexConfig> QueuedMutex<P, C> {
    /// Whether the last thread to watch has seen so.
    pub(super) fn cycles_fast(&self) -> bool {
        (self.flags.load(Relaxed) / UNLOCK) as u64 >= FAST_UNLOCKS
    }

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

    /// Says that a vacant seat is somebody's from now on. `false`: it is already, as far as can be seen.
    fn occupy_room(&self) -> bool {
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

    /// Where turns are taken: takes the lock as soon as it is free (`true`), unless that takes so long that it is time to claim it.
    pub(super) fn take_turn(&self, wait: &mut Wait) -> bool {
        // Without a clock there would be no end to it.
        if wait.habit.turns == 0 || wait.crowded || !P::CAN_PARK {
            return false;
        }
        let patience = wait.quantum.min(SHORT_QUANTUM);
        loop {
            let now = P::now();
            let left = patience.saturating_sub(now.saturating_sub(wait.since));
            let left = left.min(wait.deadline.saturating_sub(now));
            let free = P::wait_for(&self.locked, Relaxed, left, |locked| locked == FREE).is_ok();
            if free && self.take() {
                wait.habit.use_turn();
                return true;
            }
            if !free || left == 0 {
                wait.turn_failed();
                return false;
            }
        }
    }

    /// Spins near the lock, learning how fast it cycles, until it is taken (`true`), or until nothing happens any more.
    pub(super) fn observe(&self, wait: &mut Wait) -> bool {
        let start = P::now();
        let mut pause = match (wait.crowded, wait.habit.fast) {
            (true, _) => FIRST_LOOK_WHEN_CROWDED,
            (false, true) => FIRST_LOOK_WHEN_FAST,
            (false, false) => FIRST_LOOK,
        };
        let (mut looked, mut progress) = (start, start);
        let mut counted = 0;
        let (mut rest, mut rested) = (FIRST_REST, false);
        let (mut nap, mut napped) = (FIRST_NAP, false);
        // Whoever has left its seat while there was no head has left it for us.
        wait.room |= self.has_room(wait);
        if wait.crowded {
            // Who has been woken because the lock was free is not to leave it alone. But if it is taken again each time, this costs every critical section a wake-up.
            let known_as_busy = if wait.slept {
                wait.woken_in_vain >= WOKEN_IN_VAIN && self.is_locked()
            } else {
                wait.habit.fast || wait.habit.trusts_turns()
            };
            wait.busy = known_as_busy && !wait.goes;
        } else {
            // Who knows of no turns is not to believe in them because of a chance: of a head's looks one counts. Where many threads run, more let some starve.
            wait.looks = wait.looks.max(LOOKS - 1);
        }
        let last = self.spinners.last();
        if wait.goes || wait.room && wait.habit.trusts_turns() {
            pause = 0;
        } else {
            self.watch();
        }
        loop {
            P::back_off(pause);
            let free = self.locked.load(Relaxed) == FREE;
            let unlocks = (self.flags.load(Relaxed) / UNLOCK) as u64;
            wait.room |= self.has_room(wait);
            let mut now = P::now();
            wait.paused = wait.paused.saturating_add(pause);
            if unlocks != counted {
                (progress, counted) = (now, unlocks);
            }
            let may_be_turns = !wait.crowded && wait.habit.turns == 0;
            if may_be_turns && self.spinners.last() != last {
                wait.newcomers(free);
            } else if !rested && !wait.enters && !wait.goes {
                // After a rest nobody has counted for long: that was the beginning of a look. And who has decided to take the lock does not watch it.
                wait.judge(unlocks, now.saturating_sub(looked).max(pause), free);
            }
            if wait.habit.turns > 0 {
                if self.take_turn(wait) {
                    return true;
                }
                now = P::now();
            }
            // From when we came to the front: who sleeps meanwhile shall not begin anew. Without a clock there are the pauses.
            let waited = now.saturating_sub(wait.since).max(wait.paused);
            let fast = wait.leaves_alone();
            let quantum = match (wait.crowded, fast) {
                (true, _) => wait.quantum * QUANTUM_WHEN_CROWDED,
                (false, true) => wait.quantum,
                (false, false) => wait.quantum.min(SHORT_QUANTUM),
            };
            if wait.room && wait.habit.trusts_turns() && !wait.enters {
                // If not, we have watched since we have seen it: that occupies it as well.
                self.occupy_room();
                wait.enters = true;
            }
            let over = waited >= quantum || wait.enters || wait.goes;
            let deserted = (rested || wait.hesitates && !wait.crowded) && unlocks == 0;
            if wait.crowded && wait.queued && (wait.enters || free && over && wait.quantum > 0) {
                // The next one is woken for it, for some microseconds or in place of us. That is not to happen while we hold the lock.
                if free {
                    wait.habit.presume_turns();
                }
                wait.goes = true;
                return false;
            }
            if free && (over || !fast || deserted) && self.take() {
                if wait.crowded {
                    wait.habit.presume_turns();
                }
                return true;
            }
            // Without a quantum nobody has a seat.
            let wish = if !wait.crowded || wait.enters || wait.quantum == 0 {
                0
            } else if wait.habit.trusts_turns() {
                ROOM
            } else {
                TO_BE_ALONE
            };
            if over && self.claim(wait, wish) {
                return self.await_grant(wait, wait.stalled());
            }
            let leaves_alone = wait.crowded && fast && !over;
            let idle = now.saturating_sub(progress);
            let stalled = !rested && !leaves_alone && idle >= wait.stalled();
            // Among those who take turns a holder has lost its CPU, perhaps to us. Asleep on the word we would be woken at the next unlock, take the CPU again, and so on.
            let steps_back = stalled && wait.crowded && wait.habit.trusts_turns() && !napped;
            if stalled && !steps_back || passed(wait.deadline, || now) {
                return false;
            }
            let naps = leaves_alone || steps_back;
            if naps || !over && !wait.crowded {
                (looked, counted) = (now, 0);
                self.watch();
            }
            let left = quantum.saturating_sub(waited);
            let unsure = napped && wait.looks < LOOKS || free && (napped || wait.hesitates);
            if leaves_alone && unsure {
                // In a nap so much happens that it cannot be counted; and a lock that is free may have been deserted.
                (pause, napped) = (FIRST_LOOK_WHEN_CROWDED, false);
            } else if naps {
                self.pass_wake_up_on(wait);
                let length = if steps_back { nap } else { nap.min(left) };
                self.nap(length, wait.deadline);
                nap = (nap * 2).min(LONGEST_NAP);
                (pause, napped) = (0, true);
            } else {
                rested = fast && !rested && !wait.hesitates;
                pause = if rested {
                    let this = rest;
                    rest = rest.saturating_mul(2);
                    this.min(left)
                } else if fast {
                    FIRST_LOOK_WHEN_FAST.min(left)
                } else if unlocks == MOST_UNLOCKS {
                    // It cycles often, but in how much of that time?
                    FIRST_LOOK.min(left)
                } else {
                    (pause * 2).min(left).min(wait.stalled())
                };
                let before_deadline = wait.deadline.saturating_sub(now);
                pause = pause.max(SHORTEST_PAUSE).min(before_deadline);
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
    fn has_room(&self, wait: &Wait) -> bool {
        wait.crowded && self.flags.load(Relaxed) & LOOK == 0
    }

    /// Has unlocks count themselves from now on. Tried once (`false`: in vain): if somebody else changes the flags, or wishes something, the next look is as good.
    pub(super) fn watch(&self) -> bool {
        let flags = self.flags.load(Relaxed);
        let watched = flags & !LOOK | WATCHED;
        wish(flags) == 0
            && self
                .flags
                .compare_exchange(flags, watched, Relaxed, Relaxed)
                .is_ok()
    }

    /// Sleeps for a while where nobody wakes us.
    fn nap(&self, nanos: u64, deadline: u64) {
        let bed = P::AtomicU32::new(0);
        let until = P::now().saturating_add(nanos).min(deadline);
        P::park((&raw const bed).cast(), 0, until, || bed.load(Relaxed));
    }

    /// Asks the next unlock to hand the lock to us, and perhaps its holder for [`ROOM`], or [`TO_BE_ALONE`]. `false`: somebody else has claimed.
    pub(super) fn claim(&self, wait: &mut Wait, wish: u8) -> bool {
        let mut flags = self.flags.load(Relaxed);
        // Only waiters change the flags, each a few times, and unlocks that count themselves, up to seven: the loop ends.
        while flags & (CLAIMED | GRANTED) == 0 {
            let look = if wish == 0 { flags & LOOK } else { wish };
            let claimed = flags & !LOOK | look | CLAIMED;
            match self
                .flags
                .compare_exchange(flags, claimed, Relaxed, Relaxed)
            {
                Ok(_) => {
                    P::count(Event::Claim);
                    wait.claimed = true;
                    break;
                }
                Err(seen) => flags = seen,
            }
        }
        wait.claimed
    }

    /// Spins until the lock is ours, granted or taken (`true`), or nothing has happened for so many nanoseconds.
    pub(super) fn await_grant(&self, wait: &mut Wait, patience: u64) -> bool {
        let start = P::now();
        loop {
            // Acquire pairs with the grant.
            if self.flags.load(Acquire) & GRANTED != 0 || self.try_lock() {
                return true;
            }
            P::back_off(SHORTEST_PAUSE);
            let now = P::now();
            wait.in_vain = now.saturating_sub(start);
            if wait.in_vain >= patience || passed(wait.deadline, || now) {
                let starving = now.saturating_sub(wait.since) >= STARVING;
                return !(starving && now < wait.deadline) && self.withdraw(wait);
            }
        }
    }

    /// Takes the claim back. Returns whether the lock is ours, because it had been granted.
    pub(super) fn withdraw(&self, wait: &mut Wait) -> bool {
        let mut flags = self.flags.load(Relaxed);
        while flags & GRANTED == 0 || C::FAULT == MutexFault::LeakyCancel {
            let withdrawn = without_wish(flags) & !(CLAIMED | CLAIMANT_SLEEPS);
            match self
                .flags
                .compare_exchange(flags, withdrawn, Relaxed, Relaxed)
            {
                Ok(_) => {
                    wait.claimed = false;
                    return false;
                }
                Err(seen) => flags = seen,
            }
        }
        // Acquire pairs with the grant.
        self.flags.load(Acquire) & GRANTED != 0
    }
}
