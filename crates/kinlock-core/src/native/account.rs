//! What a process may spend on yields that take long.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Longer than a hundred threads need that wake up, do something short, and sleep again; shorter than the slice that a scheduler gives to one that computes.
const LONG: u64 = 500_000;
/// One part in so many of the time may be spent on yields that are longer, ...
const PART: u64 = 32;
/// ... and so many nanoseconds at once: a few of them are chance, or a host that had other things to do.
const AT_ONCE: u64 = 6_000_000;
/// None counts for more: the whole process may have been stopped.
const LONGEST: u64 = 20_000_000;

/// An account of long yields. Times are nanoseconds of one clock.
pub(super) struct Account {
    /// Until when all that may be spent has been.
    spent: AtomicU64,
}

impl Account {
    pub(super) const fn new() -> Self {
        Self {
            spent: AtomicU64::new(0),
        }
    }

    /// Whether a yield may begin at `now`.
    pub(super) fn covers(&self, now: u64) -> bool {
        self.spent.load(Relaxed) <= now + AT_ONCE * PART
    }

    /// Counts a yield that has ended at `now` and taken so long. Of two at a time one may be forgotten.
    pub(super) fn charge(&self, now: u64, taken: u64) {
        if taken > LONG {
            let from = self.spent.load(Relaxed).max(now);
            self.spent.store(from + taken.min(LONGEST) * PART, Relaxed);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const START: u64 = 1_000 * MS;

    #[test]
    fn short_yields_cost_nothing() {
        let account = Account::new();
        let mut now = START;
        for _ in 0..1000 {
            assert!(account.covers(now));
            now += LONG;
            account.charge(now, LONG);
        }
        assert_eq!(account.spent.load(Relaxed), 0);
    }

    #[test]
    fn two_slices_at_once_and_then_one_part_in_thirty_two() {
        let account = Account::new();
        let (mut now, mut yielded) = (START, 0);
        while now < START + 10_000 * MS {
            if account.covers(now) {
                now += 3 * MS;
                account.charge(now, 3 * MS);
                yielded += 3 * MS;
            } else {
                now += MS;
            }
        }
        let share = 10_000 * MS / PART;
        assert!(yielded >= share, "{yielded}");
        assert!(yielded <= share + AT_ONCE + 3 * MS, "{yielded}");
    }

    #[test]
    fn the_first_few_are_let_pass() {
        let account = Account::new();
        let passed = (0..10)
            .map(|slice| START + slice * 3 * MS)
            .take_while(|&now| {
                let covered = account.covers(now);
                account.charge(now + 3 * MS, 3 * MS);
                covered
            });
        assert_eq!(passed.count() as u64, AT_ONCE / (3 * MS) + 1);
    }

    #[test]
    fn a_process_that_was_stopped_yields_again_soon() {
        let account = Account::new();
        account.charge(START, 3_600_000 * MS);
        assert!(!account.covers(START));
        assert!(account.covers(START + LONGEST * PART));
    }

    #[test]
    fn what_has_not_been_spent_is_not_saved_up() {
        let account = Account::new();
        account.charge(START, 3 * MS);
        let later = START + 3_600_000 * MS;
        account.charge(later, LONGEST);
        assert!(!account.covers(later));
    }
}
