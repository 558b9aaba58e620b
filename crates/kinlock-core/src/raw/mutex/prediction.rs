//! What a thread knows about the lock that it waits for, and what it remembers of it for its next wait: how the lock is best taken.

/// Where several threads run that take the lock: for how many waits it is taken in turns.
pub(super) const SHARED_BUDGET: u16 = 7;
/// The most waits in which turns are taken before the lock is watched again: one wait in sixteen thousand is longer for it, which no 99.9th percentile notices. And a lock
/// that has begun to cycle fast is known as such after some milliseconds, and some more looks.
pub(super) const MAX_BUDGET: u16 = 16383;

/// In a crowd: for how many waits a thread that has come out of the queue is one of those who take turns. Between two of them that is a millisecond or less, so that each of
/// hundreds of threads has its share of a second; and a seat ends once in two thousand waits, which a 99.9th percentile does not notice.
pub(super) const ACTIVE_WAITS: u16 = 2047;

/// How many long turns end a seat that is not trusted more than that.
const LONG_PICKUPS: u16 = 32;
const LOW_CONFIDENCE: u16 = 3;

/// How a lock is best taken.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct Prediction {
    /// Its holder takes it again within less than a cache line needs to get here: it is left alone for a quantum.
    pub(super) fast: bool,
    /// Threads that run take it in *turns*: as soon as it is free, without learning anything, in so many more waits.
    pub(super) budget: u16,
    /// How many waits a verdict that turns are taken held for last.
    confidence: u16,
}

impl Prediction {
    /// Whether turns are taken, as far as has been seen, be it that it is time for another look.
    pub(super) fn expects_barging(&self) -> bool {
        self.budget > 0 || self.confidence > 0
    }

    /// A turn has been taken; in the wait of a [look](Self::renew) none needs to be left.
    pub(super) fn spend(&mut self) {
        self.budget = self.budget.saturating_sub(1);
    }

    /// In a crowd: has come out of the queue to be one of those who run and take turns.
    pub(super) fn join_active_set(&mut self) {
        if self.confidence > 0 {
            (self.fast, self.budget) = (false, ACTIVE_WAITS);
        }
    }

    /// In a crowd: has looked for long until the lock was granted. Where turns have hardly been more than [presumed](Self::presume_barging) a few such waits end the seat:
    /// perhaps the lock is held nearly always, and then one thread that runs is as good as two. That there are turns is then not presumed any more, or whoever comes out of the
    /// queue next would only ask for [room](super::SHARE), run beside the one that has been there for long, and as likely be the one whose seat ends first.
    pub(super) fn long_pickup(&mut self) {
        if self.confidence <= LOW_CONFIDENCE {
            self.budget = self.budget.saturating_sub(ACTIVE_WAITS / LONG_PICKUPS);
            if self.budget == 0 {
                self.confidence = 0;
            }
        }
    }

    /// In a crowd: makes room for one who has slept, if it has waited since it took its seat: then somebody else runs, too. That turns are taken is not in doubt.
    pub(super) fn give_up_membership(&mut self) {
        if self.budget != ACTIVE_WAITS {
            self.leave_active_set();
        }
    }

    /// In a crowd: queues the next time.
    pub(super) fn leave_active_set(&mut self) {
        self.budget = 0;
    }

    /// In a crowd: the lock was free when it was looked at, and that is all that is known.
    pub(super) fn presume_barging(&mut self) {
        if !self.expects_barging() {
            (self.fast, self.confidence) = (false, 1);
        }
    }

    /// It has been seen that turns are taken: that is believed for four times as many waits as the last time, and three. One such look weighs as much as two that
    /// [doubt](Self::doubt), since turns are worth it where a lock is held for up to two thirds of the time.
    pub(super) fn confirm(&mut self) {
        self.confidence = (self.confidence * 4 + 3).min(MAX_BUDGET);
        (self.fast, self.budget) = (false, self.confidence);
    }

    /// The lock was free and nothing happened: what has been seen before goes on.
    pub(super) fn renew(&mut self) {
        self.budget = self.confidence;
    }

    /// It has been seen that the lock is held most of the time, or for long: then turns cost more than they bring. But one wait may be chance.
    pub(super) fn doubt(&mut self) {
        (self.budget, self.confidence) = (0, self.confidence / 2);
    }

    /// It cycles fast, though turns have been taken. If so each turn is a waste, so that this weighs more.
    pub(super) fn doubt_more(&mut self) {
        (self.budget, self.confidence) = (0, self.confidence / 16);
    }

    /// Several threads run that take the lock. Its line travels anyway, and nothing is gained by keeping off.
    pub(super) fn expect_sharing(&mut self) {
        (self.fast, self.budget) = (false, SHARED_BUDGET);
    }

    /// That of a lock that cycles fast.
    pub(super) const FAST: Self = Prediction {
        fast: true,
        budget: 0,
        confidence: 0,
    };

    /// That of a lock of which nothing is known, but that it shall be taken in so many turns, and then looked at.
    pub(super) const fn barging(budget: u16) -> Self {
        Prediction {
            fast: false,
            budget,
            confidence: 1,
        }
    }
}

/// A habit, and which lock has it, in one word; in zero there is nothing to be believed of any lock.
///
/// Two locks may look the same, or one stand where another stood. Then it is taken as the other would be, for as many waits as the note says.
#[derive(Clone, Copy, Debug)]
pub(super) struct StoredPrediction(pub(super) u32);

/// From the lowest bit: fourteen for `budget`, four for the length of `confidence` in bits, fourteen that name the lock. [`FAST`] is a length that no trust has.
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

    /// What it is after one more turn at this lock; `None` if that is the last one, or none is left, or the note is about another lock.
    #[inline]
    pub(super) fn after_barge(self, lock: *const u32) -> Option<Self> {
        // They are the lowest bits: one less is one turn less.
        let budget = self.0 & MAX_BUDGET as u32;
        (budget > 1 && self.0 >> PREDICTION_BITS == name(lock))
            .then(|| StoredPrediction(self.0 - 1))
    }

    /// What it says about this lock.
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

/// Fourteen bits. Locks stand four bytes apart at least, and often at powers of two: the multiplier is 2^32 over the golden ratio.
#[inline]
fn name(lock: *const u32) -> u32 {
    ((lock.addr() >> 2) as u32).wrapping_mul(0x9E37_79B9) >> PREDICTION_BITS
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const LOCK: *const u32 = core::ptr::without_provenance(0x7f12_3456_7898);

    #[test]
    fn a_note_says_what_was_noted() {
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
    fn a_turn_is_counted_in_the_note_about_its_lock_unless_it_is_the_last() {
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
        // Of a lock that would have the same name as none at all.
        assert!(StoredPrediction(0).after_barge(LOCK).is_none());
        assert!(StoredPrediction(0).after_barge(core::ptr::null()).is_none());
        assert!(
            StoredPrediction::new(LOCK, Prediction::FAST)
                .after_barge(LOCK)
                .is_none()
        );
    }

    /// Fields of arrays, pages, huge pages: what one of them has learned is not for all.
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
    fn a_seat_is_for_so_many_waits_wherever_turns_are_taken() {
        let mut prediction = Prediction::default();
        prediction.join_active_set();
        assert_eq!(prediction, Prediction::default());
        prediction.presume_barging();
        prediction.join_active_set();
        assert_eq!(prediction.budget, ACTIVE_WAITS);
        prediction.give_up_membership();
        assert_eq!(prediction.budget, ACTIVE_WAITS, "nobody else runs");
        prediction.spend();
        prediction.give_up_membership();
        assert_eq!(prediction.budget, 0);
        assert!(prediction.expects_barging());
        prediction.join_active_set();
        prediction.leave_active_set();
        assert_eq!(prediction.budget, 0);
        let mut known = Prediction::default();
        known.confirm();
        let trusted = known;
        known.presume_barging();
        assert_eq!(known, trusted);
    }

    #[test]
    fn long_turns_end_a_seat_that_is_only_presumed() {
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
    fn turns_are_believed_for_longer_each_time_and_then_for_less() {
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
        assert_eq!(prediction.budget, MAX_BUDGET, "one look makes up for two");
        for _ in 0..14 {
            prediction.doubt();
        }
        assert_eq!(prediction, Prediction::default());
    }
}
