//! At the head of the queue: observe the lock, leave a fast one alone for a quantum, then request a
//! hand-off.

use super::classifier::{FAST_UNLOCKS, FREE_SAMPLE_PAUSE, FreeSamples, MOST_UNLOCKS, SAMPLES};
use super::wait::{Wait, passed};
use super::*;
use core::mem;

/// When to take the first sample, in nanoseconds: about when a short critical section is over.
pub(super) const FIRST_SAMPLE: u64 = 150;
/// The same where the lock has cycled fast: by then it can have been unlocked often enough to be
/// recognised as fast.
const FIRST_SAMPLE_WHEN_FAST: u64 = 400;
/// The same while oversubscribed: long enough to see a lock that is taken again and again, too
/// short for seven unlocks of one that is shared by barging.
const FIRST_SAMPLE_OVERSUBSCRIBED: u64 = 400;
pub(super) const SHORTEST_PAUSE: u64 = 50;
/// How long a fast lock is left alone before the next sample: at first, and then twice as long each
/// time. A burst of several threads on several CPUs can look fast for a moment.
const FIRST_REST: u64 = 3_000;

/// How long a head sleeps between two samples of a busy lock while oversubscribed: at first, and
/// twice as long each time up to the limit. Each wake-up may take the CPU from a running thread,
/// which may be the holder. If the running threads go away, the lock idles until the head wakes up.
pub(super) const FIRST_TIMED_SLEEP: u64 = 200_000;
const LONGEST_TIMED_SLEEP: u64 = 1_000_000;
/// How often a head that is woken while oversubscribed loses the race for the lock before it leaves
/// the lock alone. Once may be chance.
const VAIN_WAKEUPS: u8 = 2;

/// One stay at the front.
struct Front {
    /// How long to pause before the next sample, in nanoseconds.
    pause: u64,
    /// When the current sample began.
    began: u64,
    /// When the count of unlocks last changed.
    progress: u64,
    /// The count of unlocks at that time.
    counted: u64,
    /// How long the next rest lasts.
    rest: u64,
    /// Whether the last pause was a rest: a fast lock was left alone, and nothing was counted.
    rested: bool,
    /// How long the next timed sleep lasts.
    sleep: u64,
    /// Whether the last pause was a timed sleep.
    slept: bool,
    /// Whether a timed sleep has just ended.
    awoken: bool,
    /// The last waiter in the queue when the stay began.
    last: u16,
}

/// What one sample has seen.
struct Seen {
    free: bool,
    unlocks: u64,
    now: u64,
}

/// How long the head leaves the lock to others.
struct Restraint {
    fast: bool,
    waited: u64,
    quantum: u64,
}

impl Restraint {
    fn after(wait: &Wait, seen: &Seen) -> Self {
        // The wait counts from the arrival at the front: a sleep in between does not restart it.
        // Where there is no clock, the pauses count.
        let waited = seen.now.saturating_sub(wait.since).max(wait.paused);
        let fast = wait.leaves_alone();
        let quantum = match (wait.oversubscribed, fast) {
            (true, _) => wait.quantum * QUANTUM_WHEN_OVERSUBSCRIBED,
            (false, true) => wait.quantum,
            (false, false) => wait.quantum.min(SHORT_QUANTUM),
        };
        Restraint {
            fast,
            waited,
            quantum,
        }
    }

    fn is_over(&self, wait: &Wait) -> bool {
        self.waited >= self.quantum || wait.joins || wait.departs
    }
}

impl<P: Platform, C: MutexConfig> QueuedMutex<P, C> {
    /// Whether the last sample, by any thread, has seen the lock cycle fast.
    pub(super) fn cycles_fast(&self) -> bool {
        (self.flags.load(Relaxed) / UNLOCK) as u64 >= FAST_UNLOCKS
    }

    /// Where barging pays: takes the lock as soon as it is free (`true`), unless that takes so long
    /// that it is time to request a hand-off.
    pub(super) fn barge_at_front(&self, wait: &mut Wait) -> bool {
        // Without a clock the wait would have no end.
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

    /// Observes the lock until it is taken (`true`), until it is time to sleep (`false`), or until
    /// a head [departs](Wait::departs) (`false`).
    pub(super) fn observe(&self, wait: &mut Wait) -> bool {
        if wait.may_depart() && self.departs_for_free_lock(wait) {
            return false;
        }
        let mut front = self.come_to_front(wait);
        loop {
            P::back_off(front.pause);
            let mut seen = self.sample(wait, &mut front);
            if mem::take(&mut front.awoken) && wait.may_depart() {
                if self.departs_for_free_lock(wait) {
                    return false;
                }
                // The check for a free lock restarts the count, unless others change the flags.
                (front.began, front.counted) = (seen.now, 0);
                seen.now = P::now();
            }
            if wait.prediction.budget > 0 {
                if self.barge_at_front(wait) {
                    return true;
                }
                seen.now = P::now();
            }
            let restraint = Restraint::after(wait, &seen);
            if let Some(taken) = self.act(wait, &front, &seen, &restraint) {
                return taken;
            }
            if !self.pace(wait, &mut front, &seen, &restraint) {
                return false;
            }
        }
    }

    /// Begins to observe.
    fn come_to_front(&self, wait: &mut Wait) -> Front {
        let start = P::now();
        let pause = match (wait.oversubscribed, wait.prediction.fast) {
            (true, _) => FIRST_SAMPLE_OVERSUBSCRIBED,
            (false, true) => FIRST_SAMPLE_WHEN_FAST,
            (false, false) => FIRST_SAMPLE,
        };
        // A member that left the active set while there was no head left its place to this one.
        wait.vacancy |= self.has_vacancy(wait);
        if wait.oversubscribed {
            // A waiter woken on a free lock contends for it. After losing that race twice it leaves
            // the lock alone; otherwise every critical section would pay for a wake-up.
            let known_as_busy = if wait.slept {
                wait.vain_wakeups >= VAIN_WAKEUPS && self.is_locked()
            } else {
                wait.prediction.fast || wait.prediction.expects_barging()
            };
            wait.busy = known_as_busy && !wait.departs;
        } else {
            // Only one of the head's samples counts, so that one chance result is not taken for
            // barging. Where many threads run, more samples would let some of them starve.
            wait.samples = wait.samples.max(SAMPLES - 1);
        }
        let mut front = Front {
            pause,
            began: start,
            progress: start,
            counted: 0,
            rest: FIRST_REST,
            rested: false,
            sleep: FIRST_TIMED_SLEEP,
            slept: false,
            awoken: false,
            last: self.spinners.last(),
        };
        if wait.departs || wait.vacancy && wait.prediction.expects_barging() {
            front.pause = 0;
        } else {
            self.start_sample();
        }
        front
    }

    /// Reads the word once, and learns from it.
    fn sample(&self, wait: &mut Wait, front: &mut Front) -> Seen {
        let free = self.locked.load(Relaxed) == FREE;
        let unlocks = (self.flags.load(Relaxed) / UNLOCK) as u64;
        wait.vacancy |= self.has_vacancy(wait);
        let now = P::now();
        wait.paused = wait.paused.saturating_add(front.pause);
        if unlocks != front.counted {
            (front.progress, front.counted) = (now, unlocks);
        }
        let may_start_barging = !wait.oversubscribed && wait.prediction.budget == 0;
        if may_start_barging && self.spinners.last() != front.last {
            wait.saw_newcomers(free);
        } else if !front.rested && !wait.joins && !wait.departs {
            // Not after a rest: the count stopped long ago. Not by a thread that has decided to
            // take the lock: it starts no samples.
            wait.classify(
                unlocks,
                now.saturating_sub(front.began).max(front.pause),
                free,
            );
        }
        Seen { free, unlocks, now }
    }

    /// Takes the lock, requests a hand-off, or departs, if it is time for that. Returns whether the
    /// lock is taken, or `None` to go on observing.
    fn act(
        &self,
        wait: &mut Wait,
        front: &Front,
        seen: &Seen,
        restraint: &Restraint,
    ) -> Option<bool> {
        if wait.vacancy && wait.prediction.expects_barging() && !wait.joins {
            // This fails if another thread has started a sample since. That fills the vacancy as
            // well.
            self.fill_vacancy();
            wait.joins = true;
        }
        let (free, over) = (seen.free, restraint.is_over(wait));
        let deserted =
            (front.rested || wait.contradicted && !wait.oversubscribed) && seen.unlocks == 0;
        if wait.oversubscribed && wait.is_head && (wait.joins || free && over && wait.quantum > 0) {
            // Leaving the queue wakes the next head, which takes microseconds or this CPU. That
            // must not happen while this thread holds the lock.
            if free {
                wait.prediction.presume_barging();
            }
            wait.departs = true;
            return Some(false);
        }
        if free && (over || !restraint.fast || deserted) && self.take() {
            if wait.oversubscribed {
                wait.prediction.presume_barging();
            }
            return Some(true);
        }
        // Without a quantum there is no active set.
        let mode = if !wait.oversubscribed || wait.joins || wait.quantum == 0 {
            0
        } else if wait.prediction.expects_barging() {
            SHARE
        } else {
            EXCLUSIVE
        };
        (over && self.request_handoff(wait, mode)).then(|| self.await_handoff(wait, wait.stalled()))
    }

    /// Chooses the next pause, or sleeps for a while. `false`: nothing happens any more, or the
    /// time is up.
    fn pace(&self, wait: &mut Wait, front: &mut Front, seen: &Seen, restraint: &Restraint) -> bool {
        let (now, fast, over) = (seen.now, restraint.fast, restraint.is_over(wait));
        let leaves_alone = wait.oversubscribed && fast && !over;
        let idle = now.saturating_sub(front.progress);
        let stalled = !front.rested && !leaves_alone && idle >= wait.stalled();
        // Within the active set a stalled holder has lost its CPU, perhaps to this thread. A waiter
        // asleep on the word would be woken at the next unlock and take the CPU again.
        let steps_back =
            stalled && wait.oversubscribed && wait.prediction.expects_barging() && !front.slept;
        if stalled && !steps_back || passed(wait.deadline, || now) {
            return false;
        }
        let sleeps = leaves_alone || steps_back;
        if sleeps || !over && !wait.oversubscribed {
            (front.began, front.counted) = (now, 0);
            self.start_sample();
        }
        let left = restraint.quantum.saturating_sub(restraint.waited);
        let unsure = front.slept && wait.samples < SAMPLES
            || seen.free && (front.slept || wait.contradicted);
        if leaves_alone && unsure {
            // More unlocks happen in a timed sleep than can be counted, and a free lock may have
            // been deserted.
            (front.pause, front.slept) = (FIRST_SAMPLE_OVERSUBSCRIBED, false);
        } else if sleeps {
            self.pass_wake_up_on(wait);
            let length = if steps_back {
                front.sleep
            } else {
                front.sleep.min(left)
            };
            self.sleep_for(length, wait.deadline);
            front.sleep = (front.sleep * 2).min(LONGEST_TIMED_SLEEP);
            (front.pause, front.slept, front.awoken) = (0, true, true);
        } else {
            front.rested = fast && !front.rested && !wait.contradicted;
            let pause = if front.rested {
                let this = front.rest;
                front.rest = front.rest.saturating_mul(2);
                this.min(left)
            } else if fast {
                FIRST_SAMPLE_WHEN_FAST.min(left)
            } else if seen.unlocks == MOST_UNLOCKS {
                // It cycles often. A short sample tells in how much of the time.
                FIRST_SAMPLE.min(left)
            } else {
                (front.pause * 2).min(left).min(wait.stalled())
            };
            let before_deadline = wait.deadline.saturating_sub(now);
            front.pause = pause.max(SHORTEST_PAUSE).min(before_deadline);
        }
        true
    }

    /// Whether an oversubscribed head [departs](Wait::departs) because the lock is mostly free.
    ///
    /// Threads that hardly disturb each other gain nothing if some of them sleep, and a CPU idles
    /// whenever one of them is woken late. Here the queue drains, and the scheduler shares the
    /// CPUs.
    pub(super) fn departs_for_free_lock(&self, wait: &mut Wait) -> bool {
        // A sample erases an announced vacancy, so the vacancy is read first.
        wait.vacancy |= self.has_vacancy(wait);
        if self.is_mostly_free() {
            wait.prediction.presume_barging();
            wait.departs = true;
            // The thread needs no vacancy.
            wait.joins = true;
        }
        wait.vacancy |= self.has_vacancy(wait);
        wait.departs
    }

    /// Samples the lock for a microsecond or two, to see whether it is mostly free.
    pub(super) fn is_mostly_free(&self) -> bool {
        // If others change the flags now, a later sample is as good.
        let Some(rule) = C::FREE_SAMPLES.filter(|_| self.start_sample()) else {
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

    /// Starts a sample: unlocks count themselves from now on. One try: if another thread changes
    /// the flags, or a request has a mode, the next sample is as good (`false`).
    pub(super) fn start_sample(&self) -> bool {
        let flags = self.flags.load(Relaxed);
        let watched = flags & !SAMPLE | SAMPLING;
        request_mode(flags) == 0
            && self
                .flags
                .compare_exchange(flags, watched, Relaxed, Relaxed)
                .is_ok()
    }

    /// Sleeps for a while at an address where nobody wakes this thread.
    fn sleep_for(&self, nanos: u64, deadline: u64) {
        let bed = P::AtomicU32::new(0);
        let until = P::now().saturating_add(nanos).min(deadline);
        P::park((&raw const bed).cast(), 0, until, || bed.load(Relaxed));
    }
}
