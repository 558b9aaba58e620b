//! What a thread knows about the lock that it waits for, and what it remembers of it for its next wait: how the lock is best taken.

/// Where several threads run that take the lock: for how many waits it is taken in turns.
pub(super) const SHARED_TURNS: u16 = 7;
/// The most waits in which turns are taken before the lock is watched again: one wait in sixteen thousand is longer for it, which no 99.9th percentile notices. And a lock
/// that has begun to cycle fast is known as such after some milliseconds, and some more looks.
pub(super) const MOST_TURNS: u16 = 16383;

/// In a crowd: for how many waits a thread that has come out of the queue is one of those who take turns. Between two of them that is a millisecond or less, so that each of
/// hundreds of threads has its share of a second; and a seat ends once in two thousand waits, which a 99.9th percentile does not notice.
pub(super) const SEAT: u16 = 2047;

/// How many long turns end a seat that is not trusted more than that.
const LONG_TURNS: u16 = 32;
const HARDLY_TRUSTED: u16 = 3;

/// How a lock is best taken.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct Habit {
    /// Its holder takes it again within less than a cache line needs to get here: it is left alone for a quantum.
    pub(super) fast: bool,
    /// Threads that run take it in *turns*: as soon as it is free, without learning anything, in so many more waits.
    pub(super) turns: u16,
    /// How many waits a verdict that turns are taken held for last.
    trust: u16,
}

impl Habit {
    /// Whether turns are taken, as far as has been seen, be it that it is time for another look.
    pub(super) fn trusts_turns(&self) -> bool {
        self.turns > 0 || self.trust > 0
    }

    /// A turn has been taken; in the wait of a [look](Self::renew) none needs to be left.
    pub(super) fn use_turn(&mut self) {
        self.turns = self.turns.saturating_sub(1);
    }

    /// In a crowd: has come out of the queue to be one of those who run and take turns.
    pub(super) fn take_seat(&mut self) {
        if self.trust > 0 {
            (self.fast, self.turns) = (false, SEAT);
        }
    }

    /// In a crowd: has looked for long until the lock was granted. Where turns have hardly been more than [presumed](Self::presume_turns) a few such waits end the seat:
    /// perhaps the lock is held nearly always, and then one thread that runs is as good as two. That there are turns is then not presumed any more, or whoever comes out of the
    /// queue next would only ask for [room](super::ROOM), run beside the one that has been there for long, and as likely be the one whose seat ends first.
    pub(super) fn long_turn(&mut self) {
        if self.trust <= HARDLY_TRUSTED {
            self.turns = self.turns.saturating_sub(SEAT / LONG_TURNS);
            if self.turns == 0 {
                self.trust = 0;
            }
        }
    }

    /// In a crowd: makes room for one who has slept, if it has waited since it took its seat: then somebody else runs, too. That turns are taken is not in doubt.
    pub(super) fn make_room(&mut self) {
        if self.turns != SEAT {
            self.leave_seat();
        }
    }

    /// In a crowd: queues the next time.
    pub(super) fn leave_seat(&mut self) {
        self.turns = 0;
    }

    /// In a crowd: the lock was free when it was looked at, and that is all that is known.
    pub(super) fn presume_turns(&mut self) {
        if !self.trusts_turns() {
            (self.fast, self.trust) = (false, 1);
        }
    }

    /// It has been seen that turns are taken: that is believed for four times as many waits as the last time, and three. One such look weighs as much as two that
    /// [doubt](Self::doubt), since turns are worth it where a lock is held for up to two thirds of the time.
    pub(super) fn confirm(&mut self) {
        self.trust = (self.trust * 4 + 3).min(MOST_TURNS);
        (self.fast, self.turns) = (false, self.trust);
    }

    /// The lock was free and nothing happened: what has been seen before goes on.
    pub(super) fn renew(&mut self) {
        self.turns = self.trust;
    }

    /// It has been seen that the lock is held most of the time, or for long: then turns cost more than they bring. But one wait may be chance.
    pub(super) fn doubt(&mut self) {
        (self.turns, self.trust) = (0, self.trust / 2);
    }

    /// It cycles fast, though turns have been taken. If so each turn is a waste, so that this weighs more.
    pub(super) fn doubt_more(&mut self) {
        (self.turns, self.trust) = (0, self.trust / 16);
    }

    /// Several threads run that take the lock. Its line travels anyway, and nothing is gained by keeping off.
    pub(super) fn share(&mut self) {
        (self.fast, self.turns) = (false, SHARED_TURNS);
    }

    /// That of a lock that cycles fast.
    pub(super) const FAST: Self = Habit {
        fast: true,
        turns: 0,
        trust: 0,
    };

    /// That of a lock of which nothing is known, but that it shall be taken in so many turns, and then looked at.
    pub(super) const fn turns(turns: u16) -> Self {
        Habit {
            fast: false,
            turns,
            trust: 1,
        }
    }
}

/// A habit, and which lock has it, in one word; in zero there is nothing to be believed of any lock.
///
/// Two locks may look the same, or one stand where another stood. Then it is taken as the other would be, for as many waits as the note says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Note(pub(super) u32);

/// From the lowest bit: fourteen for `turns`, four for the length of `trust` in bits, fourteen that name the lock. [`FAST`] is a length that no trust has.
const TURN_BITS: u32 = 14;
const HABIT_BITS: u32 = 18;
const FAST: u32 = 15;
const _: () =
    assert!(MOST_TURNS == (1 << TURN_BITS) - 1 && SHARED_TURNS <= MOST_TURNS && SEAT <= MOST_TURNS);
const _: () = assert!(MOST_TURNS <= (u16::MAX - 3) / 4, "see `confirm`");
const _: () = assert!(TURN_BITS < FAST && FAST < 1 << (HABIT_BITS - TURN_BITS));

impl Note {
    pub(super) fn new(lock: *const u32, habit: Habit) -> Self {
        let length = if habit.fast {
            FAST
        } else {
            u16::BITS - habit.trust.leading_zeros()
        };
        Note(name(lock) << HABIT_BITS | length << TURN_BITS | habit.turns.min(MOST_TURNS) as u32)
    }

    /// What it is after one more turn at this lock; `None` if that is the last one, or none is left, or the note is about another lock.
    #[inline]
    pub(super) fn after_a_turn(self, lock: *const u32) -> Option<Self> {
        // They are the lowest bits: one less is one turn less.
        let turns = self.0 & MOST_TURNS as u32;
        (turns > 1 && self.0 >> HABIT_BITS == name(lock)).then(|| Note(self.0 - 1))
    }

    /// What it says about this lock.
    pub(super) fn about(self, lock: *const u32) -> Option<Habit> {
        let length = self.0 >> TURN_BITS & 15;
        if self.0 == 0 || self.0 >> HABIT_BITS != name(lock) {
            None
        } else if length == FAST {
            Some(Habit::FAST)
        } else {
            Some(Habit {
                fast: false,
                turns: self.0 as u16 & MOST_TURNS,
                trust: (1 << length) - 1,
            })
        }
    }
}

/// Fourteen bits. Locks stand four bytes apart at least, and often at powers of two: the multiplier is 2^32 over the golden ratio.
#[inline]
fn name(lock: *const u32) -> u32 {
    ((lock.addr() >> 2) as u32).wrapping_mul(0x9E37_79B9) >> HABIT_BITS
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const LOCK: *const u32 = core::ptr::without_provenance(0x7f12_3456_7898);

    #[test]
    fn a_note_says_what_was_noted() {
        let mut habits = vec![Habit::default(), Habit::FAST];
        let mut turns = Habit::default();
        for _ in 0..16 {
            turns.confirm();
            habits.push(turns);
            turns.turns -= 1;
            habits.push(turns);
            let mut shared = turns;
            shared.share();
            assert_eq!((shared.fast, shared.turns), (false, SHARED_TURNS));
            habits.push(shared);
        }
        for habit in habits {
            let note = Note::new(LOCK, habit);
            assert_eq!(note.about(LOCK), Some(habit));
            assert_eq!(note.about(LOCK.wrapping_add(1)), None);
        }
        assert_eq!(Note(0).about(LOCK), None);
        assert_eq!(Note(0).about(core::ptr::null()), None);
    }

    #[test]
    fn a_turn_is_counted_in_the_note_about_its_lock_unless_it_is_the_last() {
        for (turns, left) in [
            (0, None),
            (1, None),
            (2, Some(1)),
            (MOST_TURNS, Some(MOST_TURNS - 1)),
        ] {
            let note = Note::new(LOCK, Habit::turns(turns));
            let after = note.after_a_turn(LOCK).map(|after| after.about(LOCK));
            assert_eq!(after, left.map(|left| Some(Habit::turns(left))));
            assert!(note.after_a_turn(LOCK.wrapping_add(1)).is_none());
        }
        // Of a lock that would have the same name as none at all.
        assert!(Note(0).after_a_turn(LOCK).is_none());
        assert!(Note(0).after_a_turn(core::ptr::null()).is_none());
        assert!(Note::new(LOCK, Habit::FAST).after_a_turn(LOCK).is_none());
    }

    /// Fields of arrays, pages, huge pages: what one of them has learned is not for all.
    #[test]
    fn locks_at_powers_of_two_apart_are_told_apart() {
        for bits in 2..32 {
            let other = LOCK.wrapping_byte_add(1 << bits);
            assert_eq!(Note::new(LOCK, Habit::FAST).about(other), None, "2^{bits}");
        }
    }

    #[test]
    fn a_seat_is_for_so_many_waits_wherever_turns_are_taken() {
        let mut habit = Habit::default();
        habit.take_seat();
        assert_eq!(habit, Habit::default());
        habit.presume_turns();
        habit.take_seat();
        assert_eq!(habit.turns, SEAT);
        habit.make_room();
        assert_eq!(habit.turns, SEAT, "nobody else runs");
        habit.use_turn();
        habit.make_room();
        assert_eq!(habit.turns, 0);
        assert!(habit.trusts_turns());
        habit.take_seat();
        habit.leave_seat();
        assert_eq!(habit.turns, 0);
        let mut known = Habit::default();
        known.confirm();
        let trusted = known;
        known.presume_turns();
        assert_eq!(known, trusted);
    }

    #[test]
    fn long_turns_end_a_seat_that_is_only_presumed() {
        let mut presumed = Habit::default();
        presumed.presume_turns();
        presumed.take_seat();
        let mut seen = Habit::default();
        seen.confirm();
        seen.confirm();
        seen.take_seat();
        for _ in 0..=LONG_TURNS {
            assert!(presumed.turns > 0);
            presumed.long_turn();
            seen.long_turn();
        }
        assert_eq!((presumed.turns, seen.turns), (0, SEAT));
        assert!(
            !presumed.trusts_turns(),
            "the next time it asks to be alone"
        );
    }

    #[test]
    fn turns_are_believed_for_longer_each_time_and_then_for_less() {
        let mut habit = Habit::FAST;
        for believed in [3, 15, 63, 255, 1023, 4095, MOST_TURNS, MOST_TURNS] {
            habit.confirm();
            assert_eq!((habit.fast, habit.turns), (false, believed));
        }
        for _ in 0..2 {
            habit.doubt();
            assert_eq!(habit.turns, 0, "watched in the next wait");
        }
        habit.confirm();
        assert_eq!(habit.turns, MOST_TURNS, "one look makes up for two");
        for _ in 0..14 {
            habit.doubt();
        }
        assert_eq!(habit, Habit::default());
    }
}
