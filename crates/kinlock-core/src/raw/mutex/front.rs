//! At the head of the queue: looking at the lock, leaving one that cycles fast alone for a quantum, and then claiming it.

use super::judge::{FAST_UNLOCKS, FREE_LOOK, Found, LOOKS, MOST_UNLOCKS};
use super::wait::{Wait, passed};
use super::*;
use core::mem;

/// When to look at the lock first, in nanoseconds: about when a short critical section is over, ...
pub(super) const FIRST_LOOK: u64 = 150;
/// ... where the lock has cycled fast, when it can have done so often enough to be known as fast, ...
const FIRST_LOOK_WHEN_FAST: u64 = 400;
/// ... and where more threads wait than there are CPUs: long enough to see a lock being taken again and again, too short for seven unlocks of one that is taken in turns.
const FIRST_LOOK_WHEN_CROWDED: u64 = 400;
pub(super) const SHORTEST_PAUSE: u64 = 50;
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

impl<P: Platform, C: MutexConfig> QueuedMutex<P, C> {
    /// Whether whoever has watched it last has seen it cycle fast.
    pub(super) fn cycles_fast(&self) -> bool {
        (self.flags.load(Relaxed) / UNLOCK) as u64 >= FAST_UNLOCKS
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
        if wait.may_go() && self.goes_for_a_free_lock(wait) {
            return false;
        }
        let start = P::now();
        let mut pause = match (wait.crowded, wait.habit.fast) {
            (true, _) => FIRST_LOOK_WHEN_CROWDED,
            (false, true) => FIRST_LOOK_WHEN_FAST,
            (false, false) => FIRST_LOOK,
        };
        let (mut looked, mut progress) = (start, start);
        let mut counted = 0;
        let (mut rest, mut rested) = (FIRST_REST, false);
        let (mut nap, mut napped, mut awoken) = (FIRST_NAP, false, false);
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
            if mem::take(&mut awoken) && wait.may_go() {
                if self.goes_for_a_free_lock(wait) {
                    return false;
                }
                // Unlocks have been counted anew, if others have not changed the flags just then.
                (looked, counted) = (now, 0);
                now = P::now();
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
                (pause, napped, awoken) = (0, true, true);
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

    /// Whether the head of a crowd [goes](Wait::goes) since the lock is mostly free.
    ///
    /// Where those who run hardly disturb each other nothing is gained by letting others sleep, and a CPU is lost whenever one of those who run is woken late. Then the queue empties
    /// itself, and the scheduler shares the CPUs.
    pub(super) fn goes_for_a_free_lock(&self, wait: &mut Wait) -> bool {
        // To watch erases what has been announced.
        wait.room |= self.has_room(wait);
        if self.is_mostly_free() {
            wait.habit.presume_turns();
            wait.goes = true;
            // It needs nobody's seat.
            wait.enters = true;
        }
        wait.room |= self.has_room(wait);
        wait.goes
    }

    /// Looks at the lock for a microsecond or two, to see whether it is mostly free.
    pub(super) fn is_mostly_free(&self) -> bool {
        // If others change the flags now, a later look is as good.
        let Some(rule) = C::FREE_LOOKS.filter(|_| self.watch()) else {
            return false;
        };
        let mut found = Found::default();
        loop {
            P::back_off(FREE_LOOK);
            let free = self.locked.load(Relaxed) == FREE;
            let unlocks = (self.flags.load(Relaxed) / UNLOCK) as u64;
            if let Some(mostly_free) = found.learn(free, unlocks, rule) {
                return mostly_free;
            }
        }
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
}
