//! What looks at the lock tell: how fast it cycles, and how it is best taken.

use super::prediction::Prediction;
use super::wait::Wait;
use super::*;

/// A lock cycles fast if it is taken and released within so many nanoseconds, less than a cache line needs to get here and back; where it is held most of that time
/// nobody else gets in between, so that it may take longer. Then thousands of critical sections fit into a quantum, and waiting for it is rarer than one in a thousand.
const FAST_CYCLE: u64 = 60;
const FAST_CYCLE_WHEN_HELD: u64 = 110;
/// How many unlocks in a row it takes to believe that.
pub(super) const FAST_UNLOCKS: u64 = 3;
/// What watching costs the holder at most before the first unlock that counts itself, in nanoseconds: the line is away.
const SAMPLING_COST: u64 = 100;
/// A lock that cycles within so many nanoseconds, but not fast, and that was free at one of the first [`SAMPLES`], is taken in turns: a holder is done in a moment, and before it
/// comes back the line can have been here.
const BARGE_CYCLE: u64 = 400;

/// There a lock that is taken again within so many nanoseconds is left alone.
const BUSY_CYCLE: u64 = 200;

/// How many looks at a lock that find it held say that it is held nearly always: where that is seven eighths of the time, two thirds of such series do.
pub(super) const SAMPLES: u8 = 3;
/// How long a claim beside the queue looks in vain for its grant where a turn is one of the [long](Habit::long_turn) ones: longer than transfers take, and shorter than a section
/// of a microsecond.
pub(super) const LONG_PICKUP: u64 = 700;

/// Where unlocks stop counting themselves.
pub(super) const MOST_UNLOCKS: u64 = (UNLOCKS / UNLOCK) as u64;

/// A head of a crowd looks every so many nanoseconds whether the lock is free, until it is clear whether it [mostly is](FreeLooks).
pub(super) const FREE_SAMPLE_PAUSE: u64 = 150;
/// A lock that is unlocked so often in the first of these spans is kept by somebody, since its line cannot have travelled each time. It looks free half of the time, and is left alone.
const KEPT_UNLOCKS: u64 = 5;

/// What looks at a lock have found.
#[derive(Default)]
pub(super) struct FreeSamples {
    free: u32,
    taken: u32,
}

impl FreeSamples {
    /// One look more, and how many unlocks have been counted since before the first: whether the lock is mostly free. `None`: that does not decide it.
    pub(super) fn add(&mut self, free: bool, unlocks: u64, rule: FreeLooks) -> Option<bool> {
        let first = self.free + self.taken == 0;
        if first && unlocks >= KEPT_UNLOCKS {
            Some(false)
        } else if free {
            self.free += 1;
            (self.free >= rule.enough + rule.per_taken * self.taken).then_some(true)
        } else {
            self.taken += 1;
            (self.taken == rule.too_often).then_some(false)
        }
    }
}

impl Wait {
    /// Learns from a look at the lock: so many unlocks in so many nanoseconds, and then it was free or not.
    pub(super) fn classify(&mut self, unlocks: u64, nanos: u64, free: bool) {
        if self.oversubscribed {
            return self.classify_oversubscribed(unlocks, nanos, free);
        }
        let first = self.held_at_first.is_none();
        if first && !free && unlocks == 0 && nanos < BARGE_CYCLE {
            // Still the same critical section, and perhaps a short one.
            return;
        }
        if self.classify_fast(unlocks, nanos, free) {
            self.contradicted = false;
            return;
        }
        if self.prediction.fast && !first && !self.contradicted {
            self.contradicted = true;
            return;
        }
        (self.prediction.fast, self.contradicted) = (false, false);
        // More looks would tell nothing about how much of the time it is held: one that finds it free is mostly the last.
        if self.samples == SAMPLES {
            return;
        }
        self.samples += 1;
        if !free && self.samples == SAMPLES {
            self.prediction.doubt();
        } else if free {
            self.samples = SAMPLES;
            if unlocks == 0 {
                self.prediction.renew();
            } else if unlocks < MOST_UNLOCKS && unlocks * BARGE_CYCLE >= nanos {
                self.prediction.confirm();
            }
        }
    }

    /// The same with more threads than CPUs. There any lock that its holders keep taking is left alone: nobody else who is needed runs.
    fn classify_oversubscribed(&mut self, unlocks: u64, nanos: u64, free: bool) {
        let busy = unlocks >= FAST_UNLOCKS || unlocks * BUSY_CYCLE >= nanos;
        // Whoever wakes up to look may have taken the CPU of the holder, or of all who take it: one such look after others is chance.
        self.contradicted = self.busy && !busy && !self.contradicted;
        self.busy = busy || self.contradicted;
        // As many unlocks as are counted say nothing but that it is not slow.
        if self.classify_fast(unlocks, nanos, free) || unlocks == 0 || unlocks == MOST_UNLOCKS {
            return;
        }
        if self.samples < SAMPLES {
            self.samples += 1;
            if free {
                self.samples = SAMPLES;
                if unlocks * BARGE_CYCLE >= nanos {
                    self.prediction.confirm();
                }
            } else if self.samples == SAMPLES {
                self.prediction.doubt();
            }
        }
    }

    /// Whether a look shows that it cycles fast, which is learned from it then.
    fn classify_fast(&mut self, unlocks: u64, nanos: u64, free: bool) -> bool {
        let cycle = match *self.held_at_first.get_or_insert(!free) {
            true => FAST_CYCLE_WHEN_HELD,
            false => FAST_CYCLE,
        };
        let fast =
            unlocks >= FAST_UNLOCKS && unlocks * cycle >= nanos.saturating_sub(SAMPLING_COST);
        if fast {
            // Between threads that take turns a few quick sections in a row are chance: one wait does not undo what many turns have shown.
            if !self.prediction.expects_barging() {
                self.prediction = Prediction::FAST;
            } else if self.samples < SAMPLES {
                self.prediction.doubt_more();
            }
            self.samples = SAMPLES;
        }
        fast
    }

    /// A turn was granted, after a wait that may tell how long the lock is held.
    pub(super) fn picked_up(&mut self) {
        if self.oversubscribed && self.pickup_wait >= LONG_PICKUP {
            self.prediction.long_pickup();
        }
    }

    /// A turn was not to be had in time. If no look has told anything yet in this wait, this does: the lock is held for long.
    pub(super) fn barging_failed(&mut self) {
        if self.samples < SAMPLES {
            self.samples = SAMPLES;
            self.prediction.doubt();
        }
    }

    /// Others have queued meanwhile: several run that take the lock. Whether it is held now says nothing about that.
    pub(super) fn saw_newcomers(&mut self, free: bool) {
        self.prediction.expect_sharing();
        self.held_at_first.get_or_insert(!free);
        self.samples = SAMPLES;
    }
}
