//! Predictions: what a thread has learned about a lock, and stores for its next wait for it.
//!
//! A prediction is raised when samples confirm it and lowered when they contradict it. Nothing here
//! touches the lock.

/// The barging budget where several running threads take the lock.
pub(super) const SHARED_BUDGET: u16 = 7;
/// The largest budget: barges between two samples. One wait in sixteen thousand is then longer,
/// which no 99.9th percentile shows. A lock that has begun to cycle fast is recognised after some
/// milliseconds and a few more samples.
pub(super) const MAX_BUDGET: u16 = 16383;

/// While oversubscribed: how many waits a thread stays in the active set after it has left the
/// queue. Two members need a millisecond or less for that, so each of hundreds of threads has its
/// share of a second. A membership ends once in two thousand waits, which no 99.9th percentile
/// shows.
pub(super) const ACTIVE_WAITS: u16 = 2047;

/// How many long pickups end a membership whose confidence is at most [`LOW_CONFIDENCE`].
const LONG_PICKUPS: u16 = 32;
const LOW_CONFIDENCE: u16 = 3;

/// How a lock is best taken.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct Prediction {
    /// The lock cycles fast: its holder takes it again before the cache line can get here. It is
    /// left alone for a quantum.
    pub(super) fast: bool,
    /// The *barging budget*: in how many more waits the thread barges, without learning anything.
    pub(super) budget: u16,
    /// The budget that the last samples were good for; 0 if barging is not expected to pay.
    confidence: u16,
}

impl Prediction {
    /// Whether barging is expected to pay, even if it is time for another sample.
    pub(super) fn expects_barging(&self) -> bool {
        self.budget > 0 || self.confidence > 0
    }

    /// A barge has taken the lock. In a wait that [samples](Self::renew) the budget may already be
    /// spent.
    pub(super) fn spend(&mut self) {
        self.budget = self.budget.saturating_sub(1);
    }

    /// While oversubscribed: the thread has left the queue and joins the active set.
    pub(super) fn join_active_set(&mut self) {
        if self.confidence > 0 {
            (self.fast, self.budget) = (false, ACTIVE_WAITS);
        }
    }

    /// While oversubscribed: the thread has spun for long until it was handed the lock.
    ///
    /// At low confidence a few such waits end the membership: the lock may be held nearly always,
    /// and then one running thread achieves as much as two. Barging is then not expected either.
    /// Otherwise the next head would request only [`SHARE`](super::SHARE) and run beside the older
    /// member, and each of the two would be as likely to be the one that leaves.
    pub(super) fn long_pickup(&mut self) {
        if self.confidence <= LOW_CONFIDENCE {
            self.budget = self.budget.saturating_sub(ACTIVE_WAITS / LONG_PICKUPS);
            if self.budget == 0 {
                self.confidence = 0;
            }
        }
    }

    /// While oversubscribed: gives up the membership for a thread that has slept, if this thread
    /// has waited since it joined. Other members exist then. Barging is still expected.
    pub(super) fn give_up_if_contended(&mut self) {
        if self.budget != ACTIVE_WAITS {
            self.leave_active_set();
        }
    }

    /// While oversubscribed: queues at the next wait.
    pub(super) fn leave_active_set(&mut self) {
        self.budget = 0;
    }

    /// While oversubscribed: a sample found the lock free, and nothing else is known.
    pub(super) fn presume_barging(&mut self) {
        if !self.expects_barging() {
            (self.fast, self.confidence) = (false, 1);
        }
    }

    /// A sample has shown that barging pays. The budget becomes four times the last one, plus
    /// three. One such sample outweighs two that [doubt](Self::doubt), since barging pays where a
    /// lock is held for up to two thirds of the time.
    pub(super) fn confirm(&mut self) {
        self.confidence = (self.confidence * 4 + 3).min(MAX_BUDGET);
        (self.fast, self.budget) = (false, self.confidence);
    }

    /// The lock was free and nothing happened: the last confidence holds.
    pub(super) fn renew(&mut self) {
        self.budget = self.confidence;
    }

    /// Samples have shown that the lock is held most of the time, or for long, where barging costs
    /// more than it brings. One wait may be chance.
    pub(super) fn doubt(&mut self) {
        (self.budget, self.confidence) = (0, self.confidence / 2);
    }

    /// The lock cycles fast although barging was expected. Each barge would be a waste, so this
    /// weighs more than [`doubt`](Self::doubt).
    pub(super) fn doubt_more(&mut self) {
        (self.budget, self.confidence) = (0, self.confidence / 16);
    }

    /// Several running threads take the lock. Its line travels anyway, so nothing is gained by
    /// leaving it alone.
    pub(super) fn expect_sharing(&mut self) {
        (self.fast, self.budget) = (false, SHARED_BUDGET);
    }

    /// The prediction for a lock that cycles fast.
    pub(super) const FAST: Self = Prediction {
        fast: true,
        budget: 0,
        confidence: 0,
    };

    /// The prediction for an unknown lock that is to be taken by barging so many times before the
    /// first sample.
    pub(super) const fn barging(budget: u16) -> Self {
        Prediction {
            fast: false,
            budget,
            confidence: 1,
        }
    }
}

/// A prediction and the lock it is about, in one word. Zero predicts nothing for any lock.
///
/// Two locks may have the same name, or one may stand where another stood. The second one is then
/// treated as the first, until the budget is spent.
#[derive(Clone, Copy, Debug)]
pub(super) struct StoredPrediction(pub(super) u32);

/// From the lowest bit: fourteen for the budget, four for the length of the confidence in bits,
/// fourteen for the name of the lock. [`FAST`] is a length that no confidence has.
const BUDGET_BITS: u32 = 14;
const PREDICTION_BITS: u32 = 18;
const FAST: u32 = 15;
const _: () = assert!(
    MAX_BUDGET == (1 << BUDGET_BITS) - 1
        && SHARED_BUDGET <= MAX_BUDGET
        && ACTIVE_WAITS <= MAX_BUDGET
);
const _: () = assert!(MAX_BUDGET <= (u16::MAX - 3) / 4, "see `confirm`");
const _: () = assert!(BUDGET_BITS < FAST && FAST < 1 << (PREDICTION_BITS - BUDGET_BITS));

impl StoredPrediction {
    pub(super) fn new(lock: *const u32, prediction: Prediction) -> Self {
        let length = if prediction.fast {
            FAST
        } else {
            u16::BITS - prediction.confidence.leading_zeros()
        };
        StoredPrediction(
            name(lock) << PREDICTION_BITS
                | length << BUDGET_BITS
                | prediction.budget.min(MAX_BUDGET) as u32,
        )
    }

    /// The word after one more barge for this lock. `None` if that spends the budget, if it is
    /// spent already, or if the word is about another lock.
    #[inline]
    pub(super) fn after_barge(self, lock: *const u32) -> Option<Self> {
        // The budget is in the lowest bits, so one less is one barge less.
        let budget = self.0 & MAX_BUDGET as u32;
        (budget > 1 && self.0 >> PREDICTION_BITS == name(lock))
            .then(|| StoredPrediction(self.0 - 1))
    }

    /// The prediction for this lock, if it is about this lock.
    pub(super) fn for_lock(self, lock: *const u32) -> Option<Prediction> {
        let length = self.0 >> BUDGET_BITS & 15;
        if self.0 == 0 || self.0 >> PREDICTION_BITS != name(lock) {
            None
        } else if length == FAST {
            Some(Prediction::FAST)
        } else {
            Some(Prediction {
                fast: false,
                budget: self.0 as u16 & MAX_BUDGET,
                confidence: (1 << length) - 1,
            })
        }
    }
}

/// Fourteen bits. Locks are at least four bytes apart, and often powers of two: the multiplier is
/// 2^32 over the golden ratio.
#[inline]
fn name(lock: *const u32) -> u32 {
    ((lock.addr() >> 2) as u32).wrapping_mul(0x9E37_79B9) >> PREDICTION_BITS
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const LOCK: *const u32 = core::ptr::without_provenance(0x7f12_3456_7898);

    #[test]
    fn a_stored_prediction_reads_back() {
        let mut predictions = vec![Prediction::default(), Prediction::FAST];
        let mut budget = Prediction::default();
        for _ in 0..16 {
            budget.confirm();
            predictions.push(budget);
            budget.budget -= 1;
            predictions.push(budget);
            let mut shared = budget;
            shared.expect_sharing();
            assert_eq!((shared.fast, shared.budget), (false, SHARED_BUDGET));
            predictions.push(shared);
        }
        for prediction in predictions {
            let cell = StoredPrediction::new(LOCK, prediction);
            assert_eq!(cell.for_lock(LOCK), Some(prediction));
            assert_eq!(cell.for_lock(LOCK.wrapping_add(1)), None);
        }
        assert_eq!(StoredPrediction(0).for_lock(LOCK), None);
        assert_eq!(StoredPrediction(0).for_lock(core::ptr::null()), None);
    }

    #[test]
    fn a_barge_is_counted_for_its_lock_unless_it_is_the_last() {
        for (budget, left) in [
            (0, None),
            (1, None),
            (2, Some(1)),
            (MAX_BUDGET, Some(MAX_BUDGET - 1)),
        ] {
            let cell = StoredPrediction::new(LOCK, Prediction::barging(budget));
            let after = cell.after_barge(LOCK).map(|after| after.for_lock(LOCK));
            assert_eq!(after, left.map(|left| Some(Prediction::barging(left))));
            assert!(cell.after_barge(LOCK.wrapping_add(1)).is_none());
        }
        // For a lock with the same name as none at all.
        assert!(StoredPrediction(0).after_barge(LOCK).is_none());
        assert!(StoredPrediction(0).after_barge(core::ptr::null()).is_none());
        assert!(
            StoredPrediction::new(LOCK, Prediction::FAST)
                .after_barge(LOCK)
                .is_none()
        );
    }

    /// Fields of arrays, pages, huge pages: a prediction for one lock must not serve all.
    #[test]
    fn locks_at_powers_of_two_apart_are_told_apart() {
        for bits in 2..32 {
            let other = LOCK.wrapping_byte_add(1 << bits);
            assert_eq!(
                StoredPrediction::new(LOCK, Prediction::FAST).for_lock(other),
                None,
                "2^{bits}"
            );
        }
    }

    #[test]
    fn membership_lasts_for_so_many_waits_where_barging_is_expected() {
        let mut prediction = Prediction::default();
        prediction.join_active_set();
        assert_eq!(prediction, Prediction::default());
        prediction.presume_barging();
        prediction.join_active_set();
        assert_eq!(prediction.budget, ACTIVE_WAITS);
        prediction.give_up_if_contended();
        assert_eq!(prediction.budget, ACTIVE_WAITS, "nobody else runs");
        prediction.spend();
        prediction.give_up_if_contended();
        assert_eq!(prediction.budget, 0);
        assert!(prediction.expects_barging());
        prediction.join_active_set();
        prediction.leave_active_set();
        assert_eq!(prediction.budget, 0);
        let mut known = Prediction::default();
        known.confirm();
        let confident = known;
        known.presume_barging();
        assert_eq!(known, confident);
    }

    #[test]
    fn long_pickups_end_a_membership_of_low_confidence() {
        let mut presumed = Prediction::default();
        presumed.presume_barging();
        presumed.join_active_set();
        let mut seen = Prediction::default();
        seen.confirm();
        seen.confirm();
        seen.join_active_set();
        for _ in 0..=LONG_PICKUPS {
            assert!(presumed.budget > 0);
            presumed.long_pickup();
            seen.long_pickup();
        }
        assert_eq!((presumed.budget, seen.budget), (0, ACTIVE_WAITS));
        assert!(
            !presumed.expects_barging(),
            "the next time it asks to be alone"
        );
    }

    #[test]
    fn confidence_grows_each_time_and_then_falls() {
        let mut prediction = Prediction::FAST;
        for believed in [3, 15, 63, 255, 1023, 4095, MAX_BUDGET, MAX_BUDGET] {
            prediction.confirm();
            assert_eq!((prediction.fast, prediction.budget), (false, believed));
        }
        for _ in 0..2 {
            prediction.doubt();
            assert_eq!(prediction.budget, 0, "watched in the next wait");
        }
        prediction.confirm();
        assert_eq!(prediction.budget, MAX_BUDGET, "one sample makes up for two");
        for _ in 0..14 {
            prediction.doubt();
        }
        assert_eq!(prediction, Prediction::default());
    }
}
