//! How a head first tries to get the lock: learned by the heads before it, and passed on with headship.
//!
//! A look at the word before taking the lock costs a transfer of its cache line more than taking it blindly: the line comes
//! as others may have it too, who have to be told before it is written to, and newcomers come in between. So where the last
//! head found the lock free at its first try, the next one shall take it without a look.
//!
//! If that comes too early it costs as much, since the holder has to fetch the line back for its release. So a head that failed has the next one pause first, for a bit longer than
//! itself; each success makes the pause a bit shorter. That settles where at most about one try in five fails, however long sections
//! are compared with hand-offs. If they are so long that pausing does not help, heads look first, as the waiters of any polite lock do.

use crate::raw::waiter::APPROACH;

/// The longest pause worth making, in calls of [`Platform::relax`](crate::platform::Platform::relax): some transfers between caches.
const LONGEST: u8 = 16;
/// How much longer the next head pauses after a failure. Chosen in the simulator, where 2 to 8 differ by a few percent.
const STEP: u8 = 4;

/// How a head first tries to get the lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Approach {
    /// It looks whether the lock is free.
    Look,
    /// It takes it without a look, after so many pauses.
    Take { pauses: u8 },
}

impl Approach {
    /// What the granter said, in the word by which headship came.
    #[inline]
    pub(super) fn told_in(state: u32) -> Self {
        match state >> APPROACH {
            0 => Approach::Look,
            n => Approach::Take {
                pauses: (n - 1) as u8,
            },
        }
    }

    /// As said in that word.
    #[inline]
    pub(super) fn encode(self) -> u32 {
        match self {
            Approach::Look => 0,
            Approach::Take { pauses } => (pauses as u32 + 1) << APPROACH,
        }
    }

    /// For the next head, if this way the lock was found free at the first try.
    #[inline]
    pub(super) fn after_success(self) -> Self {
        Approach::Take {
            pauses: match self {
                Approach::Look => 0,
                Approach::Take { pauses } => pauses.saturating_sub(1),
            },
        }
    }

    /// For the next head, if it was held.
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
    use super::super::{Config, Fault, PARKED, PENDING, QueuedSpinLock, STEAL};
    use super::*;
    use crate::Native;
    use crate::platform::Ordering::Relaxed;
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

    /// Where the lock becomes free after so many pauses, the share of tries that fail once that has been learned, and whether heads still try blindly.
    fn settle(free_after: u8) -> (f64, bool) {
        let mut approach = Approach::Look.after_success();
        let mut failures = 0;
        for turn in 0..2_000 {
            let fails = matches!(approach, Approach::Take { pauses } if pauses < free_after);
            approach = match approach {
                // Heads that look first find a lock that is held.
                Approach::Look => return (1.0, false),
                _ if fails => approach.after_failure(),
                _ => approach.after_success(),
            };
            failures += (fails && turn >= 1_000) as u32;
        }
        (failures as f64 / 1_000.0, true)
    }

    #[test]
    fn pauses_settle_where_few_tries_fail() {
        assert_eq!(settle(0), (0.0, true));
        // Near the longest pause a step is cut short.
        let limit = |free_after: u8| 1.0 / (2 + (LONGEST - free_after).min(STEP - 1)) as f64 + 0.01;
        for free_after in 1..=LONGEST {
            let (failing, blind) = settle(free_after);
            assert!(
                blind && failing <= limit(free_after),
                "{free_after}: {failing}"
            );
        }
    }

    macro_rules! configuration {
        ($name:ident, $($what:ident: $ty:ty = $value:expr)?) => {
            #[derive(Clone, Copy, Debug)]
            struct $name;
            impl Config for $name {
                $(const $what: $ty = $value;)?
                fn tuning() -> Tuning {
                    Tuning::DEFAULT
                }
            }
        };
    }
    configuration!(Sound,);
    configuration!(Pushy, FAULT: Fault = Fault::Pushy);
    configuration!(Published, AS_PUBLISHED: bool = true);

    /// What a head advises that took the lock at its first try, with this in the word's second byte.
    fn advice<C: Config>(pending: u8) -> Approach {
        let lock = QueuedSpinLock::<Native, C>::new();
        lock.pending.store(pending, Relaxed);
        lock.advise(true, BLINDLY)
    }
    const BLINDLY: Approach = Approach::Take { pauses: 0 };

    #[test]
    fn nobody_comes_before_a_pending_waiter_without_a_look() {
        for rest in [0, PARKED, STEAL, PARKED | STEAL] {
            assert_eq!(advice::<Sound>(rest), BLINDLY);
            assert_eq!(advice::<Sound>(PENDING | rest), Approach::Look);
            assert_eq!(advice::<Pushy>(PENDING | rest), BLINDLY, "can fail");
            assert_eq!(advice::<Published>(rest), Approach::Look);
        }
        let lock = QueuedSpinLock::<Native, Sound>::new();
        assert_eq!(
            lock.advise(false, BLINDLY),
            Approach::Look,
            "it may have left before a pending waiter had its turn"
        );
    }

    #[test]
    fn heads_look_first_where_sections_are_long() {
        assert!(!settle(LONGEST + 1).1);
        assert_eq!(Approach::Look.after_failure(), Approach::Look);
    }
}
