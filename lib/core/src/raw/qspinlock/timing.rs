//! How long waiters of the spinlock spin, sleep and permit stealing. All times are in nanoseconds.

use crate::platform::{NEVER, Platform};
use crate::raw::LockConfig;

/// How long a front waiter that falls asleep again still permits stealing, counted from its first
/// sleep.
pub const STEAL_LIMIT_NS: u64 = 10_000_000;

/// How long the pending waiter and the head spin for the lock before they sleep: longer than the
/// critical sections that a spinlock is for. Waiters behind them look at the front each time that
/// they have spun for this long.
const SPIN_NS: u64 = 50_000;
/// The same on an oversubscribed machine: a few hand-offs, or the cost of falling asleep and waking
/// up.
const SPIN_OVERSUBSCRIBED_NS: u64 = 5_000;

/// How often a waiter behind the front spins for [`SPIN_NS`] before it sleeps, as long as the queue
/// moves. The sum is a millisecond, longer than it takes to wake the waiters of a locality domain
/// one after the other: otherwise roused waiters would fall asleep again before their turn.
///
/// 1 under a model checker, where each spin is another step.
pub(super) const SPINS_BEHIND: u32 = if cfg!(loom) { 1 } else { 20 };

/// How long a newcomer waits for a chance to steal before it queues, and how often it tries.
pub(super) const STEAL_WAIT_NS: u64 = 2_000;
pub(super) const STEAL_ATTEMPTS: u32 = 16;

/// How long one spin lasts; [`NEVER`] if no waiter parks.
pub(super) fn spin_limit<P: Platform, C: LockConfig>(oversubscribed: bool) -> u64 {
    match (P::CAN_PARK && C::PARK, oversubscribed) {
        (false, _) => NEVER,
        (_, true) => SPIN_OVERSUBSCRIBED_NS,
        (_, false) => SPIN_NS,
    }
}
