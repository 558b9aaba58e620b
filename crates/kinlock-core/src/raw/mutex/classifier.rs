//! The classifier: what samples of the lock say about how fast it cycles, and how it is best taken.
//!
//! A sample is a count of unlocks in a time, and whether the lock was free at the end of it.

use super::prediction::Prediction;
use super::wait::Wait;
use super::*;

/// A lock cycles fast if one cycle takes at most so many nanoseconds: less than a cache line needs
/// for a round trip to a waiter. Where the lock is held most of the time, others rarely get in
/// between, so the limit is higher. Thousands of such cycles fit into a quantum, so fewer than one
/// acquisition in a thousand waits for a quantum.
const FAST_CYCLE: u64 = 60;
const FAST_CYCLE_WHEN_HELD: u64 = 110;
/// How many unlocks a sample must count before it can show a fast cycle.
pub(super) const FAST_UNLOCKS: u64 = 3;
/// What a sample costs the holder at most before the first counted unlock, in nanoseconds: the
/// cache line is away.
const SAMPLING_COST: u64 = 100;
/// Barging pays if a cycle takes at most so many nanoseconds without being fast, and one of the
/// first [`SAMPLES`] samples finds the lock free. The holder is then done soon, and the line can
/// travel before the same thread takes the lock again.
const BARGE_CYCLE: u64 = 400;

/// While oversubscribed, a lock that is taken again within so many nanoseconds is left alone.
const BUSY_CYCLE: u64 = 200;

/// How many samples in a row must find the lock held to conclude that it nearly always is. If it is
/// held seven eighths of the time, two thirds of such series come to that conclusion.
pub(super) const SAMPLES: u8 = 3;
/// A wait beside the queue for a hand-off is a [long pickup](Prediction::long_pickup) from so many
/// nanoseconds on: longer than transfers take, shorter than a critical section of a microsecond.
pub(super) const LONG_PICKUP: u64 = 700;

/// Where unlocks stop counting themselves.
pub(super) const MOST_UNLOCKS: u64 = (UNLOCKS / UNLOCK) as u64;

/// The pause between two samples of an oversubscribed head that decides whether the lock is [mostly
/// free](FreeRule).
pub(super) const FREE_SAMPLE_PAUSE: u64 = 150;
/// So many unlocks in the first of these pauses mean that one thread keeps the lock, since its line
/// cannot have travelled each time. Such a lock looks free half of the time, and is left alone.
const KEPT_UNLOCKS: u64 = 5;

/// The samples that decide whether the lock is mostly free.
#[derive(Default)]
pub(super) struct FreeSamples {
    free: u32,
    taken: u32,
}

impl FreeSamples {
    /// Adds a sample, with the number of unlocks since before the first one. Returns whether the
    /// lock is mostly free, or `None` if that is not decided yet.
    pub(super) fn add(&mut self, free: bool, unlocks: u64, rule: FreeRule) -> Option<bool> {
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
    /// Learns from a sample: `unlocks` in `nanos`, and whether the lock was `free` at the end.
    pub(super) fn classify(&mut self, unlocks: u64, nanos: u64, free: bool) {
        if self.oversubscribed {
            return self.classify_oversubscribed(unlocks, nanos, free);
        }
        let first = self.held_at_first.is_none();
        if first && !free && unlocks == 0 && nanos < BARGE_CYCLE {
            // The same critical section goes on. It may still be a short one.
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
        // Enough samples have decided already. Most waits end with a sample that finds the lock
        // free, so later samples would be biased.
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

    /// The same while oversubscribed. Any lock that its holders keep taking is left alone: all the
    /// threads that it needs already run.
    fn classify_oversubscribed(&mut self, unlocks: u64, nanos: u64, free: bool) {
        let busy = unlocks >= FAST_UNLOCKS || unlocks * BUSY_CYCLE >= nanos;
        // A thread that wakes up to take a sample may take the CPU of the holder. One idle sample
        // after busy ones may be chance.
        self.contradicted = self.busy && !busy && !self.contradicted;
        self.busy = busy || self.contradicted;
        // The count stops at its maximum, so a full one gives no upper bound on the rate.
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

    /// Whether a sample shows that the lock cycles fast. If so, the prediction is updated.
    fn classify_fast(&mut self, unlocks: u64, nanos: u64, free: bool) -> bool {
        let cycle = match *self.held_at_first.get_or_insert(!free) {
            true => FAST_CYCLE_WHEN_HELD,
            false => FAST_CYCLE,
        };
        let fast =
            unlocks >= FAST_UNLOCKS && unlocks * cycle >= nanos.saturating_sub(SAMPLING_COST);
        if fast {
            // A few quick sections in a row can be chance between threads that barge. One wait does
            // not undo what many have shown.
            if !self.prediction.expects_barging() {
                self.prediction = Prediction::FAST;
            } else if self.samples < SAMPLES {
                self.prediction.doubt_more();
            }
            self.samples = SAMPLES;
        }
        fast
    }

    /// A hand-off beside the queue was picked up. A long wait for it tells that the lock is held
    /// for long.
    pub(super) fn picked_up(&mut self) {
        if self.oversubscribed && self.pickup_wait >= LONG_PICKUP {
            self.prediction.long_pickup();
        }
    }

    /// Barging did not work in time. If no sample of this wait has told anything yet, this does:
    /// the lock is held for long.
    pub(super) fn barging_failed(&mut self) {
        if self.samples < SAMPLES {
            self.samples = SAMPLES;
            self.prediction.doubt();
        }
    }

    /// Others have queued meanwhile: several threads run that take the lock. Whether the lock is
    /// held now does not matter.
    pub(super) fn saw_newcomers(&mut self, free: bool) {
        self.prediction.expect_sharing();
        self.held_at_first.get_or_insert(!free);
        self.samples = SAMPLES;
    }
}
