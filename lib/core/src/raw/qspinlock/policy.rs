//! How a head first tries to get the lock: learned by the heads before it, and passed on with
//! headship.
//!
//! A look at the word before taking the lock costs one more transfer of its cache line. The line
//! comes as shared; the write then has to invalidate the other copies, and newcomers may take the
//! line in between. So if a head has found the lock free at its first try, the next head takes it
//! without a look.
//!
//! A try that comes too early costs as much, since the holder has to fetch the line back for its
//! release. So after a failure the next head pauses first, for a bit longer than the head that
//! failed. After each success the pause is a bit shorter. The pause settles where at most about one
//! try in five fails, whatever the ratio of critical section to hand-off. If sections are so long
//! that pauses do not help, heads look first.
//!
//! | this head | found the lock | the next head |
//! | --- | --- | --- |
//! | `Look` | free at its first look | `Take` after 0 pauses |
//! | `Look` | held | `Look` |
//! | `Take` after n pauses | free | `Take` after n - 1 pauses, at least 0 |
//! | `Take` after n pauses | held | `Take` after n + [`STEP`] pauses, at most [`LONGEST`] |
//! | `Take` after [`LONGEST`] pauses | held | `Look` |
//!
//! `docs/guide/spin.md` compares other rules.

use crate::raw::waiter::APPROACH;

/// The longest pause, in calls of [`Platform::relax`](crate::platform::Platform::relax): as long as
/// a few transfers between caches.
const LONGEST: u8 = 16;
/// How much longer the next head pauses after a failure. Chosen in the simulator, where 2 to 8
/// differ by a few percent.
const STEP: u8 = 4;

/// How a head first tries to get the lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Approach {
    /// The head first looks whether the lock is free.
    Look,
    /// The head takes the lock without a look, after `pauses` pauses.
    Take { pauses: u8 },
}

impl Approach {
    /// Decodes the word that brought headship.
    #[inline]
    pub(super) fn told_in(state: u32) -> Self {
        match state >> APPROACH {
            0 => Approach::Look,
            n => Approach::Take {
                pauses: (n - 1) as u8,
            },
        }
    }

    /// Encodes the approach into that word.
    #[inline]
    pub(super) fn encode(self) -> u32 {
        match self {
            Approach::Look => 0,
            Approach::Take { pauses } => (pauses as u32 + 1) << APPROACH,
        }
    }

    /// The next head's approach, if the lock was free at the first try.
    #[inline]
    pub(super) fn after_success(self) -> Self {
        Approach::Take {
            pauses: match self {
                Approach::Look => 0,
                Approach::Take { pauses } => pauses.saturating_sub(1),
            },
        }
    }

    /// The next head's approach, if the lock was held.
    #[inline]
    pub(super) fn after_failure(self) -> Self {
        match self {
            Approach::Take { pauses } if pauses < LONGEST => Approach::Take {
                pauses: (pauses + STEP).min(LONGEST),
            },
            _ => Approach::Look,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::{PARKED, PENDING, QueuedSpinLock, STEAL, Terms};
    use super::*;
    use crate::Native;
    use crate::platform::{Atomic, Ordering::Relaxed, Platform};
    use crate::raw::Usual;
    use crate::raw::waiter::{ABANDONED, GO, Id, secondary_in};
    use crate::tuning::Tuning;

    #[test]
    fn travels_beside_headship() {
        let last = Id::decode(u16::MAX).unwrap();
        for pauses in 0..=LONGEST {
            let told = Approach::Take { pauses };
            assert_eq!(Approach::told_in(GO | told.encode()), told);
            assert_eq!(secondary_in(GO | told.encode()), None);
            let state = last.encode() as u32 | told.encode();
            assert_eq!(Approach::told_in(state), told);
            assert_eq!(secondary_in(state), Some(last));
            assert!(told.encode() > ABANDONED, "no state of a waiter");
        }
        assert_eq!(Approach::told_in(GO), Approach::Look);
    }

    /// For a lock that becomes free after `free_after` pauses: the share of tries that fail once
    /// heads have learned this, and whether heads still try without a look.
    fn settle(free_after: u8) -> (f64, bool) {
        let mut approach = Approach::Look.after_success();
        let mut failures = 0;
        for step in 0..2_000 {
            let fails = matches!(approach, Approach::Take { pauses } if pauses < free_after);
            approach = match approach {
                // Heads that look first find the lock held.
                Approach::Look => return (1.0, false),
                _ if fails => approach.after_failure(),
                _ => approach.after_success(),
            };
            failures += (fails && step >= 1_000) as u32;
        }
        (failures as f64 / 1_000.0, true)
    }

    #[test]
    fn pauses_settle_where_few_tries_fail() {
        assert_eq!(settle(0), (0.0, true));
        // Near the longest pause, steps are shorter.
        let limit = |free_after: u8| 1.0 / (2 + (LONGEST - free_after).min(STEP - 1)) as f64 + 0.01;
        for free_after in 1..=LONGEST {
            let (failing, blind) = settle(free_after);
            assert!(
                blind && failing <= limit(free_after),
                "{free_after}: {failing}"
            );
        }
    }

    /// For a free lock with this pending byte: whether a head that looks gets it, and the head's
    /// advice.
    fn advice<P: Platform>(pending: u8) -> (bool, Approach) {
        let lock = QueuedSpinLock::<P, Usual>::new();
        lock.pending.store(pending, Relaxed);
        let terms = Terms {
            tuning: Tuning::DEFAULT,
            deadline: Native::now() + 1_000_000,
            oversubscribed: true,
        };
        lock.get(Approach::Look, terms)
    }
    const BLINDLY: Approach = Approach::Take { pauses: 0 };

    #[test]
    fn no_head_goes_before_a_pending_waiter_without_a_look() {
        for rest in [0, PARKED, STEAL, PARKED | STEAL] {
            assert_eq!(advice::<Native>(rest), (true, BLINDLY));
            // A head goes ahead of a pending waiter that sleeps, and waits for one that runs.
            let overtakes = rest & STEAL != 0;
            assert_eq!(
                advice::<Native>(PENDING | rest),
                (overtakes, Approach::Look)
            );
        }
    }

    #[test]
    fn heads_look_first_where_sections_are_long() {
        assert!(!settle(LONGEST + 1).1);
        assert_eq!(Approach::Look.after_failure(), Approach::Look);
    }
}
