//! The limit on local hand-offs, while waiters of other domains are set aside.

use super::Head;
use crate::platform::Platform;
use crate::tuning::LocalLimit;

/// How long before the limit the first of the secondary queue is roused, in units of [`clock`]. It
/// is longer than a CPU takes to leave a deep sleep and to wake the waiters of a whole domain one
/// after the other, and short enough that roused waiters do not fall asleep again before their
/// turn.
const LEAD: u32 = MS / 4;
/// The lead for a limit in hand-offs: 2^-5 of the limit, 0.3 to 1 ms for 2^16 hand-offs.
const LEAD_SHARE: u8 = 5;
/// The first part of a limit, as a divisor of the limit. A holder waits for local waiters only in
/// this part, so that a domain which needs such waits again and again does not keep the lock for as
/// long.
const LINGER_SHARE: u32 = 200;
/// A millisecond in units of [`clock`], rounded down: the limit errs on the fair side.
const MS: u32 = 1_000_000 >> 10;

/// A flag in a node's `run`: the first waiter of the secondary queue has been roused.
pub(super) const ROUSED_BEFORE: u32 = 1 << 31;

/// How much of the limit is used up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Limit {
    /// Not yet its first part, see [`LINGER_SHARE`].
    Distant,
    /// More than its first part, or there is no secondary queue.
    Far,
    /// All but the time that sleepers need to wake up.
    Near,
    /// All of it.
    Reached,
}

impl<P: Platform> Head<P> {
    /// Hand-offs since the secondary queue became non-empty.
    pub(super) fn handoffs(&self) -> u32 {
        self.run & !ROUSED_BEFORE
    }

    pub(super) fn limit_now(&self) -> Limit {
        if self.secondary.is_none() {
            return Limit::Far;
        }
        let (used, limit, lead) = match self.tuning.limit {
            LocalLimit::Time { ms } => {
                let limit = ms as u32 * MS;
                (clock::<P>().wrapping_sub(self.since), limit, LEAD)
            }
            LocalLimit::Count { log2 } => {
                let limit = (1 << log2).min(ROUSED_BEFORE - 1);
                (self.handoffs(), limit, (limit >> LEAD_SHARE).max(1))
            }
        };
        match used {
            used if used >= limit => Limit::Reached,
            used if used >= limit - lead => Limit::Near,
            used if used >= limit / LINGER_SHARE => Limit::Far,
            _ => Limit::Distant,
        }
    }
}

/// The time in units of 1.024 us. It fits into 32 bits and wraps after 73 minutes, far above any
/// limit.
pub(super) fn clock<P: Platform>() -> u32 {
    (P::now() >> 10) as u32
}
