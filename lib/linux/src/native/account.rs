//! A budget for yields that take long.
//!
//! On a CPU that another thread keeps busy, a yield lasts a whole scheduler slice. A process may
//! spend one part in 32 of its time on such yields.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Yields that last longer than this, in nanoseconds, are charged. A hundred threads that wake,
/// work briefly and sleep again take less; a scheduler's slice takes more.
const LONG: u64 = 500_000;
/// One part in `PART` of the time may be spent on long yields.
const PART: u64 = 32;
/// Nanoseconds that may be spent at once: a few long yields happen by chance, or on a busy host.
const AT_ONCE: u64 = 6_000_000;
/// The most nanoseconds that are charged for one yield: the whole process may have been stopped.
const LONGEST: u64 = 20_000_000;

/// The budget of long yields. Times are nanoseconds of one clock.
pub(super) struct Account {
    /// The moment up to which the budget is spent.
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

    /// Charges a yield that ended at `now` and took `taken`. If two threads charge at once, one
    /// charge may be lost.
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
    fn a_burst_is_covered_and_then_one_part_in_thirty_two() {
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
    fn the_first_few_long_yields_are_covered() {
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
    fn unspent_budget_does_not_accumulate() {
        let account = Account::new();
        account.charge(START, 3 * MS);
        let later = START + 3_600_000 * MS;
        account.charge(later, LONGEST);
        assert!(!account.covers(later));
    }
}
