//! How long waiters of the spinlock spin, sleep and permit stealing. All times are in nanoseconds.

use super::Config;
use crate::platform::{NEVER, Platform};

/// How long after coming to the front a waiter that falls asleep still permits stealing.
pub const STEAL_LIMIT_NS: u64 = 10_000_000;

/// How long a waiter spins before it parks, unless oversubscribed. It is longer than waking all
/// waiters of a locality domain one after the other takes: otherwise they fall asleep again before
/// their turn.
const SPIN_NS: u64 = 1_000_000;
/// As [`SPIN_NS`], while oversubscribed: a few hand-offs, or what falling asleep and waking up
/// costs.
const SPIN_OVERSUBSCRIBED_NS: u64 = 5_000;

/// How long a newcomer waits for a chance to steal before it queues, and how often it tries.
pub(super) const STEAL_WAIT_NS: u64 = 2_000;
pub(super) const STEAL_ATTEMPTS: u32 = 16;

/// How long to spin before parking; [`NEVER`] if no waiter parks.
pub(super) fn spin_limit<P: Platform, C: Config>(oversubscribed: bool) -> u64 {
    match (P::CAN_PARK && C::PARK, oversubscribed) {
        (false, _) => NEVER,
        (_, true) => SPIN_OVERSUBSCRIBED_NS,
        (_, false) => SPIN_NS,
    }
}
