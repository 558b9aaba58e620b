//! How long waiters of the spinlock spin, sleep and permit stealing. All times are in nanoseconds.

use super::Config;
use crate::platform::{NEVER, Platform};

/// How long after coming to the front a waiter that falls asleep still permits stealing.
pub const STEAL_LIMIT_NS: u64 = 10_000_000;

/// How long the pending waiter and the head spin for the lock before they sleep: longer than the
/// critical sections that a spinlock is for. It is also how often a waiter behind them looks
/// whether they sleep.
const SPIN_NS: u64 = 50_000;
/// As [`SPIN_NS`], while oversubscribed: a few hand-offs, or what falling asleep and waking up
/// costs.
const SPIN_OVERSUBSCRIBED_NS: u64 = 5_000;

/// For how many times [`SPIN_NS`] a waiter behind the front spins before it sleeps, as long as the
/// front does not sleep. That is a millisecond, longer than waking all waiters of a locality domain
/// one after the other takes: otherwise they fall asleep again before their turn. One under a model
/// checker, where each of them is another step.
pub(super) const SPINS_BEHIND: u32 = if cfg!(loom) { 1 } else { 20 };

/// How long a newcomer waits for a chance to steal before it queues, and how often it tries.
pub(super) const STEAL_WAIT_NS: u64 = 2_000;
pub(super) const STEAL_ATTEMPTS: u32 = 16;

/// How long one spin lasts; [`NEVER`] if no waiter parks.
pub(super) fn spin_limit<P: Platform, C: Config>(oversubscribed: bool) -> u64 {
    match (P::CAN_PARK && C::PARK, oversubscribed) {
        (false, _) => NEVER,
        (_, true) => SPIN_OVERSUBSCRIBED_NS,
        (_, false) => SPIN_NS,
    }
}
