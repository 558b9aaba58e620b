//! The parameters of one schedule of a lock.

use super::locks::Knobs;
use kinlock_sim::Schedule;

/// The parameters of one schedule.
pub(super) struct Plan {
    pub(super) schedule: Schedule,
    pub(super) knobs: Knobs,
    /// Whether waiters may park.
    pub(super) park: bool,
    /// How often each thread takes the lock.
    pub(super) rounds: u32,
    /// The longest computation between and within critical sections, in cycles.
    pub(super) work: u64,
    pub(super) order: Option<Order>,
}

/// The order in which waiters are to be served.
#[derive(Clone, Copy)]
pub(super) struct Order {
    /// No later thread comes first.
    pub(super) fifo: bool,
    /// How many later threads may come before a waiter at most.
    pub(super) overtakers: u32,
}
