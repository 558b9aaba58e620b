//! At the head of the queue: looking at the lock, leaving one that cycles fast alone for a quantum, and then claiming it.

use super::classifier::{FAST_UNLOCKS, FREE_SAMPLE_PAUSE, FreeSamples, MOST_UNLOCKS, SAMPLES};
use super::wait::{Wait, passed};
use super::*;
use core::mem;

/// When to look at the lock first, in nanoseconds: about when a short critical section is over, ...
pub(super) const FIRST_SAMPLE: u64 = 150;
/// ... where the lock has cycled fast, when it can have done so often enough to be known as fast, ...
const FIRST_SAMPLE_WHEN_FAST: u64 = 400;
/// ... and where more threads wait than there are CPUs: long enough to see a lock being taken again and again, too short for seven unlocks of one that is taken in turns.
const FIRST_SAMPLE_OVERSUBSCRIBED: u64 = 400;
pub(super) const SHORTEST_PAUSE: u64 = 50;
/// For how long a lock that cycles fast is left alone before it is looked at whether it still does: at first, and then twice as long each time. Several threads on several
/// CPUs can make a lock look fast for a moment that nobody needs to be kept off.
const FIRST_REST: u64 = 3_000;

/// How long a head naps between two looks at a lock that cycles fast, while there are more waiters than CPUs: at first, and twice as long each time until so long.
/// Whenever it wakes up somebody else who runs may lose the CPU to it, and that may be the holder; but if those who run go away the lock idles until it
/// does.
pub(super) const FIRST_TIMED_SLEEP: u64 = 200_000;
const LONGEST_TIMED_SLEEP: u64 = 1_000_000;
/// How often a head of a crowd is woken, and finds the lock taken again, before it leaves the lock alone. Once is chance.
const VAIN_WAKEUPS: u8 = 2;

impl<P: Platform, C: MutexConfig> QueuedMutex<P, C> {
    /// Whether whoever has watched it last has seen it cycle fast.
    pub(super) fn cycles_fast(&self) -> bool {
        (self.flags.load(Relaxed) / UNLOCK) as u64 >= FAST_UNLOCKS
    }

    /// Where turns are taken: takes the lock as soon as it is free (`true`), unless that takes so long that it is time to claim it.
    pub(super) fn barge_at_front(&self, wait: &mut Wait) -> bool {
        // Without a clock there would be no end to it.
        if wait.prediction.budget == 0 || wait.oversubscribed || !P::CAN_PARK {
            return false;
        }
        let patience = wait.quantum.min(SHORT_QUANTUM);
        loop {
            let now = P::now();
            let left = patience.saturating_sub(now.saturating_sub(wait.since));
            let left = left.min(wait.deadline.saturating_sub(now));
            let free = P::wait_for(&self.locked, Relaxed, left, |locked| locked == FREE).is_ok();
            if free && self.take() {
                wait.prediction.spend();
                return true;
            }
            if !free || left == 0 {
                wait.barging_failed();
                return false;
            }
        }
    }

    /// Spins near the lock, learning how fast it cycles, until it is taken (`true`), or until nothing happens any more.
    pub(super) fn observe(&self, wait: &mut Wait) -> bool {
        if wait.may_depart() && self.departs_for_free_lock(wait) {
            return false;
        }
        let start = P::now();
        let mut pause = match (wait.oversubscribed, wait.prediction.fast) {
            (true, _) => FIRST_SAMPLE_OVERSUBSCRIBED,
            (false, true) => FIRST_SAMPLE_WHEN_FAST,
            (false, false) => FIRST_SAMPLE,
        };
        let (mut sampled, mut progress) = (start, start);
        let mut counted = 0;
        let (mut rest, mut rested) = (FIRST_REST, false);
        let (mut timed_sleep, mut slept_timed, mut awoken) = (FIRST_TIMED_SLEEP, false, false);
        // Whoever has left its seat while there was no head has left it for us.
        wait.vacancy |= self.has_vacancy(wait);
        if wait.oversubscribed {
            // Who has been woken because the lock was free is not to leave it alone. But if it is taken again each time, this costs every critical section a wake-up.
            let known_as_busy = if wait.slept {
                wait.vain_wakeups >= VAIN_WAKEUPS && self.is_locked()
            } else {
                wait.prediction.fast || wait.prediction.expects_barging()
            };
            wait.busy = known_as_busy && !wait.departs;
        } else {
            // Who knows of no turns is not to believe in them because of a chance: of a head's looks one counts. Where many threads run, more let some starve.
            wait.samples = wait.samples.max(SAMPLES - 1);
        }
        let last = self.spinners.last();
        if wait.departs || wait.vacancy && wait.prediction.expects_barging() {
            pause = 0;
        } else {
            self.start_sample();
        }
        loop {
            P::back_off(pause);
            let free = self.locked.load(Relaxed) == FREE;
            let unlocks = (self.flags.load(Relaxed) / UNLOCK) as u64;
            wait.vacancy |= self.has_vacancy(wait);
            let mut now = P::now();
            wait.paused = wait.paused.saturating_add(pause);
            if unlocks != counted {
                (progress, counted) = (now, unlocks);
            }
            let may_be_turns = !wait.oversubscribed && wait.prediction.budget == 0;
            if may_be_turns && self.spinners.last() != last {
                wait.saw_newcomers(free);
            } else if !rested && !wait.joins && !wait.departs {
                // After a rest nobody has counted for long: that was the beginning of a look. And who has decided to take the lock does not watch it.
                wait.classify(unlocks, now.saturating_sub(sampled).max(pause), free);
            }
            if mem::take(&mut awoken) && wait.may_depart() {
                if self.departs_for_free_lock(wait) {
                    return false;
                }
                // Unlocks have been counted anew, if others have not changed the flags just then.
                (sampled, counted) = (now, 0);
                now = P::now();
            }
            if wait.prediction.budget > 0 {
                if self.barge_at_front(wait) {
                    return true;
                }
                now = P::now();
            }
            // From when we came to the front: who sleeps meanwhile shall not begin anew. Without a clock there are the pauses.
            let waited = now.saturating_sub(wait.since).max(wait.paused);
            let fast = wait.leaves_alone();
            let quantum = match (wait.oversubscribed, fast) {
                (true, _) => wait.quantum * QUANTUM_WHEN_CROWDED,
                (false, true) => wait.quantum,
                (false, false) => wait.quantum.min(SHORT_QUANTUM),
            };
            if wait.vacancy && wait.prediction.expects_barging() && !wait.joins {
                // If not, we have watched since we have seen it: that occupies it as well.
                self.fill_vacancy();
                wait.joins = true;
            }
            let over = waited >= quantum || wait.joins || wait.departs;
            let deserted = (rested || wait.contradicted && !wait.oversubscribed) && unlocks == 0;
            if wait.oversubscribed
                && wait.is_head
                && (wait.joins || free && over && wait.quantum > 0)
            {
                // The next one is woken for it, for some microseconds or in place of us. That is not to happen while we hold the lock.
                if free {
                    wait.prediction.presume_barging();
                }
                wait.departs = true;
                return false;
            }
            if free && (over || !fast || deserted) && self.take() {
                if wait.oversubscribed {
                    wait.prediction.presume_barging();
                }
                return true;
            }
            // Without a quantum nobody has a seat.
            let request_mode = if !wait.oversubscribed || wait.joins || wait.quantum == 0 {
                0
            } else if wait.prediction.expects_barging() {
                SHARE
            } else {
                EXCLUSIVE
            };
            if over && self.request_handoff(wait, request_mode) {
                return self.await_handoff(wait, wait.stalled());
            }
            let leaves_alone = wait.oversubscribed && fast && !over;
            let idle = now.saturating_sub(progress);
            let stalled = !rested && !leaves_alone && idle >= wait.stalled();
            // Among those who take turns a holder has lost its CPU, perhaps to us. Asleep on the word we would be woken at the next unlock, take the CPU again, and so on.
            let steps_back =
                stalled && wait.oversubscribed && wait.prediction.expects_barging() && !slept_timed;
            if stalled && !steps_back || passed(wait.deadline, || now) {
                return false;
            }
            let sleeps_timed = leaves_alone || steps_back;
            if sleeps_timed || !over && !wait.oversubscribed {
                (sampled, counted) = (now, 0);
                self.start_sample();
            }
            let left = quantum.saturating_sub(waited);
            let unsure =
                slept_timed && wait.samples < SAMPLES || free && (slept_timed || wait.contradicted);
            if leaves_alone && unsure {
                // In a nap so much happens that it cannot be counted; and a lock that is free may have been deserted.
                (pause, slept_timed) = (FIRST_SAMPLE_OVERSUBSCRIBED, false);
            } else if sleeps_timed {
                self.pass_wake_up_on(wait);
                let length = if steps_back {
                    timed_sleep
                } else {
                    timed_sleep.min(left)
                };
                self.timed_sleep(length, wait.deadline);
                timed_sleep = (timed_sleep * 2).min(LONGEST_TIMED_SLEEP);
                (pause, slept_timed, awoken) = (0, true, true);
            } else {
                rested = fast && !rested && !wait.contradicted;
                pause = if rested {
                    let this = rest;
                    rest = rest.saturating_mul(2);
                    this.min(left)
                } else if fast {
                    FIRST_SAMPLE_WHEN_FAST.min(left)
                } else if unlocks == MOST_UNLOCKS {
                    // It cycles often, but in how much of that time?
                    FIRST_SAMPLE.min(left)
                } else {
                    (pause * 2).min(left).min(wait.stalled())
                };
                let before_deadline = wait.deadline.saturating_sub(now);
                pause = pause.max(SHORTEST_PAUSE).min(before_deadline);
            }
        }
    }

    /// Whether the head of a crowd [goes](Wait::departs) since the lock is mostly free.
    ///
    /// Where those who run hardly disturb each other nothing is gained by letting others sleep, and a CPU is lost whenever one of those who run is woken late. Then the queue empties
    /// itself, and the scheduler shares the CPUs.
    pub(super) fn departs_for_free_lock(&self, wait: &mut Wait) -> bool {
        // To watch erases what has been announced.
        wait.vacancy |= self.has_vacancy(wait);
        if self.is_mostly_free() {
            wait.prediction.presume_barging();
            wait.departs = true;
            // It needs nobody's seat.
            wait.joins = true;
        }
        wait.vacancy |= self.has_vacancy(wait);
        wait.departs
    }

    /// Looks at the lock for a microsecond or two, to see whether it is mostly free.
    pub(super) fn is_mostly_free(&self) -> bool {
        // If others change the flags now, a later look is as good.
        let Some(rule) = C::FREE_LOOKS.filter(|_| self.start_sample()) else {
            return false;
        };
        let mut found = FreeSamples::default();
        loop {
            P::back_off(FREE_SAMPLE_PAUSE);
            let free = self.locked.load(Relaxed) == FREE;
            let unlocks = (self.flags.load(Relaxed) / UNLOCK) as u64;
            if let Some(mostly_free) = found.add(free, unlocks, rule) {
                return mostly_free;
            }
        }
    }

    /// Has unlocks count themselves from now on. Tried once (`false`: in vain): if somebody else changes the flags, or wishes something, the next look is as good.
    pub(super) fn start_sample(&self) -> bool {
        let flags = self.flags.load(Relaxed);
        let watched = flags & !SAMPLE | SAMPLING;
        request_mode(flags) == 0
            && self
                .flags
                .compare_exchange(flags, watched, Relaxed, Relaxed)
                .is_ok()
    }

    /// Sleeps for a while where nobody wakes us.
    fn timed_sleep(&self, nanos: u64, deadline: u64) {
        let bed = P::AtomicU32::new(0);
        let until = P::now().saturating_add(nanos).min(deadline);
        P::park((&raw const bed).cast(), 0, until, || bed.load(Relaxed));
    }
}
