//! What a thread knows about the lock that it waits for, and what it remembers of it for its next wait: how the lock is best taken.

/// Where several threads run that take the lock: for how many waits it is taken in turns.
pub(super) const SHARED_TURNS: u16 = 7;
/// The most waits in which turns are taken before the lock is watched again: then one wait in four thousand is, which no 99.9th percentile notices, and a lock that has
/// begun to cycle fast is known as such after some milliseconds.
pub(super) const MOST_TURNS: u16 = 4095;

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
    /// It has been seen that turns are taken: that is believed for twice as many waits as the last time, and one.
    pub(super) fn confirm(&mut self) {
        self.trust = (self.trust * 2 + 1).min(MOST_TURNS);
        (self.fast, self.turns) = (false, self.trust);
    }

    /// It has been seen that the lock is held most of the time: then turns cost more than they bring.
    pub(super) fn doubt(&mut self) {
        (self.turns, self.trust) = (0, self.trust / 2);
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

    /// That of a lock of which nothing is known, but that it shall be taken in so many turns.
    pub(super) const fn turns(turns: u16) -> Self {
        Habit {
            fast: false,
            turns,
            trust: 0,
        }
    }
}

/// A habit, and which lock has it, in one word; in zero there is nothing to be believed of any lock.
///
/// Two locks may look the same. Then one is taken as the other would be, for some waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Note(pub(super) u32);

/// From the lowest bit: twelve for `turns`, four for the length of `trust` in bits, sixteen that name the lock. [`FAST`] is a length that no trust has.
const TURN_BITS: u32 = 12;
const HABIT_BITS: u32 = 16;
const FAST: u32 = 15;
const _: () = assert!(MOST_TURNS == (1 << TURN_BITS) - 1 && SHARED_TURNS <= MOST_TURNS);
const _: () = assert!(TURN_BITS < FAST && FAST < 1 << (HABIT_BITS - TURN_BITS));

impl Note {
    pub(super) fn new(lock: *const u32, habit: Habit) -> Self {
        let length = if habit.fast {
            FAST
        } else {
            u16::BITS - habit.trust.leading_zeros()
        };
        Note(name(lock) << HABIT_BITS | length << TURN_BITS | habit.turns as u32)
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

/// Sixteen bits. Locks stand four bytes apart at least, and often at powers of two: the multiplier is 2^32 over the golden ratio.
fn name(lock: *const u32) -> u32 {
    ((lock.addr() >> 2) as u32).wrapping_mul(0x9E37_79B9) >> 16
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const LOCK: *const u32 = core::ptr::without_provenance(0x7f12_3456_7898);

    #[test]
    fn a_note_says_what_was_noted() {
        let mut habits = vec![Habit::default(), Habit::FAST];
        let mut turns = Habit::default();
        for _ in 0..14 {
            turns.confirm();
            habits.push(turns);
            turns.turns -= 1;
            habits.push(turns);
            let mut shared = turns;
            shared.share();
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
    fn turns_are_believed_for_longer_each_time_and_then_for_less() {
        let mut habit = Habit::FAST;
        let mut believed = Vec::new();
        for _ in 0..13 {
            habit.confirm();
            believed.push(habit.turns);
        }
        assert!(!habit.fast);
        let doubling = [1, 3, 7, 15, 31, 63, 127, 255, 511, 1023, 2047, 4095, 4095];
        assert_eq!(believed, doubling);
        habit.doubt();
        assert_eq!(habit.turns, 0, "watched in the next wait");
        habit.confirm();
        assert_eq!(habit.turns, 4095, "doubt and trust weigh the same");
        for _ in 0..12 {
            habit.doubt();
        }
        assert_eq!(habit, Habit::default());
    }
}
